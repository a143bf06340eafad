"""Search over 50,000 chunks beside a bare numpy product: ``python -m benchmarks.search``.

What is measured is ``SqliteStore.nearest`` as a search calls it: a worker thread, a read transaction that looks whether
the store has changed, the product, the partial sort, the hits in order. The bare one is a product and numpy's
``argpartition`` over a matrix of the same numbers, in the calling thread. Full text has no part in it.

Hybrid search is measured on a store of 300,000 chunks of 40 words each, the n-th word as often as 1/n, beside the same
search by vectors alone: with rare words, with words of all kinds, and with the commonest, which most chunks hold.

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
from benchmarks.random_store import TENANT, Shape, fill, unit_vectors, word
from embedkit.database import open_database
from embedkit.knowledge.searching.search import Mode, Query
from embedkit.knowledge.storing.store import SqliteStore

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ROUNDS = 25
QUERIES = 40
COUNT = 100  # a search for ten results asks each of its two lists for as many
LARGE = Shape(chunks=300_000, seed=300_000, words=40)
LARGE_ROUNDS = 7
# Ranks of the words of each query.
QUERIES_OF: dict[str, list[tuple[int, ...]]] = {
    "rare words": [(1_000 + 37 * n, 3_000 + 41 * n, 8_000 + 43 * n) for n in range(10)],
    "words of all kinds": [(3 * n, 40 + 7 * n, 600 + 37 * n, 5_000 + 41 * n) for n in range(10)],
    "common words alone": [(n % 5, 5 + n % 7, 12 + n % 11, 23 + n) for n in range(10)],
}


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


async def hybrid_figures(path: Path, shape: Shape = LARGE, rounds: int = LARGE_ROUNDS) -> list[Figure]:
    """Hybrid search on the store at ``path``, which ``fill`` made in ``shape``, beside vectors alone.

    Cancellation:
        Changes nothing.
    """
    vectors = unit_vectors(len(next(iter(QUERIES_OF.values()))), shape.dimension, shape.seed + 1)
    found: list[Figure] = []
    async with open_database(path, create=False) as database:
        store = SqliteStore(database)

        async def seconds(mode: Mode, ranks: Sequence[tuple[int, ...]]) -> float:
            began = time.perf_counter()
            for vector, some in zip(vectors, ranks, strict=True):
                text = " ".join(map(word, some))
                hits = await store.search(Query(tenants=(TENANT,), text=text, vector=vector, mode=mode))
                assert len(hits) == Query(tenants=(TENANT,)).k
            return time.perf_counter() - began

        for name, ranks in QUERIES_OF.items():
            await seconds("hybrid", ranks)  # reads the matrix, and warms the database's pages
            hybrid: list[float] = []
            alone: list[float] = []
            for _ in range(rounds):
                hybrid.append(await seconds("hybrid", ranks))
                alone.append(await seconds("vector", ranks))
            found += [
                Figure(f"hybrid / vectors alone, 300,000 chunks, {name}", 3.0, ratio(hybrid, alone), "at most"),
                Figure(f"one hybrid search, {name}", None, 1000 * median(hybrid) / len(ranks), unit="ms"),
                Figure(f"one by vectors alone, {name}", None, 1000 * median(alone) / len(ranks), unit="ms"),
            ]
    return found


def _bare(matrix: NDArray[np.float32], queries: Sequence[NDArray[np.float32]] | NDArray[np.float32]) -> None:
    for query in queries:
        bare_nearest(matrix, query, COUNT)


def main() -> int:
    """Fill stores in a temporary folder and measure; ``--fill PATH`` and ``--fill-large PATH`` fill one and end."""
    if sys.argv[1:2] in (["--fill"], ["--fill-large"]):
        trio.run(fill, Path(sys.argv[2]), Shape() if sys.argv[1] == "--fill" else LARGE)
        return 0
    with tempfile.TemporaryDirectory(prefix="embedkit-bench-") as place:
        path, large = Path(place, "knowledge.db"), Path(place, "large.db")
        run_child([sys.executable, "-m", "benchmarks.search", "--fill", str(path)])
        found = trio.run(figures, path, Shape())
        run_child([sys.executable, "-m", "benchmarks.search", "--fill-large", str(large)])
        return report("search", [*found, *trio.run(hybrid_figures, large)])


if __name__ == "__main__":
    sys.exit(main())
