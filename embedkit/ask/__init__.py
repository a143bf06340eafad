"""One question to many models."""
