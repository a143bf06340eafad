"""How to speak to engines: one file an engine."""
