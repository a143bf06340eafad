"""From entries of a snapshot to documents that are ready to be stored, but for their vectors. Plain, blocking code.

It runs in a worker thread, in portions: reading, cutting into chunks, hashing, and making the words of the full-text
index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set

import attrs

from embedkit.errors import SourceError
from embedkit.knowledge.chunking import ChunkLimits, chunk
from embedkit.knowledge.chunking.halving import halves
from embedkit.knowledge.model import Document
from embedkit.knowledge.sources.source import CHANGED, Entry, Snapshot
from embedkit.knowledge.storing.prepared import PreparedChunk, PreparedDocument

# Some 300 kB of usual sources: large enough for the lane to be fed in bulk, small enough to be interrupted soon.
_PORTION = 16
_REASON = 200  # characters of a foreign exception that are shown


@attrs.frozen
class Portion:
    """Some documents, and what the engine would have to embed for them.

    Attributes:
        documents: In the snapshot's order.
        changed: Paths of files that are no longer what the snapshot saw: left to the next sweep.
        failures: What went wrong with others, which are not among ``documents``.
        inputs: The text for each hash among their chunks, each once.
    """

    documents: Sequence[PreparedDocument]
    changed: Sequence[str] = ()
    failures: Sequence[SourceError] = ()
    inputs: Mapping[bytes, str] = attrs.field(
        init=False, repr=False, default=attrs.Factory(lambda self: _inputs_of(self.documents), takes_self=True)
    )


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
    changed: list[str] = []
    failures: list[SourceError] = []
    for entry in entries:
        check()
        try:
            documents.append(_prepared(snapshot.read(entry), limits))
        except SourceError as error:
            # The version that is stored serves on.
            if error.code == CHANGED:
                changed.append(entry.path)
            else:
                failures.append(error)
        except Exception as error:  # whatever one file makes us raise is that file's failure
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:_REASON]
            message = f"{entry.path}: cannot be cut into chunks ({reason}); the other files are stored"
            failures.append(SourceError(message, code="KB_CHUNKING_FAILED"))
    return Portion(documents, changed, failures)


def divided(portion: Portion, over: Set[bytes]) -> Portion:
    """``portion`` with the halves of each chunk whose input is in ``over``, and theirs if they are in it too.

    A chunk that is too short to be halved stays as it is.
    """
    if over.isdisjoint(portion.inputs):
        return portion
    return Portion([_divided(document, over) for document in portion.documents], portion.changed, portion.failures)


def is_divisible(document: PreparedDocument, hash_: bytes) -> bool:
    """Whether the document's chunk with this input has halves."""
    return any(part.hash == hash_ and halves(part.chunk) for part in document.chunks)


def _divided(document: PreparedDocument, over: Set[bytes]) -> PreparedDocument:
    if not any(part.hash in over for part in document.chunks):
        return document
    parts = [piece for part in document.chunks for piece in _pieces(part, over)]
    numbered = [
        attrs.evolve(part, chunk=attrs.evolve(part.chunk, ordinal=ordinal)) for ordinal, part in enumerate(parts)
    ]
    return attrs.evolve(document, chunks=numbered)


def _pieces(part: PreparedChunk, over: Set[bytes]) -> Iterator[PreparedChunk]:
    pieces = halves(part.chunk) if part.hash in over else []
    if not pieces:
        yield part
    for piece in pieces:
        yield from _pieces(PreparedChunk.of(piece), over)


def _inputs_of(documents: Sequence[PreparedDocument]) -> dict[bytes, str]:
    return {part.hash: part.input for document in documents for part in document.chunks}


def _prepared(document: Document, limits: ChunkLimits) -> PreparedDocument:
    pieces = chunk(document.path, document.text, limits=limits)
    return PreparedDocument.of(
        document.path, document.content_hash, limits.generation, pieces, metadata=document.metadata
    )
