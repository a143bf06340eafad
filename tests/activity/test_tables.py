from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedkit.activity import tables
from embedkit.activity.ledger import Ledger
from embedkit.activity.process import Process, this_process
from embedkit.activity.records import Records, records_of
from embedkit.activity.rows import SETTLED_OUTCOMES, TicketRow
from embedkit.clocks import Clocks
from embedkit.errors import ProviderTimeout

HERE = this_process()
GONE = attrs.evolve(HERE, pid=2**22 + 1, started="1")
ELSEWHERE = Process("elsewhere", "", 1, "")
KEEP = 1_000
DAY = 86_400.0


@contextmanager
def empty_tables() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("PRAGMA foreign_keys = ON")
    for step in tables.STEPS:
        connection.executescript(step)
    yield connection
    connection.close()


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with empty_tables() as connection:
        yield connection


def save(connection: sqlite3.Connection, writer: int, *rows: TicketRow, keep: int = KEEP, now: float = 0.0) -> None:
    assert tables.write_rows(writer, [records_of(writer, row) for row in rows], keep, now, connection) == []


def offer(ledger: Ledger, now: float, stage: str = "query", priority: str = "batch") -> TicketRow:
    return ledger.open(
        lane="box",
        service="library",
        stage=stage,
        role="embedding",
        provider="ollama",
        model="minilm",
        priority=priority,
        tenant=None,
        run=None,
        weight=1,
        inputs=1,
        now=now,
    )


def outcomes(connection: sqlite3.Connection) -> list[tuple[int, str]]:
    return connection.execute("SELECT ticket, outcome FROM activity_tickets ORDER BY id").fetchall()


seconds = st.floats(0.0, 1e5)
lives = st.tuples(
    st.sampled_from(["query", "ingestion", "drain"]),
    st.sampled_from(["interactive", "batch"]),
    st.booleans(),
    st.integers(0, 3),
    st.none() | st.sampled_from(SETTLED_OUTCOMES),
    st.builds(Clocks, seconds, seconds, seconds),
)


@given(st.lists(lives, max_size=30))
def test_the_report_from_disk_is_the_report_from_memory(
    told: list[tuple[str, str, bool, int, str | None, Clocks]],
) -> None:
    now = 0.0
    ledger = Ledger(wall_clock=lambda: now)
    with empty_tables() as connection:
        writer = tables.add_writer(HERE, now, connection)
        for stage, priority, dispatched, attempts, outcome, clocks in told:
            row = offer(ledger, now, stage, priority)
            save(connection, writer, row)  # an open row is written too, and brought up to date later
            if dispatched:
                ledger.dispatched(row, now)
                for number in range(1, attempts + 1):
                    ledger.attempt_ended(ledger.attempt_started(row, number, now), now)
            now += 1.0
            if outcome is not None:
                ledger.settled(row, now, outcome=outcome, clocks=clocks)
            save(connection, writer, row)
        assert tables.report(connection) == ledger.report()


def test_a_row_on_disk_says_when_by_the_wall_clock_and_why_by_the_durable_code(connection: sqlite3.Connection) -> None:
    ledger = Ledger(wall_clock=lambda: 1_000_000.0)
    row = offer(ledger, 50.0)
    ledger.dispatched(row, 52.0)
    attempt = ledger.attempt_started(row, 1, 52.0)
    ledger.attempt_ended(attempt, 55.0, code=ProviderTimeout.code, status=504, retry_delay=1.5)
    ledger.settled(row, 55.0, outcome="failed", clocks=Clocks(2.0, 3.0, 0.0), code=ProviderTimeout.code, detached=True)
    save(connection, tables.add_writer(HERE, 0.0, connection), row)
    assert connection.execute(
        "SELECT enqueued_at, dispatched_at, settled_at, queue_wait, provider_time, retry_wait, code, attribution,"
        " detached, attempts FROM activity_tickets"
    ).fetchall() == [
        (1_000_000.0, 1_000_002.0, 1_000_005.0, 2.0, 3.0, 0.0, "KB_VECTOR_EMBED_PROVIDER_TIMEOUT", "provider", 1, 1)
    ]
    assert connection.execute(
        "SELECT number, started_at, ended_at, code, status, retry_delay FROM activity_attempts"
    ).fetchall() == [(1, 1_000_002.0, 1_000_005.0, "KB_VECTOR_EMBED_PROVIDER_TIMEOUT", 504, 1.5)]


