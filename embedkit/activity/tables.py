"""The ledger's tables, and every statement on them. Functions of a connection, run inside a transaction.

Instants on disk are wall-clock seconds since the epoch: trio's clock means nothing to another process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from embedkit.activity.process import Process, is_dead
from embedkit.activity.report import Group, ReportRow, Tally, report_rows
from embedkit.activity.rows import UNKNOWN, AttemptRow, TicketRow
from embedkit.clocks import Clocks
from embedkit.errors import durable_code

if TYPE_CHECKING:
    import sqlite3

COMPONENT: Final = "activity"
Record = tuple[Any, ...]

# Seconds without a sign of life after which a writer on another host, which cannot be asked, counts as ended.
# Should it live after all, its next batch writes its rows as they are.
_SILENCE = 86_400.0

_FIRST = """
CREATE TABLE activity_writers (
    id INTEGER PRIMARY KEY,
    host TEXT NOT NULL, boot TEXT NOT NULL, pid INTEGER NOT NULL, started TEXT NOT NULL,
    opened_at REAL NOT NULL, seen_at REAL NOT NULL, ended_at REAL
);
CREATE TABLE activity_tickets (
    id INTEGER PRIMARY KEY,
    writer INTEGER NOT NULL REFERENCES activity_writers (id) ON DELETE CASCADE, ticket INTEGER NOT NULL,
    lane TEXT NOT NULL, service TEXT NOT NULL, stage TEXT NOT NULL, role TEXT NOT NULL, provider TEXT NOT
    NULL, model TEXT NOT NULL, class TEXT NOT NULL, tenant TEXT, run TEXT, weight INTEGER NOT NULL, inputs
    INTEGER NOT NULL, disposition TEXT NOT NULL, enqueued_at REAL NOT NULL, dispatched_at REAL, settled_at
    REAL, queue_wait REAL, provider_time REAL, retry_wait REAL, outcome TEXT NOT NULL, failure_stage TEXT,
    code TEXT, attribution TEXT, detached INTEGER NOT NULL, attempts INTEGER NOT NULL, UNIQUE (writer, ticket)
);
CREATE INDEX activity_open ON activity_tickets (writer) WHERE settled_at IS NULL;
CREATE TABLE activity_attempts (
    writer INTEGER NOT NULL, ticket INTEGER NOT NULL, number INTEGER NOT NULL,
    started_at REAL NOT NULL, ended_at REAL, code TEXT, status INTEGER, retry_delay REAL,
    PRIMARY KEY (writer, ticket, number),
    FOREIGN KEY (writer, ticket) REFERENCES activity_tickets (writer, ticket) ON DELETE CASCADE
) WITHOUT ROWID;
"""
STEPS: Final = (_FIRST,)

_UPSERT_TICKET = """
INSERT INTO activity_tickets (writer, ticket, lane, service, stage, role, provider, model, class, tenant, run,
    weight, inputs, disposition, enqueued_at, dispatched_at, settled_at, queue_wait, provider_time,
    retry_wait, outcome, failure_stage, code, attribution, detached, attempts)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (writer, ticket) DO UPDATE SET dispatched_at = excluded.dispatched_at,
    settled_at = excluded.settled_at, queue_wait = excluded.queue_wait, provider_time =
    excluded.provider_time, retry_wait = excluded.retry_wait, outcome = excluded.outcome, failure_stage =
    excluded.failure_stage, code = excluded.code, attribution = excluded.attribution, detached =
    excluded.detached, attempts = excluded.attempts
"""
_UPSERT_ATTEMPT = """
INSERT INTO activity_attempts (writer, ticket, number, started_at, ended_at, code, status, retry_delay)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (writer, ticket, number) DO UPDATE SET ended_at = excluded.ended_at, code = excluded.code,
    status = excluded.status, retry_delay = excluded.retry_delay
"""
_REAP = """
UPDATE activity_tickets
SET outcome = CASE WHEN dispatched_at IS NULL THEN 'abandoned' ELSE 'unsettled' END,
    settled_at = max(enqueued_at, coalesce(dispatched_at, enqueued_at), ?)
WHERE writer = ? AND settled_at IS NULL
"""
_REPORT = """
SELECT service, stage, role, provider, model, class, disposition,
    outcome, settled_at, enqueued_at, dispatched_at, attempts, queue_wait, provider_time, retry_wait
