from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from embedkit.activity.disk import LedgerOnDisk, prepare, read_report
from embedkit.activity.ledger import Ledger
from embedkit.activity.rows import TicketRow
from embedkit.clocks import Clocks
from embedkit.database import Database, open_database


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    async with open_database(tmp_path / "store.sqlite3", busy_timeout=0.05) as database:
        yield database


def offer(ledger: Ledger) -> TicketRow:
    return ledger.open(
        lane="box",
        service="library",
        stage="ingestion",
        role="embedding",
        provider="ollama",
        model="minilm",
        priority="batch",
        tenant="acme",
        run=None,
        weight=1,
        inputs=5,
        now=trio.current_time(),
    )


def complete(ledger: Ledger) -> TicketRow:
    row = offer(ledger)
    now = trio.current_time()
    ledger.dispatched(row, now)
    ledger.attempt_ended(ledger.attempt_started(row, 1, now), now, status=200)
    ledger.settled(row, now, outcome="succeeded", clocks=Clocks(0.0, 0.5, 0.0))
    return row


def stored(connection: sqlite3.Connection) -> list[tuple[int, str]]:
    return connection.execute("SELECT ticket, outcome FROM activity_tickets ORDER BY ticket").fetchall()


def ends(connection: sqlite3.Connection) -> list[bool]:
    return [end is not None for (end,) in connection.execute("SELECT ended_at FROM activity_writers")]


@asynccontextmanager
async def running(disk: LedgerOnDisk, ledger: Ledger) -> AsyncIterator[trio.CancelScope]:
    async with trio.open_nursery() as nursery:
        await nursery.start(disk.run, ledger)
        yield nursery.cancel_scope
        nursery.cancel_scope.cancel()


async def until(condition: Callable[[], bool]) -> None:
    """Worker threads finish in their own time, which no virtual clock knows."""
    for _ in range(1_000_000):
        if condition():
            return
        await trio.lowlevel.checkpoint()
    pytest.fail("it never came to that")


async def test_rows_reach_the_disk_open_and_settled(database: Database, mock_clock: trio.testing.MockClock) -> None:
    ledger, disk = Ledger(), LedgerOnDisk(database)
    before = complete(ledger)
    async with running(disk, ledger):
        await until(lambda: disk.statistics().written == 1)
        waiting = offer(ledger)
        mock_clock.jump(1.0)
        await until(lambda: disk.statistics().written == 2)
        assert await database.read(stored) == [(before.id, "succeeded"), (waiting.id, "queued")]
        assert await read_report(database) == ledger.report()
        ledger.settled(waiting, trio.current_time(), outcome="withdrawn", clocks=Clocks(1.0, 0.0, 0.0))
        mock_clock.jump(1.0)
        await until(lambda: disk.statistics().written == 3)
        assert await database.read(stored) == [(before.id, "succeeded"), (waiting.id, "withdrawn")]
        assert await read_report(database) == ledger.report()


async def test_it_writes_at_most_once_an_interval(database: Database, mock_clock: trio.testing.MockClock) -> None:
    ledger, disk = Ledger(), LedgerOnDisk(database, interval=1.0)
    async with running(disk, ledger):
        complete(ledger)
        await until(lambda: disk.statistics().written == 1)
        for _ in range(5):
            mock_clock.jump(0.125)
            complete(ledger)
            await trio.testing.wait_all_tasks_blocked()
        assert attrs.astuple(disk.statistics()) == (5, 1, 0, 0, 0, 0)
        mock_clock.jump(1.0)
        await until(lambda: disk.statistics().written == 6)


async def test_an_idle_ledger_touches_no_disk(database: Database, autojump_clock: trio.testing.MockClock) -> None:
    disk = LedgerOnDisk(database)
    async with running(disk, Ledger()):
        await trio.sleep(3_600.0)
    assert await database.read(lambda c: c.execute("SELECT * FROM sqlite_schema").fetchall()) == []


async def test_cancelled_it_writes_what_is_pending_and_says_goodbye(database: Database) -> None:
    ledger, disk = Ledger(), LedgerOnDisk(database)
    async with running(disk, ledger) as scope:
        for _ in range(2_500):
            complete(ledger)
        scope.cancel()
    assert attrs.astuple(disk.statistics()) == (0, 2_500, 0, 0, 0, 0)
    assert len(await database.read(stored)) == 2_500
    assert await database.read(ends) == [True]
    complete(ledger)
    assert disk.statistics().pending == 0  # it listens no more


