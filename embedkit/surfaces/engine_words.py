"""``--show-engine-words``: what an engine said about a refusal, as it said it, on standard error and nowhere else."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable


def words_shown(given: argparse.Namespace) -> Callable[[str], None] | None:
    """Where an engine's words go, if they were asked for. They may quote texts, so they are never kept."""
    return _print if given.show_engine_words else None


def _print(words: str) -> None:
    if sys.stderr is not None:
        text = f"embedkit: {words}\n"
        encoding = sys.stderr.encoding or "utf-8"
        sys.stderr.write(text.encode(encoding, "backslashreplace").decode(encoding))
