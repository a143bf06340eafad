"""Which files are worth indexing: one set of rules for folders and for git.

- ``oversized``: more bytes than the limit; known before the file is read.
- ``secret``: a name that passwords and keys have (see ``selection``), or a file that begins with a private key.
- ``lfs``: a pointer of Git LFS, in the place of a file that is elsewhere.
- ``binary``: a NUL byte anywhere (UTF-16 and UTF-32 with a byte order mark are text if all of it decodes), a known
  signature, or a head that is not UTF-8 and holds more than a sprinkle of control characters.
- ``generated``: a lock file or source map by name, a mark in the comment it begins with, or a minified text.
- ``undecodable``: a text in no encoding that can be told.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

import attrs

from embedkit.knowledge.model import SkipReason
from embedkit.knowledge.sources.encodings import encoding_of, marked_encoding

RULES_GENERATION: Final = 2
"""Raised whenever a rule changes, so that what was remembered of a file is not taken for what is true of it now."""

NEVER_INDEXED: Final = frozenset({".git", ".embedkit"})
"""Names of files and folders that are left out wherever they are, and are not counted."""

_HEAD = 8192
_SIGNATURES = (b"%PDF-", b"PK\x03\x04", b"\x1f\x8b", b"\x89PNG", b"GIF8", b"\xff\xd8\xff", b"SQLite format 3")
_CONTROLS = bytes(byte for byte in range(32) if byte not in b"\t\n\v\f\r\b\x1b") + b"\x7f"
_MOST_CONTROLS = 0.02  # random bytes hold 11 %; text in an old encoding next to none
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_LFS_SIZE = 1024
_PRIVATE_KEY = re.compile(rb"-----BEGIN (?:[A-Z0-9]{1,16} ){0,3}PRIVATE KEY(?: BLOCK)?-----")

_LOCK_FILES = frozenset(
    {"package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", "deno.lock"}
    | {"Cargo.lock", "poetry.lock", "uv.lock", "pdm.lock", "Pipfile.lock", "composer.lock", "Gemfile.lock"}
    | {"go.sum", "flake.lock", "mix.lock", "pubspec.lock", "Podfile.lock", ".terraform.lock.hcl"}
)
_GENERATED_ENDINGS = (".min.js", ".min.css", ".min.mjs", ".js.map", ".css.map", ".mjs.map")
_MINIFIED_ENDINGS = (".js", ".mjs", ".cjs", ".css")
_MINIFIED_LINE = 1000  # mean bytes a line
_MINIFIED_LEAST = 4096  # bytes; a short one is cheap anyway

# What a file of prose may begin a comment with, and what one of code may; a heading or a list item is no comment.
_PROSE = (".md", ".markdown", ".mdx", ".rst", ".txt", ".adoc", ".org", ".tex", ".html", ".htm")
_PROSE_COMMENTS = (b"<!--", b"..", b"%", b"//")
_COMMENTS = (b"#", b"//", b"/*", b"*", b"--", b";", b"%", b"<!--", b"{-", b"(*", b"'", b"REM ", b"!", b"dnl ")
_BEFORE_COMMENTS = (b"#!", b"<?xml", b"<?php", b"<!DOCTYPE", b"<!doctype", b"'use strict'", b'"use strict"')
_MARKED_LINES = 12  # of comments
_LOOKED_AT = 8192  # bytes, and of a line:
_LINE = 240
_GENERATED = re.compile(rb"(?i:\b(?:auto-?|automatically )?generated\b)")
_DO_NOT_EDIT = re.compile(rb"(?i:\bdo not (?:edit|modify|change)\b)")
_ORDER = re.compile(rb"\W*(?:THIS FILE\W+)?(?:PLEASE )?DO NOT (?:EDIT|MODIFY)(?: THIS FILE| BY HAND| MANUALLY)?\W*")


@attrs.frozen
class Look:
    """What the bytes of a file say.

    Attributes:
        skipped: Why it is left out, or ``None``.
        encoding: Of its text, where that had to be told; ``None`` for UTF-8 and what a mark declares.
    """

    skipped: SkipReason | None = None
    encoding: str | None = None


def skipped_by_name(path: str, size: int | None, max_file_bytes: int) -> SkipReason | None:
    """Why a file is left out without being read, or ``None``; ``size`` in bytes where it is known."""
    if size is not None and size > max_file_bytes:
        return "oversized"
    name = path.rsplit("/", 1)[-1]
    if name in _LOCK_FILES or name.endswith(_GENERATED_ENDINGS):
        return "generated"
    return None


def look_at(path: str, data: bytes) -> Look:
    """What there is to say of a file with these bytes."""
    if data.startswith(_LFS_POINTER) and len(data) < _LFS_SIZE:
        return Look("lfs")
    if _is_binary(data):
        return Look("binary")
    if _PRIVATE_KEY.match(data[:_HEAD].lstrip(codecs.BOM_UTF8 + b" \t\r\n")):
        return Look("secret")
    if _is_generated(path, data):
        return Look("generated")
    encoding = encoding_of(data)
    if encoding is None:
        return Look("undecodable")
    return Look(None, None if encoding.startswith("utf-") else encoding)


def _is_binary(data: bytes) -> bool:
    if data.startswith(_SIGNATURES):
        return True
    if b"\0" in data or data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return marked_encoding(data) is None
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


def _is_generated(path: str, data: bytes) -> bool:
    may_be_minified = path.endswith(_MINIFIED_ENDINGS) and len(data) >= _MINIFIED_LEAST
    if may_be_minified and len(data) > _MINIFIED_LINE * (data.count(b"\n") + 1):
        return True
    comment = _first_comment(path, data)
    if any(b"@generated" in line or _ORDER.fullmatch(line) for line in comment):
        return True
    text = b" ".join(comment)
    return _GENERATED.search(text) is not None and _DO_NOT_EDIT.search(text) is not None


def _first_comment(path: str, data: bytes) -> list[bytes]:
    """The lines of the comment that a file begins with, without what makes them one."""
    begins = _PROSE_COMMENTS if path.lower().endswith(_PROSE) else _COMMENTS
    found: list[bytes] = []
    closed_by = b""  # what ends the block comment that is open
    for raw in data[:_LOOKED_AT].removeprefix(codecs.BOM_UTF8).split(b"\n"):
        line = raw.strip()[:_LINE]
        if closed_by:
            is_comment = True
        elif not line or line.startswith(_BEFORE_COMMENTS):
            continue
        else:
            is_comment = line.startswith(begins)
        if not is_comment or len(found) == _MARKED_LINES:
            break
        found.append(line.strip(b"#/*-;%<!>{}()'. \t"))
        opened = next((end for start, end in _BLOCKS if line.startswith(start)), b"")
        closed_by = closed_by or opened
        if closed_by and closed_by in line[2:]:
            closed_by = b""
    return found


_BLOCKS = ((b"/*", b"*/"), (b"<!--", b"-->"), (b"{-", b"-}"), (b"(*", b"*)"))
