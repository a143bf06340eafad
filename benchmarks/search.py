"""Search over 50,000 chunks beside a bare numpy product: ``python -m benchmarks.search``.

What is measured is ``SqliteStore.nearest`` as a search calls it: a worker thread, a read transaction that looks whether
the store has changed, the product, the partial sort, the hits in order. The bare one is a product and numpy's
``argpartition`` over a matrix of the same numbers, in the calling thread. Full text has no part in it.

The store is filled in a process of its own, so that the one that measures has held nothing yet. Memory is what becomes
resident with the first search; numpy itself is there before.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import attrs
import trio

from benchmarks.measure import Figure, ratio, report, resident_bytes, run_child, seconds_of
from benchmarks.random_store import TENANT, Shape, fill, unit_vectors
from embedkit.database import open_database
from embedkit.knowledge.storing.store import SqliteStore

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ROUNDS = 25
QUERIES = 40
COUNT = 100  # a search for ten results asks each of its two lists for as many


@attrs.frozen
class Loading:
    """The first search, which reads the matrix.

    Attributes:
        seconds: What it took.
        grown_bytes: By how much the resident memory grew.
    """

    seconds: float
    grown_bytes: int


async def first_search(store: SqliteStore, query: NDArray[np.float32]) -> Loading:
    """Search once with a store that has read nothing.

    Cancellation:
        Changes nothing.
    """
    await store.tenants()  # a thread, and a connection with its cache: no part of the matrix
    before = resident_bytes()
    began = time.perf_counter()
    await store.nearest(TENANT, query, COUNT)
    return Loading(time.perf_counter() - began, resident_bytes() - before)


async def store_seconds(store: SqliteStore, queries: NDArray[np.float32]) -> float:
    """Seconds for all ``queries``, one after the other, through the store.

    Cancellation:
        Changes nothing.
    """
    began = time.perf_counter()
    for query in queries:
        await store.nearest(TENANT, query, COUNT)
    return time.perf_counter() - began


def bare_nearest(matrix: NDArray[np.float32], query: NDArray[np.float32], count: int) -> NDArray[np.intp]:
    """The baseline: rows of the ``count`` largest products, in no order."""
    import numpy as np

    scores = matrix @ query
    return np.argpartition(scores, len(scores) - count)[len(scores) - count :]


async def share_alike(store: SqliteStore, matrix: NDArray[np.float32], queries: NDArray[np.float32]) -> float:
    """For which share of the queries the store finds the rows that the bare product finds.

    Cancellation:
        Changes nothing.
    """
    alike = 0
    for query in queries:
        found = {number - 1 for number, _ in await store.nearest(TENANT, query, COUNT)}
        alike += found == set(bare_nearest(matrix, query, COUNT).tolist())
    return alike / len(queries)


async def figures(path: Path, shape: Shape, rounds: int = ROUNDS) -> list[Figure]:
    """Measure on the store at ``path``, which ``fill`` made in ``shape``.

    Cancellation:
        Changes nothing.
    """
    queries = unit_vectors(QUERIES, shape.dimension, shape.seed + 1)
    ours: list[float] = []
    bare: list[float] = []
    async with open_database(path, create=False) as database:
        store = SqliteStore(database)
        loading = await first_search(store, queries[0])
        matrix = shape.vectors()
        alike = await share_alike(store, matrix, queries)
        for number in range(rounds):
            if number % 2:
                bare.append(seconds_of(lambda: _bare(matrix, queries)))
                ours.append(await store_seconds(store, queries))
            else:
                ours.append(await store_seconds(store, queries))
                bare.append(seconds_of(lambda: _bare(matrix, queries)))
    return [
        Figure("nearest of the store / bare product and partial sort, seconds", 1.5, ratio(ours, bare), "at most"),
        Figure("memory that the matrix takes / the matrix", 1.3, loading.grown_bytes / shape.bytes, "at most"),
        Figure("share of queries whose nearest are the bare ones", 1.0, alike),
        Figure("one nearest of the store", None, 1000 * median(ours) / QUERIES, unit="ms"),
        Figure("the bare one", None, 1000 * median(bare) / QUERIES, unit="ms"),
        Figure("the first nearest, which reads the matrix", None, 1000 * loading.seconds, unit="ms"),
    ]


def _bare(matrix: NDArray[np.float32], queries: Sequence[NDArray[np.float32]] | NDArray[np.float32]) -> None:
    for query in queries:
        bare_nearest(matrix, query, COUNT)


def main() -> int:
    """Fill a store in a temporary folder and measure; ``--fill PATH`` fills one and ends."""
    if sys.argv[1:2] == ["--fill"]:
        trio.run(fill, Path(sys.argv[2]), Shape())
        return 0
    with tempfile.TemporaryDirectory(prefix="embedkit-bench-") as place:
        path = Path(place, "knowledge.db")
        run_child([sys.executable, "-m", "benchmarks.search", "--fill", str(path)])
        return report("search", trio.run(figures, path, Shape()))


if __name__ == "__main__":
    sys.exit(main())