FROM activity_tickets
"""


def ticket_record(writer: int, row: TicketRow) -> Record:
    """``row`` as it stands now, for ``write_rows``. Clocks are written once they are final."""
    clocks = row.clocks if row.settled_at is not None else None
    return (
        writer,
        row.id,
        row.lane,
        row.service,
        row.stage,
        row.role,
        row.provider,
        row.model,
        row.priority,
        row.tenant,
        row.run,
        row.weight,
        row.inputs,
        row.disposition,
        row.opened_wall,
        _wall(row, row.dispatched_at),
        _wall(row, row.settled_at),
        clocks and clocks.queue_wait,
        clocks and clocks.provider_time,
        clocks and clocks.retry_wait,
        row.outcome,
        row.failure_stage,
        _durable(row.code),
        row.attribution,
        row.detached,
        len(row.attempts),
    )


def attempt_record(writer: int, row: TicketRow, attempt: AttemptRow) -> Record:
    """``attempt`` of ``row`` as it stands now."""
    return (
        writer,
        row.id,
        attempt.number,
        _wall(row, attempt.started_at),
        _wall(row, attempt.ended_at),
        _durable(attempt.code),
        attempt.status,
        attempt.retry_delay,
    )


def add_writer(process: Process, now: float, connection: sqlite3.Connection) -> int:
    """Enter a writer; returns the id under which its rows stand."""
    cursor = connection.execute(
        "INSERT INTO activity_writers (host, boot, pid, started, opened_at, seen_at) VALUES (?, ?, ?, ?, ?, ?)",
        (process.host, process.boot, process.pid, process.started, now, now),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def end_writer(writer: int, now: float, connection: sqlite3.Connection) -> None:
    """The writer says goodbye: what is open of it from now on was left behind."""
    connection.execute("UPDATE activity_writers SET ended_at = ? WHERE id = ?", (now, writer))


def write_rows(
    writer: int,
    tickets: Sequence[Record],
    attempts: Sequence[Record],
    keep: int,
    now: float,
    connection: sqlite3.Connection,
) -> None:
    """Enter or bring up to date, and let the oldest tickets beyond ``keep`` go."""
    connection.executemany(_UPSERT_TICKET, tickets)
    connection.executemany(_UPSERT_ATTEMPT, attempts)
    # Whoever writes lives, though it may have been taken for dead.
    connection.execute("UPDATE activity_writers SET seen_at = ?, ended_at = NULL WHERE id = ?", (now, writer))
    # Ids ascend, so this finds the surplus without counting.
    connection.execute("DELETE FROM activity_tickets WHERE id <= (SELECT max(id) FROM activity_tickets) - ?", (keep,))


def forget_before(instant: float, connection: sqlite3.Connection) -> None:
    """Let tickets that were enqueued before ``instant`` go, and writers of which nothing is left."""
    connection.execute("DELETE FROM activity_tickets WHERE enqueued_at < ?", (instant,))
    connection.execute(
        "DELETE FROM activity_writers WHERE ended_at IS NOT NULL"
        " AND NOT EXISTS (SELECT 1 FROM activity_tickets WHERE writer = activity_writers.id)"
    )


def reap(here: Process, now: float, connection: sqlite3.Connection) -> int:
    """Settle what ended writers left open: ``abandoned`` if it was never dispatched, else ``unsettled``.

    It counts as settled when its writer was last seen; its clocks are not known and stay empty.

    Returns:
        How many tickets.
    """
    reaped = 0
    for writer, host, boot, pid, started, seen_at, ended_at in connection.execute(
        "SELECT id, host, boot, pid, started, seen_at, ended_at FROM activity_writers"
    ).fetchall():
        if ended_at is None:
            silent = host != here.host and now - seen_at > _SILENCE
            if not silent and not is_dead(Process(host, boot, pid, started), here):
                continue
            end_writer(writer, seen_at, connection)
        reaped += connection.execute(_REAP, (seen_at, writer)).rowcount
    return reaped


def report(connection: sqlite3.Connection) -> tuple[ReportRow, ...]:
    """Every group of the tickets that are kept."""
    tallies: dict[tuple[str, ...], Tally] = {}
    for record in connection.execute(_REPORT):
        key = record[:7]
        tally = tallies.get(key)
        if tally is None:
            tally = tallies[key] = Tally(Group(*key))
        _count(tally, *record[7:])
    return report_rows(tallies.values())


def _count(
    tally: Tally,
    outcome: str,
    settled_at: float | None,
    enqueued_at: float,
    dispatched_at: float | None,
    attempts: int,
    queue_wait: float | None,
    provider_time: float,
    retry_wait: float,
) -> None:
    tally.calls += attempts
    tally.last_seen = max(tally.last_seen, enqueued_at, settled_at or 0.0)
    if settled_at is None:
        if dispatched_at is None:
            tally.queued += 1
        else:
            tally.in_flight += 1
        return
    clocks = None if queue_wait is None else Clocks(queue_wait, provider_time, retry_wait)
    tally.settle(outcome, clocks, dispatched_at is not None)


def _wall(row: TicketRow, instant: float | None) -> float | None:
    return None if instant is None else row.wall(instant)


def _durable(code: str | None) -> str | None:
    return code if code is None or code == UNKNOWN else durable_code(code)


def oldest_waiting(connection: sqlite3.Connection) -> dict[str, float]:
    """When the longest waiting ticket of each lane was offered."""
    return dict(
        connection.execute(
            "SELECT lane, min(enqueued_at) FROM activity_tickets"
            " WHERE dispatched_at IS NULL AND settled_at IS NULL GROUP BY lane"
        ).fetchall()
    )
