"""The ledger's tables, and every statement on them. Functions of a connection, run inside a transaction.

Instants on disk are wall-clock seconds since the epoch: trio's clock means nothing to another process.

Tests: tests/activity/test_tables.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from embedkit.activity.process import Process, can_be_asked, is_dead
from embedkit.activity.records import Records
from embedkit.activity.report import Group, ReportRow, Tally, report_rows
from embedkit.activity.snapshots import StoredLane, stored_lane
from embedkit.clocks import Clocks

if TYPE_CHECKING:
    import sqlite3

COMPONENT: Final = "activity"
_DAY = 86_400.0
# Seconds without a sign of life after which a writer on another host, which cannot be asked, counts as ended. If it is
# alive after all, its next batch writes its rows as they are.
_SILENCE = _DAY
# Seconds of silence after which what such a writer wrote of its lanes is not shown as the state of now.
_SHOWN_SILENCE = 600.0
# What is too old is measured against the newest rows, from the last of this many different days: see ``forget``.
_WITNESSES = 3

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
_SECOND = """
CREATE TABLE activity_lanes (
    writer INTEGER NOT NULL REFERENCES activity_writers (id) ON DELETE CASCADE, lane TEXT NOT NULL,
    at REAL NOT NULL, snapshot TEXT NOT NULL, PRIMARY KEY (writer, lane)
) WITHOUT ROWID;
"""
STEPS: Final = (_FIRST, _SECOND)

# The parameters are in the order of ``records.ticket_record``.
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
# The parameters are in the order of ``records.attempt_record``.
_UPSERT_ATTEMPT = """
INSERT INTO activity_attempts (writer, ticket, number, started_at, ended_at, code, status, retry_delay)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (writer, ticket, number) DO UPDATE SET ended_at = excluded.ended_at, code = excluded.code,
    status = excluded.status, retry_delay = excluded.retry_delay
"""
_UPSERT_LANE = """
INSERT INTO activity_lanes (writer, lane, at, snapshot) VALUES (?, ?, ?, ?)
ON CONFLICT (writer, lane) DO UPDATE SET at = excluded.at, snapshot = excluded.snapshot
"""
_LANES = """
SELECT host, boot, pid, started, seen_at, lane, at, snapshot
FROM activity_lanes JOIN activity_writers ON id = writer
WHERE ended_at IS NULL ORDER BY lane, writer
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


class WriterForgotten(Exception):
    """The writer's own row is gone: it was silent for so long that another process took it for dead and forgot it."""


