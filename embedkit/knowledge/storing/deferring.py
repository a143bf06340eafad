"""The durable log of texts that are to be embedded later. Functions of a connection, in a transaction.

A row is there from the moment that it was deferred until its vector is stored. It is deleted after the vector, so that
a process that dies in between has lost nothing, and finds the vector when it looks again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any, Final

import attrs

from embedkit.database_rows import RowRule, checked_row
from embedkit.knowledge.metadata import checked

if TYPE_CHECKING:
    import sqlite3

COMPONENT: Final = "deferred"

STEPS: Final = (
    """
    CREATE TABLE deferred (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        tenant TEXT NOT NULL, repository TEXT NOT NULL, path TEXT NOT NULL,
        text TEXT NOT NULL, metadata TEXT,
        deferred_at REAL NOT NULL,
        attempts INTEGER NOT NULL DEFAULT 0,  -- that were its own: alone, at an engine that answers others
        not_before REAL NOT NULL DEFAULT 0,  -- its cooldown
        width INTEGER,  -- most records of a ticket that it is in, since a larger one timed out; NULL: as many as may be
        code TEXT  -- of its last own failure
    );
    CREATE INDEX deferred_by_time ON deferred (attempts, not_before);
    """,
)

RULES: Final = (RowRule("deferred", "metadata", "typeof(metadata) != 'text' OR json_valid(metadata)", "is no JSON"),)


@attrs.frozen
class Deferred:
    """A text that waits for its vector.

    Attributes:
        id: Ascending in the order of deferral.
        tenant: Whose.
        repository: Where it goes.
        path: Its document's name there.
        text: What is embedded.
        metadata: Of the document.
        attempts: Failures of its own.
        width: Most records of a ticket that it may be in, or ``None``.
    """

    id: int
    tenant: str
    repository: str
    path: str
    text: str = attrs.field(repr=False)
    metadata: Mapping[str, Any]
    attempts: int
    width: int | None


@attrs.frozen
class DrainStatistics:
    """How the log stands.

    Attributes:
        waiting: Records whose vector is still to be bought.
        given_up: Those that have failed as often as they may, and are kept.
        oldest: Seconds since the oldest of ``waiting`` was deferred; 0 without any.
        codes: How many of ``given_up`` failed by which durable code.
    """

    waiting: int
    given_up: int
    oldest: float
    codes: Mapping[str, int] = attrs.field(factory=dict, hash=False)


def append(
    connection: sqlite3.Connection,
    tenant: str,
    repository: str,
    path: str,
    text: str,
    metadata: Mapping[str, object],
    now: float,
) -> None:
    """Note that ``text`` is to be embedded."""
    held = checked(metadata) if metadata else None
    connection.execute(
        "INSERT INTO deferred (tenant, repository, path, text, metadata, deferred_at) VALUES (?, ?, ?, ?, ?, ?)",
        (tenant, repository, path, text, held, now),
    )


def ready(connection: sqlite3.Connection, most_attempts: int, now: float, count: int) -> list[Deferred]:
    """The oldest records that may be offered now."""
    rows = connection.execute(
        """
        SELECT id, tenant, repository, path, text, metadata, attempts, width FROM deferred
        WHERE attempts < ? AND not_before <= ? ORDER BY id LIMIT ?
        """,
        (most_attempts, now, count),
    )
    return [
        Deferred(number, tenant, repository, path, text, {} if held is None else json.loads(held), attempts, width)
        for number, tenant, repository, path, text, held, attempts, width in (
            checked_row(row, int, str, str, str, str, (str, NoneType), int, (int, NoneType)) for row in rows.fetchall()
        )
    ]


def mark_done(connection: sqlite3.Connection, ids: Iterable[int]) -> None:
    """Their vectors are stored."""
    connection.executemany("DELETE FROM deferred WHERE id = ?", ((number,) for number in ids))


def mark_failed(connection: sqlite3.Connection, number: int, code: str, not_before: float) -> None:
    """A record has failed by itself."""
    connection.execute(
        "UPDATE deferred SET attempts = attempts + 1, code = ?, not_before = ? WHERE id = ?",
        (code, not_before, number),
    )


def narrow(connection: sqlite3.Connection, ids: Iterable[int], width: int) -> None:
    """A ticket with all of these timed out: the next that holds one of them is to hold fewer."""
    connection.executemany("UPDATE deferred SET width = ? WHERE id = ?", ((width, number) for number in ids))


def revive(connection: sqlite3.Connection, most_attempts: int) -> int:
    """Offer what was given up once more; how many."""
    return connection.execute(
        "UPDATE deferred SET attempts = 0, not_before = 0, width = 1 WHERE attempts >= ?", (most_attempts,)
    ).rowcount


def statistics(connection: sqlite3.Connection, most_attempts: int, now: float) -> DrainStatistics:
    """How the log stands."""
    waiting, oldest = connection.execute(
        "SELECT count(*), min(deferred_at) FROM deferred WHERE attempts < ?", (most_attempts,)
    ).fetchone()
    rows = connection.execute(
        "SELECT code, count(*) FROM deferred WHERE attempts >= ? GROUP BY code ORDER BY code", (most_attempts,)
    ).fetchall()
    codes = [checked_row(row, str, int) for row in rows]
    age = 0.0 if oldest is None else max(now - oldest, 0.0)
    return DrainStatistics(waiting, sum(count for _, count in codes), age, dict(codes))
