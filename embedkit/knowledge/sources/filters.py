"""Which files are worth indexing: one set of rules for folders and for git.

- ``binary``: a NUL byte anywhere (UTF-16 and UTF-32 with a byte order mark are text if all of it decodes), a known
  signature, or a head that is not UTF-8 and holds more than a sprinkle of control characters.
- ``oversized``: more bytes than the limit; known before the file is read.
- ``generated``: a lock file or source map by name, a comment in the first lines that says so, or a minified text.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

from embedkit.knowledge.model import SkipReason

RULES_GENERATION: Final = 1
"""Raised whenever a rule changes, so that what was remembered of a file is not taken for what is true of it now."""

DEFAULT_MAX_FILE_BYTES: Final = 1_048_576

NEVER_INDEXED: Final = frozenset({".git", ".embedkit"})
"""Names of files and folders that are left out wherever they are, and are not counted."""

_HEAD = 8192
_SIGNATURES = (b"%PDF-", b"PK\x03\x04", b"\x1f\x8b", b"\x89PNG", b"GIF8", b"\xff\xd8\xff", b"SQLite format 3")
_CONTROLS = bytes(byte for byte in range(32) if byte not in b"\t\n\v\f\r\b\x1b") + b"\x7f"
_MOST_CONTROLS = 0.02  # random bytes hold 11 %; text in an old encoding next to none

_LOCK_FILES = frozenset(
    {"package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", "deno.lock"}
    | {"Cargo.lock", "poetry.lock", "uv.lock", "pdm.lock", "Pipfile.lock", "composer.lock", "Gemfile.lock"}
    | {"go.sum", "flake.lock", "mix.lock", "pubspec.lock", "Podfile.lock", ".terraform.lock.hcl"}
)
_GENERATED_ENDINGS = (".min.js", ".min.css", ".min.mjs", ".js.map", ".css.map", ".mjs.map")
_MINIFIED_ENDINGS = (".js", ".mjs", ".cjs", ".css")
_MINIFIED_LINE = 1000  # mean bytes a line
_MINIFIED_LEAST = 4096  # bytes; a short one is cheap anyway
_MARKED_LINES = 10
_MARKER = re.compile(
    rb"^[ \t]*(?:#|//|/?\*|--|;|%|<!--|\"\"\"|\.\.).{0,200}?"
    rb"(?:@generated\b|DO NOT (?:EDIT|MODIFY)\b|(?i:auto-?generated[^\n]{0,120}do not (?:edit|modify)))",
    re.MULTILINE,
)


def skipped_by_name(path: str, size: int | None, max_file_bytes: int) -> SkipReason | None:
    """Why a file is left out without being read, or ``None``; ``size`` in bytes where it is known."""
    if size is not None and size > max_file_bytes:
        return "oversized"
    name = path.rsplit("/", 1)[-1]
    if name in _LOCK_FILES or name.endswith(_GENERATED_ENDINGS):
        return "generated"
    return None


def skipped_by_content(path: str, data: bytes) -> SkipReason | None:
    """Why a file with these bytes is left out, or ``None``."""
    if _is_binary(data):
        return "binary"
    if _is_generated(path, data):
        return "generated"
    return None


def decode(data: bytes) -> tuple[str, bool]:
    """The text of a file and whether bytes were lost in decoding it.

    UTF-8, or UTF-16 or UTF-32 where a byte order mark says so. The mark is no part of the text.
    """
    encoding = _wide_encoding(data)
    if encoding is not None:
        return data.decode(encoding), False
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode("utf-8"), False
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace"), True


def _is_binary(data: bytes) -> bool:
    if data.startswith(_SIGNATURES):
        return True
    if b"\0" in data or data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return _wide_encoding(data) is None
    head = data[:_HEAD]
    controls = len(head) - len(head.translate(None, _CONTROLS))
    return controls > _MOST_CONTROLS * len(head) and not _starts_as_utf8(head)


def _starts_as_utf8(head: bytes) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoder.decode(head)  # not final: the head may end within a character
    except UnicodeDecodeError:
        return False
    return True


def _wide_encoding(data: bytes) -> str | None:
    """``utf-32`` or ``utf-16`` if the bytes begin with its mark, decode whole and hold no NUL, else ``None``."""
    for marks, encoding in (
        ((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE), "utf-32"),
        ((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), "utf-16"),
    ):
        if data.startswith(marks):
            try:
                return None if "\0" in data.decode(encoding) else encoding
            except UnicodeDecodeError:
                continue
    return None


def _is_generated(path: str, data: bytes) -> bool:
    may_be_minified = path.endswith(_MINIFIED_ENDINGS) and len(data) >= _MINIFIED_LEAST
    if may_be_minified and len(data) > _MINIFIED_LINE * (data.count(b"\n") + 1):
        return True
    head = b"\n".join(data[:4096].split(b"\n", _MARKED_LINES)[:_MARKED_LINES])
    return _MARKER.search(head) is not None
