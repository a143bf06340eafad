"""From a snapshot to stored vectors: prepare, compare, buy, keep."""
