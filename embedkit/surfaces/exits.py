"""Exit codes, and how an error is shown: one line on standard error, or one JSON document on standard output."""

from __future__ import annotations

import json
import os
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
    text = json.dumps(document, ensure_ascii=False)
    if not _can_be_written(text):
        text = json.dumps(document)
    print_text(text + "\n")


def print_text(text: str) -> None:
    """Write ``text`` to standard output, where there is one; what its encoding does not know is escaped.

    Raises:
        BrokenPipeError: Whoever read it has left.
        EmbedkitError: It cannot be written, for example since its disk is full.
    """
    if sys.stdout is None:  # closed by whoever started us (`>&-`)
        return
    if not _can_be_written(text):
        encoding = sys.stdout.encoding
        text = text.encode(encoding, "backslashreplace").decode(encoding)
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        drop_output()
        raise EmbedkitError(f"standard output cannot be written: {error.strerror}") from error


def drop_output() -> None:
    """Let what is still to be written to standard output go nowhere, so that the end of the process does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _can_be_written(text: str) -> bool:
    try:
        text.encode((sys.stdout and sys.stdout.encoding) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _one_line(error: EmbedkitError) -> str:
    return " ".join(str(error).splitlines())