def test_prose_in_place_of_a_code_does_not_reach_the_disk(connection: sqlite3.Connection) -> None:
    ledger = Ledger()
    row = offer(ledger, 0.0)
    attempt = ledger.attempt_started(row, 1, 0.0)
    ledger.attempt_ended(attempt, 1.0, code="401 for https://user:secret@host")
    ledger.settled(row, 1.0, outcome="failed", clocks=Clocks(0, 0, 0), code="could not embed 'dear diary'")
    save(connection, tables.add_writer(HERE, 0.0, connection), row)
    dump = "\n".join(connection.iterdump())
    assert "secret" not in dump
    assert "diary" not in dump
    assert dump.count("'unknown'") == 2


def open_pair(connection: sqlite3.Connection, process: Process) -> int:
    """A writer with a queued ticket (1), one in flight (2) and one that succeeded (3)."""
    ledger = Ledger(wall_clock=lambda: 100.0)
    rows = [offer(ledger, 0.0) for _ in range(3)]
    for row in rows[1:]:
        ledger.dispatched(row, 1.0)
    ledger.settled(rows[2], 2.0, outcome="succeeded", clocks=Clocks(1.0, 1.0, 0.0))
    writer = tables.add_writer(process, 100.0, connection)
    save(connection, writer, *rows, now=150.0)
    return writer


OPEN = [(1, "queued"), (2, "in-flight"), (3, "succeeded")]
REAPED = [(1, "abandoned"), (2, "unsettled"), (3, "succeeded")]


def test_a_crashed_process_leaves_abandoned_and_unsettled_rows(connection: sqlite3.Connection) -> None:
    open_pair(connection, GONE)
    assert tables.reap(HERE, 200.0, connection) == 2
    assert outcomes(connection) == REAPED
    assert connection.execute("SELECT settled_at FROM activity_tickets ORDER BY id").fetchall() == [
        (150.0,),
        (150.0,),
        (102.0,),
    ]
    (report,) = tables.report(connection)
    assert (report.queued, report.in_flight) == (0, 0)
    assert report.outcomes == {"abandoned": 1, "succeeded": 1, "unsettled": 1}
    assert report.provider_time.max == 1.0  # nothing is made up for what was not measured
    assert tables.reap(HERE, 200.0, connection) == 0


def test_a_living_process_is_left_alone(connection: sqlite3.Connection) -> None:
    open_pair(connection, HERE)
    assert tables.reap(HERE, 1e9, connection) == 0
    assert outcomes(connection) == OPEN


def test_what_a_writer_left_open_when_it_said_goodbye_is_reaped(connection: sqlite3.Connection) -> None:
    tables.end_writer(open_pair(connection, HERE), 160.0, connection)
    assert tables.reap(HERE, 200.0, connection) == 2
    assert outcomes(connection) == REAPED


def test_a_process_elsewhere_is_gone_after_a_day_of_silence_and_may_come_back(connection: sqlite3.Connection) -> None:
    writer = open_pair(connection, ELSEWHERE)
    assert tables.reap(HERE, 150.0 + 86_000.0, connection) == 0
    assert tables.reap(HERE, 150.0 + 87_000.0, connection) == 2
    ledger = Ledger()
    row = offer(ledger, 0.0)
    ledger.settled(row, 90_000.0, outcome="failed", clocks=Clocks(90_000.0, 0.0, 0.0), code="AUTH")
    save(connection, writer, row, now=90_000.0)
    assert outcomes(connection)[0] == (1, "failed")
    save(connection, writer, offer(ledger, 90_000.0), now=90_000.0)
    assert tables.reap(HERE, 90_001.0, connection) == 0


def test_the_oldest_tickets_beyond_the_limit_go_with_their_attempts(connection: sqlite3.Connection) -> None:
    ledger = Ledger()
    writer = tables.add_writer(HERE, 0.0, connection)
    for start in range(0, 60, 20):
        rows = [offer(ledger, float(start)) for _ in range(20)]
        for row in rows:
            ledger.attempt_started(row, 1, 0.0)
        save(connection, writer, *rows, keep=30)
    kept = list(range(31, 61))
    assert [ticket for ticket, _ in outcomes(connection)] == kept
    assert [ticket for (ticket,) in connection.execute("SELECT ticket FROM activity_attempts")] == kept


