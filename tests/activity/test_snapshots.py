"""Snapshots of lanes: written with the rows, read through another handle, and never at the rows' cost."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from embedkit.activity import tables
from embedkit.activity.disk import LedgerOnDisk, prepare, read_lanes
from embedkit.activity.ledger import Ledger
from embedkit.activity.process import Process, this_process
from embedkit.activity.rows import TicketRow
from embedkit.activity.snapshots import LARGEST, StoredLane
from embedkit.clocks import ZERO
from embedkit.database import Database, open_database

HERE = this_process()
GONE = attrs.evolve(HERE, pid=2**22 + 1, started="1")
ELSEWHERE = Process("elsewhere", "", 1, "")
NOW = 1_000_000.0


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    async with open_database(tmp_path / "store.sqlite3", busy_timeout=0.05) as database:
        yield database


@pytest.fixture
async def reader(database: Database) -> AsyncIterator[Database]:
    """A handle of its own, as another process has it."""
    async with open_database(database.path, create=False) as reader:
        yield reader


def offer(ledger: Ledger, lane: str = "box") -> TicketRow:
    return ledger.open(
        lane=lane, service="library", stage="query", role="embedding", provider=lane, model="m", priority="batch",
        tenant=None, run=None, weight=1, inputs=1, now=trio.current_time(),
    )  # fmt: skip


@asynccontextmanager
async def running(disk: LedgerOnDisk, ledger: Ledger) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        await nursery.start(disk.run, ledger)
        yield
        nursery.cancel_scope.cancel()


async def until(condition: Callable[[], bool]) -> None:
    """Worker threads finish in their own time, which no virtual clock knows."""
    for _ in range(1_000_000):
        if condition():
            return
        await trio.lowlevel.checkpoint()
    pytest.fail("it never came to that")


def rows(connection: sqlite3.Connection) -> int:
    (count,) = connection.execute("SELECT count(*) FROM activity_tickets").fetchone()
    return int(count)


async def test_what_one_handle_wrote_another_reads_until_the_writer_ends(
    database: Database, reader: Database, mock_clock: trio.testing.MockClock
) -> None:
    asked: list[str] = []

    def of_lane(name: str) -> Mapping[str, Any] | None:
        asked.append(name)
        return None if name == "remote" else {"lane": name, "asked": len(asked)}

    ledger, disk = Ledger(), LedgerOnDisk(database, of_lane=of_lane, wall_clock=lambda: NOW)
    async with running(disk, ledger):
        for lane in ("box", "remote", "other", "box"):
            offer(ledger, lane)
        await until(lambda: disk.statistics().written == 4)
        expected = [
            StoredLane("box", HERE.host, HERE.pid, NOW, {"lane": "box", "asked": 1}),
            StoredLane("other", HERE.host, HERE.pid, NOW, {"lane": "other", "asked": 2}),
        ]
        assert sorted(asked) == ["box", "other", "remote"]  # once each, whatever the rows
        assert list(await read_lanes(reader, NOW)) == expected
        for _ in range(5):
            offer(ledger)
            await trio.testing.wait_all_tasks_blocked()
        assert len(asked) == 3  # not before rows are written again
        mock_clock.jump(1.0)
        await until(lambda: disk.statistics().written == 9)
        box, other = await read_lanes(reader, NOW + 1e6)  # however old: it is asked whether it lives
        assert (box.snapshot, other) == ({"lane": "box", "asked": 4}, expected[1])
    assert await read_lanes(reader, NOW) == ()
    assert disk.statistics().snapshots_lost == 0


def failing(name: str) -> Mapping[str, Any]:
    raise RuntimeError("sk-secret")


@pytest.mark.parametrize(
    "of_lane",
    [
        failing,
        lambda name: {"text": "x" * LARGEST},
        lambda name: {"account": float("nan")},
        lambda name: {"account": object()},
        lambda name: {(1, 2): 3},
    ],
)
async def test_one_that_cannot_be_made_costs_itself_and_is_counted(
    database: Database, of_lane: Callable[[str], Mapping[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    def of_some_lane(name: str) -> Mapping[str, Any]:
        return {} if name == "good" else of_lane(name)

    ledger, disk = Ledger(), LedgerOnDisk(database, of_lane=of_some_lane)
    with caplog.at_level(logging.WARNING, "embedkit"):
        async with running(disk, ledger):
            for lane in ("bad", "good", "worse"):
                offer(ledger, lane)
            await until(lambda: disk.statistics().written == 3)
            assert [stored.lane for stored in await read_lanes(database, 0.0)] == ["good"]
    assert attrs.astuple(disk.statistics()) == (0, 3, 0, 0, 0, 2)
    (record,) = caplog.records
    assert "sk-secret" not in record.getMessage()


async def test_one_that_the_file_refuses_costs_no_row(database: Database) -> None:
    await prepare(database)
    await database.write(lambda connection: connection.execute("DROP TABLE activity_lanes"))
    await database.write(lambda connection: connection.execute("CREATE TABLE activity_lanes (writer INTEGER)"))
    ledger, disk = Ledger(), LedgerOnDisk(database, of_lane=lambda name: {"name": name})
    async with running(disk, ledger):
        offer(ledger)
        offer(ledger, "other")
        await until(lambda: disk.statistics().written == 2)
    assert await database.read(rows) == 2
    assert attrs.astuple(disk.statistics()) == (0, 2, 0, 0, 0, 2)


async def test_a_lane_whose_change_was_dropped_or_not_taken_is_written_later(database: Database) -> None:
    seen = {"box": 0, "other": 0}
    ledger = Ledger()
    disk = LedgerOnDisk(database, of_lane=lambda name: {"seen": seen[name]}, interval=0.0, pending_limit=1)
    holder = sqlite3.connect(database.path, isolation_level=None)
    async with running(disk, ledger):
        first = offer(ledger)
        await until(lambda: disk.statistics().written == 1)
        holder.execute("BEGIN IMMEDIATE")
        ledger.dispatched(first, trio.current_time())
        await until(lambda: disk.statistics().failures == 1)
        seen["other"] = 7
        offer(ledger, "other")  # the list is full
        assert disk.statistics().dropped == 1
        holder.execute("ROLLBACK")
        holder.close()
        seen["box"] = 8
        ledger.settled(first, trio.current_time(), outcome="succeeded", clocks=ZERO)
        await until(lambda: disk.statistics().pending == 0 and disk.statistics().written > 1)
        stored = {lane.lane: lane.snapshot for lane in await read_lanes(database, 0.0)}
        assert stored == {"box": {"seen": 8}, "other": {"seen": 7}}


async def test_a_writer_that_was_forgotten_writes_its_lanes_as_a_new_one(database: Database) -> None:
    ledger, disk = Ledger(), LedgerOnDisk(database, of_lane=lambda name: {"name": name}, interval=0.0)
    async with running(disk, ledger):
        offer(ledger)
        await until(lambda: disk.statistics().written == 1)
        await database.write(lambda connection: connection.execute("DELETE FROM activity_writers"))
        assert await read_lanes(database, 0.0) == ()
        offer(ledger)
        await until(lambda: disk.statistics().written == 2)
        assert [lane.snapshot for lane in await read_lanes(database, 0.0)] == [{"name": "box"}]


@pytest.mark.parametrize(
    ("process", "silent_for", "is_shown"),
    [(HERE, 0.0, True), (HERE, 1e6, True), (GONE, 0.0, False), (ELSEWHERE, 599.0, True), (ELSEWHERE, 601.0, False)],
)
async def test_a_writer_that_is_dead_or_silent_has_no_lanes_now(
    database: Database, process: Process, silent_for: float, is_shown: bool
) -> None:
    def write(connection: sqlite3.Connection) -> int:
        writer = tables.add_writer(process, NOW, connection)
        assert tables.write_snapshots(writer, {"box": "{}"}, NOW, connection) == []
        return writer

    await prepare(database)
    writer = await database.write(write)
    assert bool(await read_lanes(database, NOW + silent_for)) is is_shown
    await database.write(lambda connection: tables.end_writer(writer, NOW, connection))
    left = await database.read(lambda connection: connection.execute("SELECT * FROM activity_lanes").fetchall())
    assert left == []


async def test_what_no_version_writes_is_left_out(database: Database) -> None:
    def write(connection: sqlite3.Connection) -> None:
        texts = {"a": "{", "b": "[]", "c": '{"x": 1}', "d": "[" * 100_000}
        tables.write_snapshots(tables.add_writer(HERE, NOW, connection), texts, NOW, connection)

    await prepare(database)
    await database.write(write)
    assert [(lane.lane, lane.snapshot) for lane in await read_lanes(database, NOW)] == [("c", {"x": 1})]


async def test_a_file_of_the_version_before_gets_the_table(database: Database) -> None:
    await database.migrate(tables.COMPONENT, tables.STEPS[:1])
    assert await read_lanes(database, NOW) == ()
