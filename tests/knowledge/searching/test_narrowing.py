"""Full text over a large store: what is scored, and that the best are among it."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator

import pytest

from embedkit.knowledge.searching.narrowing import ROWS_SCORED, exact, narrowed
from embedkit.knowledge.searching.words import TOKENIZE

ROWS = 40_000
COMMON = ("alpha", "beta", "gamma", "delta")


@pytest.fixture(scope="module")
def connection() -> Iterator[sqlite3.Connection]:
    """Two tenants take turns; each common word stands in every second row, ``rare`` in every hundredth."""
    draw = random.Random(1)
    held = sqlite3.connect(":memory:")
    held.execute("CREATE TABLE chunks (id INTEGER PRIMARY KEY AUTOINCREMENT)")
    held.execute("INSERT INTO chunks (id) VALUES (?)", (ROWS,))
    held.execute(
        f"""CREATE VIRTUAL TABLE words USING fts5 (tenant, path, symbol, body, content = '', tokenize = "{TOKENIZE}")"""
    )
    held.executemany(
        "INSERT INTO words (rowid, tenant, path, symbol, body) VALUES (?, ?, '', '', ?)",
        (
            (
                number,
                f"t{1 + number % 2}",
                " ".join(
                    [word for word in COMMON if draw.random() < 0.5]
                    + ["rare"] * (draw.random() < 0.01)
                    + [f"w{draw.randrange(500)}" for _ in range(draw.randrange(3, 9))]
                ),
            )
            for number in range(1, ROWS + 1)
        ),
    )
    yield held
    held.close()


def found(connection: sqlite3.Connection, expression: str) -> list[int]:
    rows = connection.execute(
        "SELECT rowid FROM words WHERE words MATCH ? ORDER BY bm25(words, 0.0, 1.0, 4.0, 1.0), rowid", (expression,)
    )
    return [number for (number,) in rows]


def quoted(*words: str) -> list[str]:
    return [f'"{word}"' for word in words]


def test_rows_with_the_rare_word_are_scored_by_all_words(connection: sqlite3.Connection) -> None:
    terms = quoted("rare", *COMMON)
    every = found(connection, exact("t1", terms))
    fewer = narrowed(connection, "t1", terms, 50)
    assert fewer is not None
    some = found(connection, fewer)
    assert 50 <= len(some) < ROWS_SCORED < len(every)
    # The common words tell hardly one row from another: the rows of the rare one come first either way.
    assert set(every[: len(some) // 2]) <= set(some)


def test_of_common_words_alone_the_rows_with_all_of_them_are_scored(connection: sqlite3.Connection) -> None:
    terms = quoted(*COMMON)
    fewer = narrowed(connection, "t1", terms, 50)
    assert fewer is not None
    some = found(connection, fewer)
    assert 50 <= len(some) < len(found(connection, exact("t1", terms))) // 2


def test_no_row_of_another_tenant_is_found(connection: sqlite3.Connection) -> None:
    for words in (COMMON, ("rare", *COMMON), ("rare",)):
        expression = narrowed(connection, "t1", quoted(*words), 50) or exact("t1", quoted(*words))
        assert all(number % 2 == 0 for number in found(connection, expression))


def test_a_query_that_matches_few_rows_is_answered_exactly(connection: sqlite3.Connection) -> None:
    assert narrowed(connection, "t1", quoted("rare", "nowhere"), 50) is None
    assert narrowed(connection, "t3", quoted(*COMMON), 50) is None


def test_an_empty_store_is_answered_exactly() -> None:
    empty = sqlite3.connect(":memory:")
    empty.execute("CREATE TABLE chunks (id INTEGER PRIMARY KEY AUTOINCREMENT)")
    assert narrowed(empty, "t1", quoted("a"), 50) is None
    empty.close()
