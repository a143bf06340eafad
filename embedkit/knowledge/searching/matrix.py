"""One tenant's vectors as one matrix in memory, and exact nearest neighbours in it.

Rows are unit vectors, so a product is a cosine. The matrix is read once and then follows the store: the store counts
changes for each tenant, and a change costs what it changed, not the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    import sqlite3

    import numpy as np
    from numpy.typing import NDArray

_ROWS_AT_ONCE = 1024

EPOCH_BITS = 40
"""A tenant's version: its lower bits count changes, the others say in which life of the store. A backup that is put
back begins another, in which numbers of chunks mean other chunks."""


@attrs.frozen(eq=False, slots=False)
class TenantMatrix:
    """The searchable chunks of one tenant at one version of the store.

    Attributes:
        version: The store's count of changes when this was read.
        chunk_ids: ``(n,) int64``, ascending.
        repository_ids: ``(n,) int64``.
        vectors: ``(n, dimension) float32``, rows of unit length (or zero).
        vector_ids: ``(n,) int64``: chunks with the same input have the same.
        document_ids: ``(n,) int64``.
    """

    version: int
    chunk_ids: NDArray[np.int64]
    repository_ids: NDArray[np.int64]
    vectors: NDArray[np.float32]
    vector_ids: NDArray[np.int64] = attrs.field(default=attrs.Factory(lambda self: self.chunk_ids, takes_self=True))
    document_ids: NDArray[np.int64] = attrs.field(default=attrs.Factory(lambda self: self.chunk_ids, takes_self=True))

    @cached_property
    def _order(self) -> NDArray[np.intp]:
        """Rows by vector, those of one vector by chunk."""
        import numpy as np

        return np.argsort(self.vector_ids, kind="stable")

    @cached_property
    def _firsts(self) -> NDArray[np.intp]:
        """For each vector the first row that has it, ascending."""
        import numpy as np

        return np.sort(np.unique(self.vector_ids, return_index=True)[1])

    def cosine(self, vector_id: int, query: NDArray[np.float32] | None) -> float:
        """The cosine of a vector and a query of unit length; 0 for a vector that is not here."""
        import numpy as np

        at = int(np.searchsorted(self.vector_ids, vector_id, sorter=self._order))
        if query is None or at == len(self._order) or self.vector_ids[self._order[at]] != vector_id:
            return 0.0
        return float(self.vectors[self._order[at]] @ query)

    def distinct(
        self,
        query: NDArray[np.float32],
        count: int,
        *,
        repository_id: int | None = None,
        document_ids: Sequence[int] | None = None,
    ) -> list[tuple[int, int, float]]:
        """The ``count`` nearest inputs: vector, the first chunk that has it, and cosine; nearest first.

        Args:
            query: ``(dimension,) float32``, of unit length.
            count: At most so many.
            repository_id: Only of this repository.
            document_ids: Only of these documents.
        """
        import numpy as np

        if repository_id is None and document_ids is None:
            rows = self._firsts
        else:
            chosen = np.ones(len(self.chunk_ids), np.bool_)
            if repository_id is not None:
                chosen &= self.repository_ids == repository_id
            if document_ids is not None:
                chosen &= np.isin(self.document_ids, np.asarray(document_ids, np.int64))
            inside = np.flatnonzero(chosen)
            rows = inside[np.sort(np.unique(self.vector_ids[inside], return_index=True)[1])]
        scores = (self.vectors @ query)[rows]
        best = _best_rows(scores, self.chunk_ids[rows], count)
        return [(int(self.vector_ids[rows[i]]), int(self.chunk_ids[rows[i]]), float(scores[i])) for i in best]

    def nearest(
        self, query: NDArray[np.float32], count: int, repository_id: int | None = None
    ) -> list[tuple[int, float]]:
        """The ``count`` nearest chunks and their cosines, nearest first, ties by number.

        Args:
            query: ``(dimension,) float32``, of unit length.
            count: At most so many.
            repository_id: Only of this repository.
        """
        import numpy as np

        rows = np.arange(len(self.chunk_ids))
        if repository_id is not None:
            rows = np.flatnonzero(self.repository_ids == repository_id)
        scores = (self.vectors @ query)[rows]
        ids = self.chunk_ids[rows]
        return [(int(ids[i]), float(scores[i])) for i in _best_rows(scores, ids, count)]


def _best_rows(scores: NDArray[np.float32], ids: NDArray[np.int64], count: int) -> NDArray[np.intp]:
    """Positions of the ``count`` highest scores, ties by number."""
    import numpy as np

    best = np.arange(len(scores))
    if count < len(scores):
        # All that are as near as the last of them, so that a tie at the end is decided by number as well.
        least = np.partition(scores, len(scores) - count)[len(scores) - count]
        best = np.flatnonzero(scores >= least)
    return best[np.lexsort((ids[best], -scores[best]))[:count]]


def load(connection: sqlite3.Connection, tenant_id: int, dimension: int, previous: TenantMatrix | None) -> TenantMatrix:
    """The tenant's matrix as the store has it now, made from ``previous`` where that holds it already."""
    import numpy as np

    (version,) = connection.execute("SELECT version FROM tenants WHERE id = ?", (tenant_id,)).fetchone()
    if previous is not None and previous.version == version:
        return previous
    if previous is not None and previous.version >> EPOCH_BITS != version >> EPOCH_BITS:
        previous = None
    rows = connection.execute(
        "SELECT id, repository_id, vector_id, document_id FROM chunks WHERE tenant_id = ? ORDER BY id", (tenant_id,)
    )
    numbers = np.fromiter((number for row in rows for number in row), dtype=np.int64).reshape(-1, 4)
    ids, repositories, vector_ids, documents = (numbers[:, column].copy() for column in range(4))
    vectors = np.empty((len(ids), dimension), dtype=np.float32)
    new = np.ones(len(ids), dtype=bool)
    if previous is not None:
        _, here, there = np.intersect1d(ids, previous.chunk_ids, assume_unique=True, return_indices=True)
        vectors[here] = previous.vectors[there]
        new[here] = False
    _fill(connection, tenant_id, ids, np.flatnonzero(new), vectors)
    return TenantMatrix(version, ids, repositories, vectors, vector_ids, documents)


def _fill(
    connection: sqlite3.Connection,
    tenant_id: int,
    ids: NDArray[np.int64],
    wanted: NDArray[np.intp],
    vectors: NDArray[np.float32],
) -> None:
    """Read the vectors of rows ``wanted`` (ascending) into ``vectors``."""
    import numpy as np

    if not len(wanted):
        return
    # Chunk numbers are given in ascending order, so what is new mostly lies at the end: one range covers it.
    rows = connection.execute(
        """
        SELECT c.id, v.vector FROM chunks c JOIN vectors v ON v.id = c.vector_id
        WHERE c.tenant_id = ? AND c.id >= ? ORDER BY c.id
        """,
        (tenant_id, int(ids[wanted[0]])),
    )
    at = int(wanted[0])
    while some := rows.fetchmany(_ROWS_AT_ONCE):
        block = np.frombuffer(b"".join(vector for _, vector in some), dtype="<f4")
        vectors[at : at + len(some)] = block.reshape(len(some), vectors.shape[1])
        at += len(some)
