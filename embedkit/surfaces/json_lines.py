"""Documents as JSON lines: ``{"path": ..., "text": ..., "metadata": {...}}``, one a line. Plain, blocking code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, NoReturn, Protocol

import attrs

from embedkit.errors import UsageError
from embedkit.knowledge.model import Document
from embedkit.knowledge.sources.given import check_document

MOST_BYTES: Final = 64 << 20
"""Of one line: what is longer is read past, and held by nobody."""

_LINES_AT_ONCE = 256
_BYTES_AT_ONCE = 1 << 20
_KEYS = ("path", "text", "metadata")


class Stream(Protocol):
    """What lines are read from."""

    def readline(self, size: int, /) -> bytes:
        """A line with its end, or ``size`` bytes of it; nothing at the end."""
        ...


@attrs.frozen
class Lines:
    """Some lines.

    Attributes:
        documents: Of the good ones.
        bad: What is wrong with each of the others, in a line that begins with its number.
        count: How many lines; none at the end.
    """

    documents: Sequence[Document]
    bad: Sequence[str]
    count: int


def read_lines(stream: Stream, first: int) -> Lines:
    """The next lines, of which the first has the number ``first``; blank ones count, and say nothing."""
    documents: list[Document] = []
    bad: list[str] = []
    count = size = 0
    while count < _LINES_AT_ONCE and size < _BYTES_AT_ONCE and (line := stream.readline(MOST_BYTES)):
        count += 1
        size += len(line)
        try:
            if len(line) == MOST_BYTES and not line.endswith(b"\n"):
                _skip_rest(stream)
                raise UsageError(f"is longer than {MOST_BYTES:,} bytes")
            if line.strip():
                documents.append(document_in(line))
        except UsageError as error:
            bad.append(f"line {first + count - 1}: {error}")
    return Lines(documents, bad, count)


def document_in(line: bytes) -> Document:
    """The document that a line describes.

    Raises:
        UsageError: It describes none.
    """
    try:
        value = json.loads(line.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise UsageError(f"is not UTF-8 (byte {error.start + 1})") from error
    except json.JSONDecodeError as error:
        raise UsageError(f"is no JSON ({error.msg}, character {error.pos + 1})") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"is no JSON that can be read ({type(error).__name__})") from error
    if not isinstance(value, dict):
        raise UsageError('is no JSON object; write {"path": ..., "text": ...}')
    missing = [key for key in ("path", "text") if key not in value]
    if missing:
        raise UsageError(f"has no {missing[0]!r}; it has {', '.join(map(ascii, value)) or 'nothing'}"[:200])
    unknown = sorted(value.keys() - set(_KEYS))
    if unknown:
        raise UsageError(f"has {ascii(unknown[0])[:80]}, which is not known; what else is known goes into 'metadata'")
    metadata = value.get("metadata")
    known = {} if metadata is None else metadata
    # Checked before its hash is taken, which would not bear what is no text.
    check_document(Document(value["path"], value["text"], known, content_hash="not yet"))
    return Document(value["path"], value["text"], known)


def _skip_rest(stream: Stream) -> None:
    while (line := stream.readline(_BYTES_AT_ONCE)) and not line.endswith(b"\n"):
        pass


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)