async def test_a_file_that_takes_nothing_fails_no_work_and_is_tried_again(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    other = sqlite3.connect(database.path, isolation_level=None)
    ledger, disk = Ledger(), LedgerOnDisk(database, interval=0.0)
    with caplog.at_level(logging.WARNING, "embedkit"):
        async with running(disk, ledger):
            complete(ledger)
            await until(lambda: disk.statistics().written == 1)
            other.execute("BEGIN IMMEDIATE")
            for failures in (1, 2):
                complete(ledger)
                await until(lambda failures=failures: disk.statistics().failures == failures)  # type: ignore[misc]
            assert disk.statistics().pending == 2
            other.execute("ROLLBACK")
            other.close()
            complete(ledger)
            await until(lambda: disk.statistics().written == 4)
    assert [name for _, name in await database.read(stored)] == ["succeeded"] * 4
    (record,) = caplog.records
    assert "another process holds it" in record.getMessage()
    assert "\n" not in record.getMessage()


async def test_its_goodbye_is_bounded(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with open_database(tmp_path / "store.sqlite3", busy_timeout=60.0) as database:
        await prepare(database)
        other = sqlite3.connect(database.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        ledger, disk = Ledger(), LedgerOnDisk(database, goodbye=1.0)
        async with running(disk, ledger):
            complete(ledger)
        # It gave up: it did not wait the minute after which the lock itself would have been a failure.
        assert attrs.astuple(disk.statistics()) == (1, 0, 0, 0, 0, 0)
        other.close()


async def test_the_list_is_bounded_and_says_what_it_dropped(database: Database) -> None:
    ledger, disk = Ledger(), LedgerOnDisk(database, pending_limit=10)
    rows = [offer(ledger) for _ in range(15)]
    for row in rows:
        disk.changed(row)
    assert attrs.astuple(disk.statistics()) == (10, 0, 0, 5, 0, 0)
    disk.changed(rows[0])  # a row that is on the list may change again
    assert attrs.astuple(disk.statistics()) == (10, 0, 0, 5, 0, 0)


async def test_a_settlement_that_finds_the_list_full_still_closes_its_row(database: Database) -> None:
    """The file would say ``queued`` for ever, and ``abandoned`` after the next start, of tickets that succeeded."""
    ledger, disk = Ledger(), LedgerOnDisk(database, pending_limit=4, interval=0.0)
    other = sqlite3.connect(database.path, isolation_level=None)
    async with running(disk, ledger):
        first = [offer(ledger) for _ in range(4)]
        await until(lambda: disk.statistics().written == 4)
        other.execute("BEGIN IMMEDIATE")
        late = [offer(ledger) for _ in range(10)]  # the list is full, and the file takes nothing
        for row in first:
            ledger.dispatched(row, trio.current_time())
        assert disk.statistics().pending == 4
        assert disk.statistics().dropped == 10
        for row in (*first, *late):
            ledger.settled(row, trio.current_time(), outcome="succeeded", clocks=Clocks(1.0, 0.0, 0.0))
        assert disk.statistics().pending == 8  # what is open on disk is noted beyond the limit, and nothing else
        await until(lambda: disk.statistics().failures > 0)
        other.execute("ROLLBACK")
        other.close()
        complete(ledger)  # dropped, and yet it wakes the writer
        await until(lambda: disk.statistics().pending == 0)
    assert disk._open_on_disk == set()  # it is bounded, too
    assert "queued" not in dict(await database.read(stored)).values()
    assert [outcome for _, outcome in await database.read(stored)][:4] == ["succeeded"] * 4
    assert await LedgerOnDisk(database).reap() == 0


async def test_one_that_is_settled_while_its_first_row_is_being_written_is_closed_too(database: Database) -> None:
    ledger = Ledger()
    disk = LedgerOnDisk(database, pending_limit=1, interval=0.0)
    await prepare(database)
    write, opened = database.write, offer(ledger)

    async def settled_meanwhile(work: Callable[[sqlite3.Connection], object]) -> object:
        result = await write(work)
        if opened.settled_at is None and await database.read(stored) == [(opened.id, "queued")]:
            disk.changed(filler)  # the list is full
            ledger.settled(opened, trio.current_time(), outcome="succeeded", clocks=Clocks(0.0, 0.0, 0.0))
        return result

    filler = attrs.evolve(opened, id=opened.id + 1_000)
    database.write = settled_meanwhile  # type: ignore[method-assign, assignment]
    async with running(disk, ledger):
        await until(lambda: disk.statistics().written >= 3)
    assert (opened.id, "succeeded") in await database.read(stored)


async def test_a_row_that_cannot_be_stored_is_not_tried_again_with_those_that_can(database: Database) -> None:
    other = sqlite3.connect(database.path, isolation_level=None)
    ledger, disk = Ledger(), LedgerOnDisk(database, interval=0.0)
    async with running(disk, ledger):
        complete(ledger)
        await until(lambda: disk.statistics().written == 1)
        other.execute("BEGIN IMMEDIATE")
        complete(ledger)
        complete(ledger).inputs = 2**70
        await until(lambda: disk.statistics().failures == 1)
        assert (disk.statistics().pending, disk.statistics().refused) == (1, 1)
        other.execute("ROLLBACK")
        other.close()
    assert await database.read(stored) == [(1, "succeeded"), (2, "succeeded")]
    assert disk.statistics().refused == 1


async def test_what_the_file_did_not_take_is_tried_again_though_nothing_changes(
    database: Database, mock_clock: trio.testing.MockClock
) -> None:
    other = sqlite3.connect(database.path, isolation_level=None)
    ledger, disk = Ledger(), LedgerOnDisk(database)
    async with running(disk, ledger):
        await trio.testing.wait_all_tasks_blocked()
        other.execute("BEGIN IMMEDIATE")
        complete(ledger)
        await until(lambda: disk.statistics().failures == 1)
        other.execute("ROLLBACK")
        other.close()
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(1.0)  # the interval
        await trio.testing.wait_all_tasks_blocked()
        assert disk.statistics().written == 0
        mock_clock.jump(30.0)
        await until(lambda: disk.statistics().written == 1)


async def test_a_goodbye_without_time_for_all_closes_first_what_is_open_on_disk(database: Database) -> None:
    ledger, disk = Ledger(), LedgerOnDisk(database, interval=3_600.0)
    await prepare(database)
    async with running(disk, ledger):
        rows = [offer(ledger) for _ in range(10)]
        await until(lambda: disk.statistics().written == 10)
        for _ in range(3_000):
            complete(ledger)
        for row in rows:
            ledger.settled(row, trio.current_time(), outcome="succeeded", clocks=Clocks(1.0, 0.0, 0.0))
        write, batches = database.write, 0

        async def one_batch(work: Callable[[sqlite3.Connection], object]) -> object:
            nonlocal batches
            batches += 1
            if batches > 1:
                await trio.sleep_forever()  # the disk is slow: the goodbye's time runs out
            return await write(work)

        database.write = one_batch  # type: ignore[method-assign, assignment]
        disk._goodbye = 0.2
    assert [outcome for _, outcome in await database.read(stored)][:10] == ["succeeded"] * 10
    assert disk.statistics().pending == 2_010


async def test_a_writer_that_was_forgotten_goes_on_as_a_new_one(database: Database) -> None:
    """A process elsewhere that slept for weeks: without its own row each of its batches would break a foreign key."""
    ledger, disk = Ledger(), LedgerOnDisk(database, interval=0.0)
    async with running(disk, ledger):
        row = offer(ledger)
        await until(lambda: disk.statistics().written == 1)
        await database.write(lambda connection: connection.execute("DELETE FROM activity_writers"))
        assert await database.read(stored) == []
        complete(ledger)
        await until(lambda: disk.statistics().written == 2)
        ledger.settled(row, trio.current_time(), outcome="succeeded", clocks=Clocks(1.0, 0.0, 0.0))
        await until(lambda: disk.statistics().written == 3)
    assert await database.read(stored) == [(1, "succeeded"), (2, "succeeded")]
    assert (disk.statistics().refused, disk.statistics().failures) == (0, 0)


DAY = 86_400.0


class WallClock:
    def __init__(self, days: float) -> None:
        self.days = days

    def __call__(self) -> float:
        return self.days * DAY


async def days_of_work(database: Database, clock: WallClock, *days: float) -> None:
    """A process a day, with one ticket each."""
    for clock.days in days:
        ledger = Ledger(wall_clock=clock)
        complete(ledger)
        async with running(LedgerOnDisk(database, wall_clock=clock), ledger):
            pass


async def recorded_on(database: Database) -> list[float]:
    statement = "SELECT enqueued_at FROM activity_tickets ORDER BY enqueued_at"
    return [at / DAY for (at,) in await database.read(lambda connection: connection.execute(statement).fetchall())]


async def test_a_clock_that_is_ahead_for_a_moment_deletes_no_ledger(database: Database) -> None:
    clock = WallClock(0)
    await days_of_work(database, clock, 1_000.5, 1_001.5, 1_002.5)
    await days_of_work(database, clock, 1_042.6)  # 40 days ahead, and writing rows with that time
    await days_of_work(database, clock, 1_002.7, 1_003.5)
    assert await recorded_on(database) == [1_000.5, 1_001.5, 1_002.5, 1_002.7, 1_003.5, 1_042.6]


async def test_nor_does_one_that_jumps_while_the_writer_runs(
    database: Database, mock_clock: trio.testing.MockClock
) -> None:
    clock = WallClock(1_000.5)
    ledger = Ledger(wall_clock=clock)
    disk = LedgerOnDisk(database, wall_clock=clock, interval=0.0)
    async with running(disk, ledger):
        for count, day in enumerate((1_000.5, 1_001.5, 1_002.5, 1_042.6, 990.0, 1_002.8), start=1):
            clock.days = day
            complete(ledger)
            await until(lambda count=count: disk.statistics().written == count)  # type: ignore[misc]
            mock_clock.jump(3_700.0)
    assert await recorded_on(database) == [990.0, 1_000.5, 1_001.5, 1_002.5, 1_002.8, 1_042.6]


async def test_what_is_old_by_the_days_on_which_there_was_work_is_forgotten(database: Database) -> None:
    clock = WallClock(0)
    await days_of_work(database, clock, 1_000.5, 1_001.5, 1_031.5, 1_032.5)
    assert await recorded_on(database) == [1_000.5, 1_001.5, 1_031.5, 1_032.5]
    await days_of_work(database, clock, 1_033.5, 1_034.5)  # the day before each is taken into account
    assert await recorded_on(database) == [1_001.5, 1_031.5, 1_032.5, 1_033.5, 1_034.5]


CRASHING = """
import os, sys, trio
from embedkit.activity.disk import LedgerOnDisk
from embedkit.activity.ledger import Ledger
from embedkit.database import open_database

async def main():
    ledger = Ledger()
    async with open_database(sys.argv[1]) as database, trio.open_nursery() as nursery:
        disk = LedgerOnDisk(database, interval=0.0)
        await nursery.start(disk.run, ledger)
        def offer():
            return ledger.open(lane="box", service="library", stage="ingestion", role="embedding", provider="ollama",
                model="minilm", priority="batch", tenant=None, run=None, weight=1, inputs=1, now=trio.current_time())
        offer()
        ledger.dispatched(offer(), trio.current_time())
        while disk.statistics().pending or disk.statistics().written < 2:
            await trio.sleep(0)
        os.write(1, b"!")
        await trio.sleep_forever()

trio.run(main)
"""


async def test_rows_of_a_killed_process_are_reaped(database: Database) -> None:
    command = [sys.executable, "-c", CRASHING, str(database.path)]
    async with trio.open_nursery() as nursery:
        run = partial(trio.run_process, command, stdout=subprocess.PIPE, check=False)
        process: trio.Process = await nursery.start(run)
        assert process.stdout is not None
        assert await process.stdout.receive_some() == b"!"
        assert await LedgerOnDisk(database).reap() == 0
        assert await database.read(stored) == [(1, "queued"), (2, "in-flight")]
        process.kill()
    assert await LedgerOnDisk(database).reap() == 2
    assert await database.read(stored) == [(1, "abandoned"), (2, "unsettled")]


async def test_a_writer_tidies_up_after_those_before_it(database: Database) -> None:
    first = Ledger()
    first_disk = LedgerOnDisk(database)
    async with running(first_disk, first):
        offer(first)
    second = Ledger()
    async with running(LedgerOnDisk(database), second):
        complete(second)
    assert await database.read(stored) == [(1, "abandoned"), (1, "succeeded")]
    assert await database.read(ends) == [True, True]
