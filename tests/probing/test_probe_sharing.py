"""Several brokers on one file: what processes share. Trio's clock stands still but where a test moves it."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing
from probe_world import EPOCH, Gate, World, open_world, wall_clock

from embedkit.activity.process import this_process
from embedkit.database import Database, open_database
from embedkit.probing import tables as probe_tables
from embedkit.probing.rules import (
    BUSY_BEHIND_BATCH,
    FLOOR_SECONDS,
    OVER_BUDGET,
    REAL_WORK,
    ProbeState,
    Send,
    Verdict,
)
from embedkit.probing.sharing import prepare, read_verdict
from embedkit.probing.work import News
from embedkit.settings import ProbeSettings

Clock = trio.testing.MockClock

HERE = this_process()
# Of this machine, but of a boot that is over.
DEAD = attrs.evolve(HERE, pid=2**22 + 1, started="1")
NEVER_FRESH = ProbeSettings(fresh=0.0)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    async with open_database(tmp_path / "store.sqlite3", busy_timeout=0.05) as database:
        await prepare(database)
        yield database


async def until(condition: Callable[[], bool]) -> None:
    """Worker threads finish in their own time, which no virtual clock knows."""
    for _ in range(1_000_000):
        if condition():
            return
        await trio.lowlevel.checkpoint()
    pytest.fail("it never came to that")


async def shared(database: Database) -> ProbeState:
    return await database.read(partial(probe_tables.read_state, "engine", HERE, wall_clock()))


async def collect(world: World, into: list[Verdict]) -> None:
    into.append(await world.broker.probe("box"))


async def test_one_process_asks_and_the_other_knows(database: Database, mock_clock: Clock) -> None:
    async with open_world(database=database) as one, open_world(database=database) as other:
        assert not (await one.broker.probe("box")).shared
        mock_clock.jump(10)
        assert await other.broker.probe("box") == Verdict("box", "healthy", None, 10.0, True, 0.0)
        assert (one.probes, other.probes) == (1, 0)
        assert other.prepared == 0


async def test_a_flight_of_another_process_is_joined(database: Database, mock_clock: Clock) -> None:
    gate, verdicts = Gate(), list[Verdict]()
    async with (
        open_world(gate, database=database, rules=NEVER_FRESH) as one,
        open_world(database=database, rules=NEVER_FRESH) as other,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(collect, one, verdicts)
        await until(lambda: one.probes == 1)
        nursery.start_soon(collect, other, verdicts)
        await until(lambda: other.prepared == 1)
        mock_clock.jump(1)
        gate.opened.set()
        await until(lambda: len(verdicts) == 1)
        await _look_again(mock_clock, lambda: len(verdicts) == 2)
        assert [verdict.shared for verdict in verdicts] == [False, True]
        assert verdicts[1].verdict == "healthy"
        assert other.broker.verdict("box").verdict == "healthy"
        assert (one.probes, other.probes) == (1, 0)


async def _look_again(clock: Clock, condition: Callable[[], bool]) -> None:
    """Let the process that looks at the file every quarter of a second do so, until ``condition``."""
    for _ in range(1000):
        if condition():
            return
        for _ in range(200):
            await trio.lowlevel.checkpoint()
        clock.jump(0.25)
    pytest.fail("it never came to that")


async def test_the_flight_of_a_dead_holder_is_free_and_counts_as_a_call(database: Database, mock_clock: Clock) -> None:
    lost = probe_tables.Writer("lost", DEAD)
    claim = partial(probe_tables.claim, "engine", lost, News(), NEVER_FRESH, EPOCH, EPOCH, 130.0)
    assert (await database.write(claim)).decision == Send()
    async with open_world(database=database, rules=NEVER_FRESH) as world:
        # The lost call counts: the budget allows no other, but for real work.
        assert (await world.broker.probe("box")).reason == OVER_BUDGET
        await world.works(8)
        assert (await world.broker.probe("box")).reason == REAL_WORK
        mock_clock.jump(0.1)
        assert not (await world.broker.probe("box")).shared
        assert (await shared(database)).calls == 2


async def test_a_flight_that_had_all_its_time_is_free(database: Database, mock_clock: Clock) -> None:
    silent = probe_tables.Writer("silent", HERE)
    await database.write(partial(probe_tables.claim, "engine", silent, News(), NEVER_FRESH, EPOCH, EPOCH, 700.0))
    async with open_world(database=database) as world:
        mock_clock.jump(700.0)
        assert not (await world.broker.probe("box")).shared


async def test_a_cut_off_flight_is_given_back(database: Database, mock_clock: Clock) -> None:
    async with open_world(trio.sleep_forever, database=database) as world:
        world.nursery.start_soon(world.broker.probe, "box")
        await until(lambda: world.probes == 1)
        assert (await shared(database)).flight_until > wall_clock()
    state = await shared(database)
    assert state.flight_until < 0
    assert (state.calls, state.result) == (1, None)


async def test_both_spend_one_budget(database: Database, mock_clock: Clock) -> None:
    async with (
        open_world(database=database, rules=NEVER_FRESH) as one,
        open_world(database=database, rules=NEVER_FRESH) as other,
    ):
        await one.works(10)
        await other.works(6)
        for _ in range(10):
            for world in (one, other):
                mock_clock.jump(1)
                await world.broker.probe("box")
        # What the other has seen is entered when it asks, so all sixteen pay for four.
        assert one.probes + other.probes == 4
        mock_clock.jump(FLOOR_SECONDS)
        await other.broker.probe("box")
        assert one.probes + other.probes == 5


async def test_real_work_of_another_process_is_a_healthy_probe(database: Database, mock_clock: Clock) -> None:
    async with open_world(database=database) as one, open_world(database=database) as other:
        await one.works(1)
        await until_told(database, mock_clock, lambda state: state.success_at > 0)
        verdict = await other.broker.probe("box")
        assert (verdict.verdict, verdict.reason, other.probes) == ("healthy", REAL_WORK, 0)
        assert other.broker.verdict("box").reason == REAL_WORK


async def until_told(database: Database, clock: Clock, condition: Callable[[ProbeState], bool]) -> None:
    """News is entered every five seconds; virtual ones here, though threads take real ones."""
    for _ in range(1000):
        if condition(await shared(database)):
            return
        clock.jump(0.05)
    pytest.fail("it was never told")


async def test_a_batch_call_of_another_process_is_respected_while_that_lives(
    database: Database, mock_clock: Clock
) -> None:
    async with open_world(database=database) as other:
        async with open_world(database=database) as one:
            await one.works(1)
            one.nursery.start_soon(one.work, 500.0)
            await until_told(database, mock_clock, lambda state: min(state.success_at, state.busy_until) > 0)
            assert (await other.broker.probe("box")).reason == BUSY_BEHIND_BATCH
            assert (await other.broker.read("box")).reason == BUSY_BEHIND_BATCH
        assert (await shared(database)).busy_until < 0
        assert (await other.broker.probe("box")).reason == REAL_WORK
        assert other.probes == 0


async def test_what_a_process_told_of_itself_does_not_mislead_it(database: Database, mock_clock: Clock) -> None:
    told = News(success_at=EPOCH, busy_until=EPOCH + 100)
    await database.write(partial(probe_tables.tell, "engine", probe_tables.Writer("writer", HERE), told, EPOCH))
    for reader, busy in (("writer", False), ("another", True)):
        read = partial(probe_tables.read_state, "engine", HERE, EPOCH, apart_from=reader)
        assert ((await database.read(read)).busy_until > EPOCH) is busy


async def test_a_dead_process_is_busy_with_nothing(database: Database, mock_clock: Clock) -> None:
    for process, busy in ((HERE, True), (DEAD, False)):
        writer = probe_tables.Writer("writer", process)
        await database.write(partial(probe_tables.tell, "engine", writer, News(busy_until=EPOCH + 100), EPOCH))
        assert ((await shared(database)).busy_until > EPOCH) is busy


async def test_telling_twice_adds_nothing_and_what_is_old_goes(database: Database, mock_clock: Clock) -> None:
    writer, minute = probe_tables.Writer("writer", HERE), int(EPOCH // 60)
    for count in (3, 5, 5):
        await database.write(partial(probe_tables.tell, "engine", writer, News(dispatches={minute: count}), EPOCH))
    assert (await shared(database)).dispatches == 5
    await database.write(partial(probe_tables.tell, "engine", writer, News(), EPOCH + 3700))
    assert await database.read(lambda c: c.execute("SELECT count(*) FROM probe_dispatches").fetchone()) == (0,)


async def test_engines_of_one_file_are_apart(database: Database, mock_clock: Clock) -> None:
    async with open_world(database=database) as world:
        await world.broker.probe("box")
    assert await read_verdict(database, "box", "engine", ProbeSettings(), wall_clock()) == Verdict(
        "box", "healthy", None, 0.0, True, 0.0
    )
    assert await read_verdict(database, "box", "another", ProbeSettings(), wall_clock()) is None


async def test_the_failing_streak_is_everybodys(database: Database, mock_clock: Clock) -> None:
    async def fails() -> list[list[float]]:
        await trio.lowlevel.checkpoint()
        return [[float("nan")]]

    async with open_world(fails, database=database) as one, open_world(fails, database=database) as other:
        for world in (one, other, one):
            mock_clock.jump(FLOOR_SECONDS)
            assert (await world.broker.probe("box")).verdict == "degraded"
        result = (await shared(database)).result
        assert result is not None
        assert result.failures == 3


async def test_a_file_that_cannot_be_used_is_no_reason_to_know_nothing(
    database: Database, mock_clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_world(database=database) as world:
        with caplog.at_level(logging.WARNING):
            holder = sqlite3.connect(database.path, isolation_level=None)
            try:
                holder.execute("BEGIN IMMEDIATE")
                verdict = await world.broker.probe("box")
                mock_clock.jump(FLOOR_SECONDS)
                await world.broker.probe("box")
            finally:
                holder.close()
        assert (verdict.verdict, verdict.shared, world.probes) == ("healthy", False, 2)
        assert len([record for record in caplog.records if "probes are not shared" in record.message]) == 1
        # Once it can be used again, it is.
        mock_clock.jump(FLOOR_SECONDS)
        await world.broker.probe("box")
        assert (await shared(database)).result is not None
