"""The nouns of a knowledge base: what a source gives, what chunking makes of it, what a store keeps."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal

import attrs

from embedkit.knowledge.metadata import canonical

SkipReason = Literal[
    "binary", "oversized", "generated", "symlink", "unreadable", "secret", "lfs", "undecodable", "changed"
]
Finding = Literal["over-window", "timed-out"]


@attrs.frozen
class Document:
    """One text of a repository.

    Attributes:
        path: Its name in the repository: a relative path with ``/`` between its parts, or any name in one line. What
            it ends in says how it is cut (``.py``, ``.md``). Of a file whose name is not UTF-8, ``surrogateescape`` is
            undone by backslashes, so that it can be stored and printed.
        text: The decoded text; of a notebook, its cells.
        metadata: What is known of it: small JSON. It comes back with hits, and they can be filtered by it.
        content_hash: Of a file, SHA-256 of its bytes, in hex; of a text that was given, of its text and metadata.
        encoding: The encoding that it was in, as Python names it.
    """

    path: str
    text: str = attrs.field(repr=False)
    metadata: Mapping[str, object] = attrs.field(factory=dict, hash=False)
    content_hash: str = attrs.field(
        kw_only=True, default=attrs.Factory(lambda self: _content_hash(self.text, self.metadata), takes_self=True)
    )
    encoding: str = attrs.field(default="utf-8", kw_only=True)


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


def _content_hash(text: str, metadata: Mapping[str, object]) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
    if metadata:
        digest.update(b"\0" + canonical(metadata).encode())
    return digest.hexdigest()
