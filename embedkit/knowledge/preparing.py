"""From entries of a snapshot to documents that are ready to be stored, but for their vectors. Plain, blocking code.

It runs in a worker thread, in portions: reading, cutting into chunks, hashing, and making the words of the full-text
index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs

from embedkit.errors import SourceError
from embedkit.knowledge.chunking import CHUNKING_GENERATION, ChunkLimits, chunk
from embedkit.knowledge.documents import PreparedChunk, PreparedDocument
from embedkit.knowledge.model import Document, input_hash
from embedkit.knowledge.source import Entry, Snapshot
from embedkit.knowledge.words import embedding_input, index_words

# Some 300 kB of usual sources: large enough for the lane to be fed in bulk, small enough to be interrupted soon.
_PORTION = 16


@attrs.frozen
class Portion:
    """Some documents, and what the engine would have to embed for them.

    Attributes:
        documents: In the snapshot's order.
        inputs: The text for each hash among their chunks, each once.
        unreadable: Paths that were there when the snapshot was taken and can no longer be read as they were.
    """

    documents: Sequence[PreparedDocument]
    inputs: dict[bytes, str] = attrs.field(repr=False)
    unreadable: Sequence[str] = ()


def portions(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """Split ``entries`` into portions for one call of ``prepare`` each."""
    for start in range(0, len(entries), _PORTION):
        yield entries[start : start + _PORTION]


def prepare(
    snapshot: Snapshot, entries: Sequence[Entry], limits: ChunkLimits, *, check: Callable[[], object]
) -> Portion:
    """Read, cut, hash and take the words of ``entries``.

    Args:
        snapshot: Where they stand.
        entries: Some of it.
        limits: How large chunks are.
        check: Called before each; may raise, which ends the preparing. A portion of large files takes seconds.
    """
    documents: list[PreparedDocument] = []
    inputs: dict[bytes, str] = {}
    unreadable: list[str] = []
    for entry in entries:
        check()
        try:
            document = snapshot.read(entry)
        except SourceError:
            unreadable.append(entry.path)  # counted and left to the next sweep; the version that is stored serves on
            continue
        documents.append(_prepared(document, limits, inputs))
    return Portion(documents, inputs, unreadable)


def _prepared(document: Document, limits: ChunkLimits, inputs: dict[bytes, str]) -> PreparedDocument:
    parts = []
    for piece in chunk(document.path, document.text, limits=limits):
        text = embedding_input(piece.scope, piece.text)
        hash_ = input_hash(text)
        inputs[hash_] = text
        parts.append(PreparedChunk(piece, hash_, index_words(piece.scope), index_words(piece.text)))
    return PreparedDocument(
        document.path, document.content_hash, CHUNKING_GENERATION, parts, index_words(document.path)
    )
