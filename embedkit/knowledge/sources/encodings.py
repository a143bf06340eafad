"""Which encoding a text is in: UTF-8, what its byte order mark says, or what a detector finds.

Most files that are not UTF-8 are in the encoding of the country they come from, and say so nowhere. ``chardet`` tells
those apart. Two things it is not asked: whether the text is West European (a single accent or copyright sign between
ASCII letters is too little for it), and what has no answer; both are decided by how the bytes above ASCII stand.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

DECODED: Final = frozenset({"utf-8", "utf-16", "utf-32"})
"""Encodings that a file itself declares, or that need no guess."""

_MARKS: Final = (
    ((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE), "utf-32"),
    ((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), "utf-16"),
)
_SAMPLE = 32_768  # bytes of lines that are not ASCII
_LEAST_CONFIDENCE = 0.04  # random bytes reach .03, short texts in thirteen encodings are above .049
_MOST_BESIDE = 1.5  # a letter with an accent stands alone; bytes of other scripts stand in rows
_HIGH = re.compile(rb"[\x80-\xff]+")
_WEST_EUROPEAN: Final = "cp1252"
# Those that share most of their letters with it: only where the detector names one of them is it believed.
_LATIN = frozenset({"iso8859-2", "cp1250", "iso8859-3", "cp1254", "iso8859-9", "cp1257", "iso8859-4", "iso8859-13"})


def marked_encoding(data: bytes) -> str | None:
    """``utf-32`` or ``utf-16`` if the bytes begin with its mark, decode whole and hold no NUL, else ``None``."""
    for marks, encoding in _MARKS:
        if data.startswith(marks):
            try:
                return None if "\0" in data.decode(encoding) else encoding
            except UnicodeDecodeError:
                continue
    return None


def encoding_of(data: bytes) -> str | None:
    """The encoding of a text in ``data``, as Python names it; ``None`` if there is none that decodes all of it."""
    marked = marked_encoding(data)
    if marked is not None:
        return marked
    if _is_text(data, "utf-8"):  # nearly all are: nothing is guessed before
        return "utf-8"
    return next((encoding for encoding in _guesses(data) if _is_text(data, encoding)), None)


def _is_text(data: bytes, encoding: str) -> bool:
    try:
        return "\0" not in data.decode(encoding)
    except UnicodeDecodeError:
        return False


def decode(data: bytes, encoding: str) -> str:
    """The text; a byte order mark is no part of it."""
    return data.decode(encoding).removeprefix("\ufeff")


def _guesses(data: bytes) -> list[str]:
    sample = _sample(data)
    rows = _HIGH.findall(sample)
    if not rows:
        return []
    found = _detected(sample)
    if sum(map(len, rows)) <= _MOST_BESIDE * len(rows):
        return [found, _WEST_EUROPEAN] if found in _LATIN else [_WEST_EUROPEAN]
    return [] if found is None else [found]


def _detected(sample: bytes) -> str | None:
    import chardet

    found = chardet.detect(sample)
    name = found["encoding"]
    if name is None or (found["confidence"] or 0.0) < _LEAST_CONFIDENCE:
        return None
    try:
        return codecs.lookup(name).name
    except LookupError:
        return None


def _sample(data: bytes) -> bytes:
    """Lines that are not ASCII: the others tell nothing."""
    lines: list[bytes] = []
    held = 0
    for line in data.split(b"\n"):
        if not line.isascii():
            lines.append(line[:_SAMPLE])
            held += len(line)
            if held >= _SAMPLE:
                break
    return b"\n".join(lines)[:_SAMPLE]
