"""From a repository to stored vectors, and back by search."""
