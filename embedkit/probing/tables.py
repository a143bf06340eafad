"""What processes share about probes: tables in the knowledge base's file, and every statement on them.

Functions of a connection, run inside a transaction. Instants are wall-clock seconds since the epoch. A decision and
what it takes (the flight) are one write transaction, so two processes never both send.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import attrs

from embedkit.activity.process import Process, is_dead
from embedkit.probing.rules import NEVER, WINDOW_MINUTES, ProbeResult, ProbeState, Send, decide, next_result
from embedkit.probing.work import window_start

if TYPE_CHECKING:
    import sqlite3

    from embedkit.probing.rules import Decision
    from embedkit.probing.work import News
    from embedkit.settings import ProbeSettings

COMPONENT: Final = "probes"

_WINDOW = 60.0 * WINDOW_MINUTES

# A flight is a probe that is out. It stands until its holder lands it, dies, or has had all the time there is.
_FIRST = """
CREATE TABLE probe_results (
    engine TEXT PRIMARY KEY, healthy INTEGER NOT NULL, reason TEXT, ended_at REAL NOT NULL, failures INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE probe_flights (
    engine TEXT PRIMARY KEY, holder TEXT NOT NULL, process TEXT NOT NULL, began_at REAL NOT NULL, until REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE probe_calls (engine TEXT NOT NULL, made_at REAL NOT NULL);
CREATE INDEX probe_calls_by_engine ON probe_calls (engine, made_at);
CREATE TABLE probe_work (
    engine TEXT NOT NULL, writer TEXT NOT NULL, process TEXT NOT NULL,
    success_at REAL NOT NULL, slowest REAL NOT NULL, busy_until REAL NOT NULL, told_at REAL NOT NULL,
    PRIMARY KEY (engine, writer)
) WITHOUT ROWID;
CREATE TABLE probe_dispatches (
    engine TEXT NOT NULL, minute INTEGER NOT NULL, writer TEXT NOT NULL, count INTEGER NOT NULL,
    PRIMARY KEY (engine, minute, writer)
) WITHOUT ROWID;
"""
STEPS: Final = (_FIRST,)


@attrs.frozen
class Writer:
    """Who writes: a process, and which of its brokers."""

    id: str
    process: Process


@attrs.frozen
class Claim:
    """What came of asking: the decision, and the state it rests on. After ``Send`` the flight is the writer's."""

    decision: Decision
    state: ProbeState


def claim(
    engine: str,
    writer: Writer,
    news: News,
    rules: ProbeSettings,
    now: float,
    asked_at: float,
    patience: float,
    connection: sqlite3.Connection,
) -> Claim:
    """Tell, decide, and take the flight if a probe is to be sent."""
    tell(engine, writer, news, now, connection)
    _clear_lost_flight(engine, writer, now, connection)
    state = read_state(engine, writer.process, now, connection)
    decision = decide(state, rules, now, asked_at)
    if isinstance(decision, Send):
        connection.execute(
            "INSERT INTO probe_flights VALUES (?, ?, ?, ?, ?)",
            (engine, writer.id, _text(writer.process), now, now + patience),
        )
    return Claim(decision, state)


def land(
    engine: str,
    writer: Writer,
    called_at: float | None,
    outcome: tuple[str | None] | None,
    now: float,
    connection: sqlite3.Connection,
) -> None:
    """The writer's flight is over.

    Args:
        engine: Which engine.
        writer: Whose flight.
        called_at: When the call was made, if one was.
        outcome: What it failed with or ``(None,)``; ``None`` if nothing was learned.
        now: Instant.
        connection: In a write transaction.
    """
    if called_at is not None:
        _count_call(engine, called_at, connection)
    if outcome is not None:
        result = next_result(read_state(engine, writer.process, now, connection), outcome[0], now)
        connection.execute(
            "INSERT OR REPLACE INTO probe_results VALUES (?, ?, ?, ?, ?)", (engine, *attrs.astuple(result))
        )
    connection.execute("DELETE FROM probe_flights WHERE engine = ? AND holder = ?", (engine, writer.id))


def tell(engine: str, writer: Writer, news: News, now: float, connection: sqlite3.Connection) -> None:
    """Enter what the writer has seen of real work; what is out of the window goes."""
    oldest = window_start(now)
    connection.execute(
        "INSERT OR REPLACE INTO probe_work VALUES (?, ?, ?, ?, ?, ?, ?)",
        (engine, writer.id, _text(writer.process), news.success_at, news.slowest, news.busy_until, now),
    )
    connection.executemany(
        "INSERT OR REPLACE INTO probe_dispatches VALUES (?, ?, ?, ?)",
        [(engine, minute, writer.id, count) for minute, count in news.dispatches.items() if minute >= oldest],
    )
    connection.execute("DELETE FROM probe_dispatches WHERE engine = ? AND minute < ?", (engine, oldest))
    connection.execute("DELETE FROM probe_calls WHERE engine = ? AND made_at < ?", (engine, now - _WINDOW))
    connection.execute("DELETE FROM probe_work WHERE told_at < ?", (now - _WINDOW,))


def read_state(
    engine: str, here: Process, now: float, connection: sqlite3.Connection, *, apart_from: str | None = None
) -> ProbeState:
    """All that is known of ``engine`` at ``now``, seen from the process ``here``.

    The writer ``apart_from`` knows better what it has out itself than what it told a while ago.
    """
    success_at, slowest, busy_until = _read_work(engine, here, now, apart_from, connection)
    calls, called_at = connection.execute(
        "SELECT count(*), coalesce(max(made_at), ?) FROM probe_calls WHERE engine = ? AND made_at >= ?",
        (NEVER, engine, now - _WINDOW),
    ).fetchone()
    (dispatches,) = connection.execute(
        "SELECT coalesce(sum(count), 0) FROM probe_dispatches WHERE engine = ? AND minute >= ?",
        (engine, window_start(now)),
    ).fetchone()
    flight = connection.execute("SELECT until, process FROM probe_flights WHERE engine = ?", (engine,)).fetchone()
    out = flight is not None and not is_dead(_process(flight[1]), here)
    return ProbeState(
        result=_read_result(engine, connection),
        success_at=success_at,
        slowest=slowest,
        busy_until=busy_until,
        dispatches=dispatches,
        calls=calls,
        called_at=called_at,
        flight_until=flight[0] if out else NEVER,
    )


def _read_result(engine: str, connection: sqlite3.Connection) -> ProbeResult | None:
    row = connection.execute(
        "SELECT healthy, reason, ended_at, failures FROM probe_results WHERE engine = ?", (engine,)
    ).fetchone()
    return None if row is None else ProbeResult(bool(row[0]), *row[1:])


def _read_work(
    engine: str, here: Process, now: float, apart_from: str | None, connection: sqlite3.Connection
) -> tuple[float, float, float]:
    """Latest success, slowest p95 and furthest ``busy_until`` of all writers; a dead one is busy with nothing."""
    success_at, slowest, busiest = NEVER, 0.0, NEVER
    for writer, succeeded, p95, busy_until, process in connection.execute(
        "SELECT writer, success_at, slowest, busy_until, process FROM probe_work WHERE engine = ?", (engine,)
    ):
        success_at = max(success_at, succeeded)
        slowest = max(slowest, p95)
        if busy_until > max(now, busiest) and writer != apart_from and not is_dead(_process(process), here):
            busiest = busy_until
    return success_at, slowest, busiest


def _clear_lost_flight(engine: str, writer: Writer, now: float, connection: sqlite3.Connection) -> None:
    """Free the flight of a holder that has died or had its time, or that could not say that it had landed.

    It counts as a call: nobody can tell any more that it was not made.
    """
    row = connection.execute(
        "SELECT holder, until, began_at, process FROM probe_flights WHERE engine = ?", (engine,)
    ).fetchone()
    if row is None:
        return
    holder, until, began_at, process = row
    # A broker has one flight at a time, so one of its own that still stands here is an old one.
    if holder == writer.id or until <= now or is_dead(_process(process), writer.process):
        connection.execute("DELETE FROM probe_flights WHERE engine = ?", (engine,))
        _count_call(engine, began_at, connection)


def _count_call(engine: str, made_at: float, connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO probe_calls VALUES (?, ?)", (engine, made_at))


def _text(process: Process) -> str:
    return json.dumps(attrs.asdict(process))


def _process(text: str) -> Process:
    return Process(**json.loads(text))
