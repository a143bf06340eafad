"""What others hold their own lanes, providers and engines to."""
