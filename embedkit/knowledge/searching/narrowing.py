"""Which rows full text has to score: of a query of common words not all that share one.

BM25 is computed for each row that matches, and of 300,000 chunks nearly all share a word with a sentence of common
ones: 270 ms where the vectors take 30. The best rows hold the rarest words, or several of the common ones together.
So where a query matches more than ``ROWS_SCORED`` rows, a row must hold one of the rare words, or the rarest of the
common ones side by side. The other words are optional, and add to the score of what is found as before, but for those
that stand in every fourth row: they tell hardly a row from another, and ``bm25()`` counts all rows of each word that it
is given. How common a word is with the tenant is estimated from a few windows of the index. A query that matches fewer
rows is answered exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    import sqlite3

ROWS_SCORED = 6_000
_WINDOWS = 4
_WINDOW = 320  # ids
_LEAST_IDS = 16_384  # a smaller store is scored whole
_EVERY = 4
_COLUMNS = "{path symbol body}"


@attrs.frozen
class Sample:
    """Windows of the index in which words are counted.

    Attributes:
        connection: In a read transaction.
        tenant: The tenant's word.
        last: The highest number of a chunk.
    """

    connection: sqlite3.Connection
    tenant: str
    last: int

    def rows(self, terms: str) -> int:
        """About how many rows of the tenant match ``terms``."""
        step = self.last // _WINDOWS
        seen = 0
        for number in range(_WINDOWS):
            start = number * step + (step - _WINDOW) // 2
            (count,) = self.connection.execute(
                "SELECT count(*) FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ?",
                (_matching(self.tenant, terms), start, start + _WINDOW - 1),
            ).fetchone()
            seen += count
        return seen * self.last // (_WINDOWS * _WINDOW)


def exact(tenant: str, terms: Sequence[str]) -> str:
    """An FTS5 expression for the tenant's rows that hold any of ``terms``."""
    return _matching(tenant, " OR ".join(terms))


def narrowed(connection: sqlite3.Connection, tenant: str, terms: Sequence[str], enough: int) -> str | None:
    """An expression for those of the rows that are worth scoring; ``None`` where all are.

    Args:
        connection: In a read transaction.
        tenant: The tenant's word.
        terms: Each quoted as FTS5 wants it.
        enough: How many rows are looked for: fewer may come back, and then ``exact`` is to be asked.
    """
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'chunks'").fetchone()
    last = 0 if row is None else int(row[0])
    if last < _LEAST_IDS:
        return None
    sample = Sample(connection, tenant, last)
    if sample.rows(" OR ".join(terms)) <= ROWS_SCORED:
        return None
    by_rarity = sorted((sample.rows(term), place, term) for place, term in enumerate(terms))
    rare: list[str] = []
    total = 0
    for rows, _, term in by_rarity:
        if total + rows > ROWS_SCORED:
            break
        rare.append(term)
        total += rows
    common = [term for _, _, term in by_rarity[len(rare) :]]
    together: list[str] = []
    if total < 2 * enough:
        together = _together(sample, common, enough)
    required = [*rare, *([f"({' AND '.join(together)})"] if together else [])]
    optional = _within(sample, [each for each in by_rarity[len(rare) :] if each[2] not in together])
    expression = _matching(tenant, " OR ".join(required))
    if not optional:
        return expression
    # The tenant's word is in each of its rows, and weighs nothing: so what stands beside it may be there or not.
    return f'{expression} AND (({_COLUMNS} : ({" OR ".join(optional)})) OR tenant : "{tenant}")'


def _within(sample: Sample, common: Sequence[tuple[int, int, str]]) -> list[str]:
    """As many of the common words, the rarest first, as stand in every fourth row together."""
    chosen: list[str] = []
    total = 0
    for rows, _, term in common:
        total += rows
        if total > sample.last // _EVERY:
            break
        chosen.append(term)
    return chosen


def _together(sample: Sample, common: Sequence[str], enough: int) -> list[str]:
    """The rarest of the common words, so many that few rows hold all of them, and still enough."""
    chosen = list(common[:1])
    rows = sample.rows(chosen[0]) if chosen else 0
    for term in common[1:]:
        if rows <= ROWS_SCORED:
            break
        fewer = sample.rows(" AND ".join([*chosen, term]))
        if fewer >= 4 * enough:
            chosen.append(term)
            rows = fewer
    return chosen


def _matching(tenant: str, terms: str) -> str:
    return f'tenant : "{tenant}" AND ({_COLUMNS} : ({terms}))'
