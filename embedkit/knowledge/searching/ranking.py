"""Ranking: two lists of hits become one, by weighted reciprocal rank fusion. Pure.

A hit at rank r of a list adds ``weight / (RANK_OFFSET + r)`` to its chunk's score (Cormack, Clarke and Buettcher,
"Reciprocal rank fusion outperforms Condorcet and individual rank learning methods", SIGIR 2009). Ranks are used, not
scores, because a cosine and a BM25 have no common unit.

The paper's form, equal weights and an offset of 60, suits lists of equal worth. Here full text finds the right
function more often than a small static model does, and equal weights pull it down. Mean reciprocal rank over
8 x 1,000 functions of Python's standard library (the corpus is told in ``words``), by offset and share of the text
list; text alone has .626, vectors alone .473. In brackets the lowest margin over text alone among the eight:

======  ============  ============  ============  ============
offset  .5            .6            .7            .8
======  ============  ============  ============  ============
1       .620 (-.018)  .640 (+.007)  .640 (+.011)  .633 (+.007)
2       .616 (-.019)  .636 (+.006)  .640 (+.008)  .633 (+.007)
5       .610 (-.028)  .627 (-.007)  .634 (+.002)  .636 (+.006)
10      .600 (-.036)  .618 (-.016)  .627 (-.010)  .632 (+.000)
60      .586 (-.052)  .597 (-.036)  .606 (-.029)  .616 (-.022)
======  ============  ============  ============  ============

Offset 2 with .7 is also best on the first two sets alone, and stays within .008 of the best for vectors that alone
reach up to .57, so it hangs neither on the drawing nor on one model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import nsmallest

VECTOR_WEIGHT = 0.3
TEXT_WEIGHT = 0.7
RANK_OFFSET = 2

COLUMN_WEIGHTS = (1.0, 4.0, 1.0)
"""What ``bm25()`` weighs the words of a chunk's path, symbol and text.

A name says what code is for, and is short. Mean reciprocal rank of full text alone on the corpus above by the symbol's
weight: .608 at 1, .620 at 2, .626 at 4, .626 at 8."""

CANDIDATES = 100
"""How many hits of each list are worth fusing (50 lose .0003, 20 lose .002); a search for more than this many results
needs as many of each list as it returns."""


def fuse(
    vector_hits: Sequence[tuple[int, float]], text_hits: Sequence[tuple[int, float]], *, k: int
) -> list[tuple[int, float]]:
    """Join two lists of ``(id, score)`` into the best ``k``.

    In both lists a *higher* score is better (so ``-bm25(...)`` for FTS5, whose best is the lowest). The order in which
    hits stand in a list does not matter; equal scores rank by id. One list may be empty: the result then is the order
    of the other.

    Returns:
        ``(id, fused score)``, the score descending, equal scores by id.
    """
    fused: dict[int, float] = {}
    for weight, hits in ((VECTOR_WEIGHT, vector_hits), (TEXT_WEIGHT, text_hits)):
        for rank, hit in enumerate(_ranked(hits), start=1):
            fused[hit] = fused.get(hit, 0.0) + weight / (RANK_OFFSET + rank)
    return nsmallest(k, fused.items(), key=_best_first)


def _ranked(hits: Iterable[tuple[int, float]]) -> Iterable[int]:
    """Ids, best first, each once: at its best place."""
    return dict.fromkeys(hit for hit, _ in sorted(hits, key=_best_first))


def _best_first(hit: tuple[int, float]) -> tuple[float, int]:
    return -hit[1], hit[0]
