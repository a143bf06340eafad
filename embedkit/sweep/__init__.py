"""One run over many repositories: the nursery, its schedule and its outcome."""
