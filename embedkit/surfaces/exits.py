"""Exit codes, and how an error is shown: one line on standard error, or one JSON document on standard output."""

from __future__ import annotations

import json
import sys
from typing import Any

from embedkit.errors import EmbedkitError, SettingsError, SourceError, StoreError, UsageError

DONE = 0
FAILED = 1
USAGE = 2
WORK_LEFT = 3
INTERRUPTED = 130


def exit_code_of(error: EmbedkitError) -> int:
    """Usage is the caller's to mend; everything else failed."""
    return USAGE if isinstance(error, UsageError) else FAILED


def show_error(error: EmbedkitError, *, as_json: bool) -> None:
    """Print ``error``: never a traceback."""
    if as_json:
        print_json({"error": describe(error)})
    else:
        sys.stderr.write(f"embedkit: {_one_line(error)}\n")


def describe(error: EmbedkitError) -> dict[str, Any]:
    """The ``error`` object of every command's JSON."""
    kind = error.kind if isinstance(error, UsageError | StoreError | SourceError) else "failed"
    found: dict[str, Any] = {"kind": kind, "message": _one_line(error), "file": None, "line": None, "key": None}
    if isinstance(error, SettingsError):
        found.update(file=error.file, line=error.line, key=error.key)
    return found


def print_json(document: object) -> None:
    """One document, one line, on standard output."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def _one_line(error: EmbedkitError) -> str:
    return " ".join(str(error).split("\n"))
