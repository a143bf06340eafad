"""The nouns of a knowledge base: what a source gives, what chunking makes of it, what a store keeps."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal

import attrs

SkipReason = Literal["binary", "oversized", "generated", "symlink", "unreadable", "secret", "lfs", "undecodable"]


@attrs.frozen
class Document:
    """One text of a repository at a revision.

    Attributes:
        path: Relative to the repository's root, with ``/`` between its parts. A name that is not UTF-8 stands here
            with ``surrogateescape`` undone by backslashes, so that it can be stored and printed.
        content_hash: SHA-256 of the bytes, in hex.
        text: The decoded text; of a notebook, its cells.
        encoding: The encoding that it was in, as Python names it.
    """

    path: str
    content_hash: str
    text: str = attrs.field(repr=False)
    encoding: str = "utf-8"


@attrs.frozen
class Chunk:
    """A piece of a document that is embedded as one input.

    Attributes:
        ordinal: Position in the document, from 0.
        start_line: First line, 1-based.
        end_line: Last line, inclusive.
        text: The lines, exactly as they stand in the document.
        scope: What encloses the lines: ``Calendar.formatyear`` in code, ``Install > On Debian`` in prose, else ``""``.
        tokens: An estimate of how many tokens the engine will see.
    """

    ordinal: int
    start_line: int
    end_line: int
    text: str = attrs.field(repr=False)
    scope: str
    tokens: int


@attrs.frozen
class Space:
    """An embedding space: vectors of different spaces cannot be compared, whatever their dimension.

    Attributes:
        kind: The provider's kind.
        model: The model's id.
        dimension: Length of a vector.
        options: What else decides the space, for example a requested dimension.
    """

    kind: str
    model: str
    dimension: int
    options: Mapping[str, str] = attrs.field(factory=dict)

    def __str__(self) -> str:
        options = "".join(f", {key}={value}" for key, value in sorted(self.options.items()))
        return f"{self.kind}/{self.model} ({self.dimension} dimensions{options})"


def input_hash(text: str) -> bytes:
    """What a vector is known by: SHA-256 of the exact input that the engine embeds, 32 bytes."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
