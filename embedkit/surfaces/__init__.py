"""Thin surfaces over the library: the command line. No decision is taken here."""