def add_writer(process: Process, now: float, connection: sqlite3.Connection) -> int:
    """Add a writer; returns the id that its rows carry."""
    cursor = connection.execute(
        "INSERT INTO activity_writers (host, boot, pid, started, opened_at, seen_at) VALUES (?, ?, ?, ?, ?, ?)",
        (process.host, process.boot, process.pid, process.started, now, now),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def end_writer(writer: int, now: float, connection: sqlite3.Connection) -> None:
    """Mark the writer as ended: rows of it that are still open were left behind, and it has no lanes any more."""
    connection.execute("DELETE FROM activity_lanes WHERE writer = ?", (writer,))
    connection.execute("UPDATE activity_writers SET ended_at = ? WHERE id = ?", (now, writer))


def write_rows(
    writer: int, rows: Sequence[Records], keep: int, now: float, connection: sqlite3.Connection
) -> list[Exception]:
    """Insert or update ``rows``, and delete the oldest tickets beyond ``keep``.

    Returns:
        Why rows were refused, one error for each; the others are stored.

    Raises:
        WriterForgotten: There is no such writer. Nothing was stored.
        sqlite3.Error: The file's failure, not a row's. Nothing was stored.
    """
    # A writer that writes is alive, even if another process has taken it for dead. First of all, because without this
    # row every row of a batch would break its foreign key, for ever, and none of them would be at fault.
    seen = connection.execute("UPDATE activity_writers SET seen_at = ?, ended_at = NULL WHERE id = ?", (now, writer))
    if seen.rowcount == 0:
        raise WriterForgotten
    refused: list[Exception] = []
    if _refusal(rows, connection) is not None:
        refused = [error for row in rows if (error := _refusal([row], connection)) is not None]
    # Ids ascend, so this finds the surplus without counting.
    connection.execute("DELETE FROM activity_tickets WHERE id <= (SELECT max(id) FROM activity_tickets) - ?", (keep,))
    return refused


def write_snapshots(
    writer: int, snapshots: Mapping[str, str], now: float, connection: sqlite3.Connection
) -> list[Exception]:
    """Insert or update the snapshots of the writer's lanes, in the transaction that has just stored its rows.

    Returns:
        Why snapshots were refused, one error for each. No failure here costs the rows, if SQLite has not given up the
        whole transaction.

    Raises:
        sqlite3.Error: It has: nothing was stored, the rows neither.
    """
    import sqlite3

    refused: list[Exception] = []
    for lane, text in snapshots.items():
        connection.execute("SAVEPOINT activity_snapshot")
        try:
            connection.execute(_UPSERT_LANE, (writer, lane, now, text))
        except (sqlite3.Error, OverflowError, ValueError, TypeError) as error:
            if not connection.in_transaction:
                raise
            connection.execute("ROLLBACK TO activity_snapshot")
            refused.append(error)
        connection.execute("RELEASE activity_snapshot")
    return refused


def _refusal(rows: Sequence[Records], connection: sqlite3.Connection) -> Exception | None:
    """Store all of ``rows``, or none if one of them is at fault: then why."""
    import sqlite3

    # Errors about a value: of a wrong type, too large, not to be encoded, against a constraint. A full disk, a lock, a
    # missing table and a damaged file are OperationalError and DatabaseError itself: nobody's row is at fault.
    at_fault = (sqlite3.DataError, sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError)
    connection.execute("SAVEPOINT activity_rows")
    try:
        connection.executemany(_UPSERT_TICKET, [row.ticket for row in rows])
        connection.executemany(_UPSERT_ATTEMPT, [attempt for row in rows for attempt in row.attempts])
    except (*at_fault, OverflowError, ValueError, TypeError) as error:
        connection.execute("ROLLBACK TO activity_rows")
        return error
    finally:
        # Some failures of the file end the transaction themselves, and the savepoint with it.
        if connection.in_transaction:
            connection.execute("RELEASE activity_rows")
    return None


def forget(now: float, keep_seconds: float, connection: sqlite3.Connection) -> None:
    """Delete tickets that are older than ``keep_seconds``, and writers of which nothing is left.

    Age is measured from ``now``, but not from later than the ``_WITNESSES``-th newest day on which tickets were
    recorded. One reading of a clock is no evidence: a clock that is 40 days ahead for a moment, at a start or while it
    writes rows, makes one such day (two around midnight) and deletes nothing. In return a ticket stays as much longer
    as the newest days are apart: two days where there is work every day.
    """
    days = connection.execute(
        "SELECT DISTINCT CAST(enqueued_at / ? AS INTEGER) AS day FROM activity_tickets ORDER BY day DESC LIMIT ?",
        (_DAY, _WITNESSES),
    ).fetchall()
    if len(days) == _WITNESSES:
        (oldest_witness,) = days[-1]
        forget_before(min(now, oldest_witness * _DAY) - keep_seconds, connection)
    forget_writers(connection)


def forget_before(instant: float, connection: sqlite3.Connection) -> None:
    """Delete tickets that were enqueued before ``instant``."""
    connection.execute("DELETE FROM activity_tickets WHERE enqueued_at < ?", (instant,))


def forget_writers(connection: sqlite3.Connection) -> None:
    """Delete ended writers that have no tickets left."""
    connection.execute(
        "DELETE FROM activity_writers WHERE ended_at IS NOT NULL"
        " AND NOT EXISTS (SELECT 1 FROM activity_tickets WHERE writer = activity_writers.id)"
    )


def reap(here: Process, now: float, connection: sqlite3.Connection) -> int:
    """Settle what ended writers left open: ``abandoned`` if it was never dispatched, else ``unsettled``.

    The settlement gets the time at which the writer was last seen. The clocks are not known and stay empty.

    Returns:
        The number of tickets.
    """
    reaped = 0
    for writer, host, boot, pid, started, seen_at, ended_at in connection.execute(
        "SELECT id, host, boot, pid, started, seen_at, ended_at FROM activity_writers"
    ).fetchall():
        if ended_at is None:
            if not _is_gone(Process(host, boot, pid, started), here, now - seen_at, _SILENCE):
                continue
            end_writer(writer, seen_at, connection)
        reaped += connection.execute(_REAP, (seen_at, writer)).rowcount
    return reaped


def _is_gone(process: Process, here: Process, silent_for: float, patience: float) -> bool:
    """Whether a writer has ended, or counts as ended: one elsewhere cannot be asked, and is given ``patience``."""
    return is_dead(process, here) or (not can_be_asked(process, here) and silent_for > patience)


def lanes(here: Process, now: float, connection: sqlite3.Connection) -> tuple[StoredLane, ...]:
    """The lanes of the writers that live, as each last wrote them down.

    A writer on this machine is asked whether it lives, so its snapshot counts however old it is: a lane that changes is
    written. One elsewhere that has written nothing for ten minutes is left out.
    """
    found = [
        stored_lane(lane, host, pid, at, text)
        for host, boot, pid, started, seen_at, lane, at, text in connection.execute(_LANES).fetchall()
        if not _is_gone(Process(host, boot, pid, started), here, now - seen_at, _SHOWN_SILENCE)
    ]
    return tuple(lane for lane in found if lane is not None)


def report(connection: sqlite3.Connection) -> tuple[ReportRow, ...]:
    """Every group of the stored tickets."""
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
    provider_time: float | None,
    retry_wait: float | None,
) -> None:
    tally.calls += attempts
    tally.last_seen = max(tally.last_seen, enqueued_at, settled_at or 0.0)
    if settled_at is None:
        if dispatched_at is None:
            tally.queued += 1
        else:
            tally.in_flight += 1
        return
    clocks = None
    if queue_wait is not None and provider_time is not None and retry_wait is not None:
        clocks = Clocks(queue_wait, provider_time, retry_wait)
    tally.settle(outcome, clocks, dispatched_at is not None)


def oldest_waiting(connection: sqlite3.Connection) -> dict[str, float]:
    """When the ticket that has waited longest in each lane was offered."""
    return dict(
        connection.execute(
            "SELECT lane, min(enqueued_at) FROM activity_tickets"
            " WHERE dispatched_at IS NULL AND settled_at IS NULL GROUP BY lane"
        ).fetchall()
    )
