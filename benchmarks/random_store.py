"""A knowledge base of random unit vectors, filled through the knowledge base's own functions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from embedkit.database import open_database
from embedkit.knowledge.model import Chunk, Space
from embedkit.knowledge.storing.prepared import PreparedChunk, PreparedDocument
from embedkit.knowledge.storing.store import SqliteStore

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TENANT, REPOSITORY = "bench", "random"
VOCABULARY = 20_000
_IN_DOCUMENT = 500


@attrs.frozen
class Shape:
    """How much there is, and which.

    Attributes:
        chunks: Rows of the matrix.
        dimension: Its columns.
        seed: Of the random numbers.
        words: How many words a chunk has, of ``VOCABULARY``, the n-th as often as 1/n; with 0 it has its number alone.
    """

    chunks: int = 50_000
    dimension: int = 256
    seed: int = 50_000
    words: int = 0

    @property
    def bytes(self) -> int:
        """The matrix alone."""
        return 4 * self.chunks * self.dimension

    def vectors(self) -> NDArray[np.float32]:
        """The matrix: row i is the vector of the i-th chunk."""
        return unit_vectors(self.chunks, self.dimension, self.seed)


def unit_vectors(count: int, dimension: int, seed: int) -> NDArray[np.float32]:
    """Random directions: ``(count, dimension) float32``, rows of length one."""
    import numpy as np

    vectors = np.random.default_rng(seed).standard_normal((count, dimension), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


async def fill(path: Path, shape: Shape) -> None:
    """Make a store at ``path``; its chunks have ascending numbers, row by row.

    Cancellation:
        The documents that were written are there.
    """
    vectors = shape.vectors()
    bodies = _bodies(shape)
    async with open_database(path) as database:
        store = SqliteStore(database)
        await store.open()
        await store.claim_space(Space("random", "unit", shape.dimension))
        record = await store.repository(TENANT, REPOSITORY)
        lease = await store.lease(record)
        for start in range(0, shape.chunks, _IN_DOCUMENT):
            rows = range(start, min(start + _IN_DOCUMENT, shape.chunks))
            kept = {_hash(row): vectors[row].tobytes() for row in rows}
            await store.commit(record, lease, kept, [_document(rows, bodies)])
        await store.release(lease)


def word(rank: int) -> str:
    """The word of a rank, from 0: letters alone, that no stemmer changes and no two of which are one."""
    return "x" + "".join("bcdfghjklm"[int(digit)] for digit in str(rank)) + "o"


def _bodies(shape: Shape) -> Callable[[int], str]:
    """The words of a row."""
    if not shape.words:
        return lambda row: f"row {row}"
    import numpy as np

    chances = 1 / np.arange(1, VOCABULARY + 1)
    edges = np.cumsum(chances / chances.sum())
    drawn = np.searchsorted(edges, np.random.default_rng(shape.seed).random((shape.chunks, shape.words)))
    words = [word(rank) for rank in range(VOCABULARY + 1)]
    return lambda row: " ".join(words[rank] for rank in drawn[row].tolist())


def _document(rows: range, body: Callable[[int], str]) -> PreparedDocument:
    chunks = [
        PreparedChunk(Chunk(ordinal, ordinal + 1, ordinal + 1, f"row {row}", "", 2), _hash(row), "", body(row))
        for ordinal, row in enumerate(rows)
    ]
    return PreparedDocument(f"{rows.start}.txt", f"{rows.start:064x}", 1, chunks, "")


def _hash(row: int) -> bytes:
    return hashlib.sha256(str(row).encode("ascii")).digest()