def test_old_tickets_go_and_writers_of_which_nothing_is_left(connection: sqlite3.Connection) -> None:
    old, new, idle = (tables.add_writer(process, 0.0, connection) for process in (GONE, GONE, HERE))
    now = 10.0
    ledger = Ledger(wall_clock=lambda: now)
    save(connection, old, offer(ledger, 0.0))
    now = 20.0
    save(connection, new, offer(ledger, 0.0))
    for writer in (old, new):
        tables.end_writer(writer, 30.0, connection)
    tables.forget_before(15.0, connection)
    tables.forget_writers(connection)
    assert [row[0] for row in connection.execute("SELECT writer FROM activity_tickets")] == [new]
    assert [row[0] for row in connection.execute("SELECT id FROM activity_writers")] == [new, idle]


def spoiled(records: Records) -> Records:
    return attrs.evolve(records, ticket=(*records.ticket[:-1], object()))


@given(st.lists(st.booleans(), max_size=12))
def test_a_row_that_the_file_refuses_costs_itself_alone(good: list[bool]) -> None:
    ledger = Ledger()
    with empty_tables() as connection:
        writer = tables.add_writer(HERE, 0.0, connection)
        rows = []
        for is_good in good:
            row = offer(ledger, 0.0)
            ledger.attempt_started(row, 1, 0.0)
            records = records_of(writer, row)
            rows.append(records if is_good else spoiled(records))
        connection.execute("BEGIN")
        refused = tables.write_rows(writer, rows, KEEP, 0.0, connection)
        connection.execute("COMMIT")
        kept = [number for number, is_good in enumerate(good, 1) if is_good]
        assert [ticket for ticket, _ in outcomes(connection)] == kept
        assert connection.execute("SELECT ticket FROM activity_attempts").fetchall() == [(ticket,) for ticket in kept]
        assert len(refused) == good.count(False)


def test_an_attempt_that_the_file_refuses_takes_its_ticket_along(connection: sqlite3.Connection) -> None:
    writer = tables.add_writer(HERE, 0.0, connection)
    row = offer(Ledger(), 0.0)
    records = attrs.evolve(records_of(writer, row), attempts=((writer, row.id, 1, None, None, None, None, None),))
    (error,) = tables.write_rows(writer, [records], KEEP, 0.0, connection)
    assert isinstance(error, sqlite3.IntegrityError)
    assert outcomes(connection) == []


def test_a_failure_of_the_file_is_no_fault_of_a_row(connection: sqlite3.Connection) -> None:
    writer = tables.add_writer(HERE, 0.0, connection)
    connection.execute("DROP TABLE activity_attempts")
    row = offer(Ledger(), 0.0)
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        tables.write_rows(writer, [records_of(writer, row)], KEEP, 0.0, connection)


def test_a_writer_that_is_not_there_writes_nothing(connection: sqlite3.Connection) -> None:
    with pytest.raises(tables.WriterForgotten):
        save(connection, 7, offer(Ledger(), 0.0))
    assert outcomes(connection) == []


@pytest.mark.parametrize("number", [None, "one", 2**70])
def test_an_attempt_without_a_number_is_left_out_and_its_ticket_is_stored(
    connection: sqlite3.Connection, number: Any
) -> None:
    ledger = Ledger()
    row = offer(ledger, 0.0)
    ledger.attempt_started(row, number, 0.0)
    ledger.attempt_started(row, 2, 0.0)
    save(connection, tables.add_writer(HERE, 0.0, connection), row)
    assert connection.execute("SELECT number FROM activity_attempts").fetchall() == [(2,)]


@given(st.lists(st.floats(0.0, 100.0), max_size=20), st.floats(-50.0, 150.0))
def test_forgetting_goes_by_the_third_newest_day_or_the_clock_whichever_is_earlier(
    days: list[float], now: float
) -> None:
    with empty_tables() as connection:
        writer = tables.add_writer(HERE, 0.0, connection)
        for day in days:
            save(connection, writer, offer(Ledger(wall_clock=lambda: day * DAY), 0.0))  # noqa: B023  # called at once
            connection.execute("UPDATE activity_tickets SET ticket = -id")
        tables.forget(now * DAY, 30 * DAY, connection)
        kept = [at for (at,) in connection.execute("SELECT enqueued_at FROM activity_tickets ORDER BY 1")]
    witnesses = sorted({int(day * DAY / DAY) for day in days}, reverse=True)[:3]
    horizon = min(now * DAY, witnesses[2] * DAY) - 30 * DAY if len(witnesses) == 3 else float("-inf")
    assert kept == sorted(day * DAY for day in days if day * DAY >= horizon)
