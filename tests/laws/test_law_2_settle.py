"""Law 2, sharper: what the ledger says while a call outlives its caller, and how a slot ends."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from our_lanes import SETTLEMENTS, open_house
from trio.testing import MockClock

from embedkit import BudgetLane, CapacityLane, LaneClosed, Ledger, ProviderFailure, Ticket
from embedkit.testing import Settlement, wait_until_in_flight, wait_until_queued
from embedkit.testing.stage import answers, fails, hangs


async def test_ac_9_slot_and_row_stay_open_until_the_provider_call_ends(autojump_clock: MockClock) -> None:
    async with open_house("provider", autojump_clock) as house:
        leaver = await house.stage.park("A", answers(60.0))
        behind = await house.stage.park("B")
        await trio.sleep(1.0)
        leaver.around.cancel()
        await leaver.back.wait()
        assert leaver.back_at == 1.0
        await wait_until_in_flight(house.lane, 1)
        await wait_until_queued(house.lane, 1)
        (row, _) = house.ledger.open_rows()
        assert (row.outcome, row.settled_at) == ("in-flight", None)
        assert row.attempts[0].ended_at is None
        await behind.back.wait()
        assert (row.outcome, row.settled_at, row.detached) == ("succeeded", 60.0, True)
        assert row.code is None
        assert behind.began_at == [60.0]


async def test_an_abort_says_that_the_transport_was_closed_and_no_more(autojump_clock: MockClock) -> None:
    async with open_house("queue", autojump_clock) as house:
        leaver = await house.stage.park("A", answers(60.0, closing=0.5))
        leaver.around.cancel()
        await trio.sleep(1.0)
        row = house.row()
        assert (row.outcome, row.settled_at, row.detached) == ("aborted", 0.5, False)
        assert row.code == "KB_VECTOR_EMBED_ABORTED"
        assert [(attempt.code, attempt.ended_at) for attempt in row.attempts] == [("ABORTED", 0.5)]


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_a_bug_in_the_call_reaches_its_caller_and_the_lane_goes_on(
    settlement: Settlement, autojump_clock: MockClock
) -> None:
    async with open_house(settlement, autojump_clock) as house:
        first = await house.stage.park("A", fails(ZeroDivisionError("a bug")))
        second = await house.stage.park("B")
        await second.back.wait()
        assert type(first.error) is ZeroDivisionError
        assert second.value == "B"
        assert house.row(0).code == "unknown"


@pytest.mark.parametrize("error", [ZeroDivisionError("a bug"), ExceptionGroup("of a nursery", [ValueError("x")])])
async def test_what_a_detached_call_raises_is_its_ticket_s_outcome(
    error: Exception, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody else is left to tell, so the log is; and the engine goes on."""
    async with open_house("provider", autojump_clock) as house:
        leaver = await house.stage.park("A", fails(error))
        leaver.around.cancel()
        behind = await house.stage.park("B")
        await behind.back.wait()
        house.stage.check_answered(behind, at=2.0)
        assert (house.row(0).outcome, house.row(0).code, house.row(0).detached) == ("failed", "unknown", True)
        assert f"a call whose caller has left raised {type(error).__name__}" in caplog.text


async def _answer(_: None) -> None:
    await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_a_slot_that_dies_leaves_nobody_parked(settlement: Settlement, autojump_clock: MockClock) -> None:
    async with open_house(settlement, autojump_clock, capacity=2, max_queued=1) as house:
        out = [await house.stage.park(name, hangs()) for name in "AB"]
        queued = [await house.stage.park(name) for name in "CDE"]
        house.stage.end_engine()
        for caller in [*out, *queued]:
            await caller.back.wait()
            assert type(caller.error) is LaneClosed
        assert house.endings == {"unsettled": 2, "shed": 3}
        with pytest.raises(LaneClosed):
            await house.lane.run(_answer, Ticket())
        house.check_over()


@pytest.mark.parametrize("kind", [CapacityLane, BudgetLane])
async def test_a_connection_that_cannot_be_opened_fails_one_ticket_and_is_tried_again(
    kind: type[CapacityLane[None]] | type[BudgetLane[None]], autojump_clock: MockClock
) -> None:
    began_at, works = trio.current_time(), False

    @asynccontextmanager
    async def connect() -> AsyncGenerator[None]:
        await trio.lowlevel.checkpoint()
        if not works:
            raise OSError("no way there")
        yield

    ledger = Ledger()
    errors: list[ProviderFailure] = []

    async def caller() -> None:
        with pytest.raises(ProviderFailure, match="no connection: opening it raised OSError") as raised:
            await lane.run(_answer, Ticket())
        errors.append(raised.value)

    async with trio.open_nursery() as engine:
        lane = kind("here", nursery=engine, connect=connect, capacity=1, ledger=ledger)
        async with trio.open_nursery() as callers:
            for _ in range(3):
                callers.start_soon(caller)
        assert trio.current_time() == began_at + 0.1 + 0.2  # it backs off: each try fails one ticket
        works = True
        await lane.run(_answer, Ticket())
        lane.close()
    assert all(isinstance(error.__cause__, OSError) for error in errors)
    assert len({id(error) for error in errors}) == 3
    rows = ledger.settled_rows()
    assert [row.outcome for row in rows] == ["failed"] * 3 + ["succeeded"]
    assert [(row.failure_stage, row.code) for row in rows[:3]] == [("dispatch", "KB_VECTOR_EMBED_PROVIDER_FAILED")] * 3


async def test_detached_calls_are_waited_for_by_drained(autojump_clock: MockClock) -> None:
    async with open_house("provider", autojump_clock) as house:
        leaver = await house.stage.park("A", answers(7.0))
        leaver.around.cancel()
        house.lane.close()
        await house.lane.drained()
        assert trio.current_time() == 7.0
        assert house.endings == {"succeeded": 1}


async def test_a_failure_of_a_detached_call_is_no_bug(autojump_clock: MockClock) -> None:
    async with open_house("provider", autojump_clock) as house:
        leaver = await house.stage.park("A", fails(ProviderFailure("no")))
        leaver.around.cancel()
        await trio.sleep(2.0)
        assert (house.row().outcome, house.row().code) == ("failed", "KB_VECTOR_EMBED_PROVIDER_FAILED")
        behind = await house.stage.park("B")
        await behind.back.wait()
        assert behind.value == "B"


async def test_a_call_that_breaks_while_its_transport_is_closed_was_aborted(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Its caller left, and nobody is there to be told: it is neither a failure nor the end of the engine."""

    async def call(_: None) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise OSError("the text of an input")

    async with open_house("queue", autojump_clock) as house:
        with trio.move_on_after(1.0):
            await house.lane.run(call, Ticket())
        behind = await house.stage.park("B")
        await behind.back.wait()
        assert behind.value == "B"
        assert house.endings == {"aborted": 1, "succeeded": 1}
    assert "raised OSError while it ended" in caplog.text
    assert "the text of an input" not in caplog.text
