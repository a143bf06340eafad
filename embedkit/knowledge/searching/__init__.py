"""How stored chunks are found: words, vectors, and the two joined."""
