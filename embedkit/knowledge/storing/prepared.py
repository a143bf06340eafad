"""What a store is handed: documents cut into chunks, each known by the hash of its input. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from embedkit.knowledge.model import Chunk, input_hash
from embedkit.knowledge.searching.words import embedding_input, index_words


@attrs.frozen
class PreparedChunk:
    """A chunk, the hash of its input, and its words for a full-text index.

    Attributes:
        chunk: The lines.
        hash: SHA-256 of ``input``, 32 bytes: what its vector is known by.
        symbol_words: The words of its scope, identifiers cut into their parts.
        body_words: The words of its text, likewise.
    """

    chunk: Chunk
    hash: bytes
    symbol_words: str = attrs.field(repr=False)
    body_words: str = attrs.field(repr=False)

    @classmethod
    def of(cls, chunk: Chunk) -> PreparedChunk:
        """The chunk, prepared."""
        hash_ = input_hash(embedding_input(chunk.scope, chunk.text))
        return cls(chunk, hash_, index_words(chunk.scope), index_words(chunk.text))

    @property
    def input(self) -> str:
        """What the engine is given for it."""
        return embedding_input(self.chunk.scope, self.chunk.text)


@attrs.frozen(eq=False)
class PreparedDocument:
    """A document that is ready to be stored, but for vectors that may still be missing.

    Attributes:
        path: Its name in the repository.
        content_hash: Changes with its text and its metadata.
        generation: The chunking that cut it.
        chunks: In their order.
        path_words: The words of its path.
        metadata: What its giver knows of it; a store gives it back with hits, and filters by it.
    """

    path: str
    content_hash: str
    generation: int
    chunks: Sequence[PreparedChunk]
    path_words: str = attrs.field(repr=False)
    metadata: Mapping[str, object] = attrs.field(factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        path: str,
        content_hash: str,
        generation: int,
        chunks: Iterable[Chunk],
        metadata: Mapping[str, object] | None = None,
    ) -> PreparedDocument:
        """The document, prepared."""
        parts = list(map(PreparedChunk.of, chunks))
        return cls(path, content_hash, generation, parts, index_words(path), {} if metadata is None else metadata)
