"""One tenant's vectors as one matrix in memory, and exact nearest neighbours in it.

Rows are unit vectors, so a product is a cosine. The matrix is read once and then follows the store: the store counts
changes for each tenant, and a change costs what it changed, not the whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    import sqlite3

    import numpy as np
    from numpy.typing import NDArray

_ROWS_AT_ONCE = 1024


@attrs.frozen(eq=False)
class TenantMatrix:
    """The searchable chunks of one tenant at one version of the store.

    Attributes:
        version: The store's count of changes when this was read.
        chunk_ids: ``(n,) int64``, ascending.
        repository_ids: ``(n,) int64``.
        vectors: ``(n, dimension) float32``, rows of unit length (or zero).
    """

    version: int
    chunk_ids: NDArray[np.int64]
    repository_ids: NDArray[np.int64]
    vectors: NDArray[np.float32]

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

        scores = self.vectors @ query
        rows = None if repository_id is None else np.flatnonzero(self.repository_ids == repository_id)
        if rows is not None:
            scores = scores[rows]
        if count < len(scores):
            # All that are as near as the last of them, so that a tie at the end is decided by number as well.
            least = np.partition(scores, len(scores) - count)[len(scores) - count]
            best = np.flatnonzero(scores >= least)
        else:
            best = np.arange(len(scores))
        ids = self.chunk_ids[best if rows is None else rows[best]]
        order = np.lexsort((ids, -scores[best]))[:count]
        return [(int(ids[i]), float(scores[best[i]])) for i in order]


def load(connection: sqlite3.Connection, tenant_id: int, dimension: int, previous: TenantMatrix | None) -> TenantMatrix:
    """The tenant's matrix as the store has it now, made from ``previous`` where that holds it already."""
    import numpy as np

    (version,) = connection.execute("SELECT version FROM tenants WHERE id = ?", (tenant_id,)).fetchone()
    if previous is not None and previous.version == version:
        return previous
    rows = connection.execute("SELECT id, repository_id FROM chunks WHERE tenant_id = ? ORDER BY id", (tenant_id,))
    pairs = np.fromiter((number for row in rows for number in row), dtype=np.int64).reshape(-1, 2)
    ids, repositories = pairs[:, 0].copy(), pairs[:, 1].copy()
    vectors = np.empty((len(ids), dimension), dtype=np.float32)
    new = np.ones(len(ids), dtype=bool)
    if previous is not None:
        _, here, there = np.intersect1d(ids, previous.chunk_ids, assume_unique=True, return_indices=True)
        vectors[here] = previous.vectors[there]
        new[here] = False
    _fill(connection, tenant_id, ids, np.flatnonzero(new), vectors)
    return TenantMatrix(version, ids, repositories, vectors)


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
