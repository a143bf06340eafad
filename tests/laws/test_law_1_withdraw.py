"""Law 1, sharper: the cancellation matrix of ``Lane.run``, with queue, statistics, ledger and circuit asserted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
import pytest
import trio
from our_lanes import SETTLEMENTS, House, open_house
from trio.testing import MockClock

from embedkit import (
    Circuit,
    DeadlineExceeded,
    ProviderBusy,
    ProviderCircuitOpen,
    ProviderTimeout,
    QueueWaitExceeded,
    Ticket,
    TicketWithdrawn,
    UsageError,
)
from embedkit.testing import Settlement
from embedkit.testing.laws.retries import UpTo
from embedkit.testing.stage import Caller, Step, answers, fails

BY = ("own", "outer", "deadline", "nursery")
DEADLINE = 3.0


@attrs.frozen
class Case:
    house: House
    by: str
    circuit: Circuit
    nursery: trio.Nursery

    def offer(self, name: str, *steps: Step) -> Caller:
        deadline = trio.current_time() + DEADLINE if self.by == "deadline" else float("inf")
        return self.house.stage.offer(
            name,
            *steps,
            within=self.nursery,
            deadline_at=deadline,
            circuit=self.circuit,
            on_provider_timeout=self.circuit.trip,
        )

    async def cancel(self, caller: Caller) -> None:
        """However it is done, the cancellation is over when nothing moves any more."""
        if self.by == "own":
            caller.ticket.scope.cancel()
        elif self.by == "outer":
            caller.around.cancel()
        elif self.by == "nursery":
            self.nursery.cancel_scope.cancel()
        else:
            self.house.stage.clock.jump(DEADLINE)


async def before(case: Case) -> Caller:
    caller = case.offer("A")
    await case.cancel(caller)
    return caller


async def queued(case: Case) -> Caller:
    await case.house.stage.park("blocker", answers(DEADLINE * 2))
    caller = case.offer("A")
    await case.house.stage.rest()
    await case.cancel(caller)
    return caller


async def waiting_for_room(case: Case) -> Caller:
    for name in ("blocker", "inside", "also inside"):
        await case.house.stage.park(name, answers(DEADLINE * 2))
    caller = case.offer("A")
    await case.house.stage.rest()
    await case.cancel(caller)
    return caller


async def in_flight(case: Case) -> Caller:
    caller = case.offer("A", answers(DEADLINE * 2))
    await case.house.stage.rest()
    await case.cancel(caller)
    return caller


async def between_attempts(case: Case) -> Caller:
    caller = case.offer("A", fails(ProviderBusy("later"), 0.5), answers())
    await case.house.stage.rest()
    await trio.sleep(0.6)
    await case.cancel(caller)
    return caller


async def handed_over(case: Case) -> Caller:
    """The outcome is on its way: no step of another task lies between."""
    await case.house.stage.park("blocker", answers(DEADLINE * 2))
    caller = case.offer("A")
    await case.house.stage.rest()
    case.circuit.trip(ProviderTimeout("another's"))
    await case.cancel(caller)
    return caller


async def resumed(case: Case) -> Caller:
    caller = case.offer("A")
    await caller.back.wait()
    await case.cancel(caller)
    return caller


# What the lane says of the ticket, by kind of lane, then what its caller gets where it was not cancelled from outside.
MOMENTS: dict[Callable[[Case], Awaitable[Caller]], tuple[dict[Settlement, str], object, object]] = {
    before: ({"provider": "withdrawn", "queue": "withdrawn"}, TicketWithdrawn, QueueWaitExceeded),
    queued: ({"provider": "withdrawn", "queue": "withdrawn"}, TicketWithdrawn, QueueWaitExceeded),
    waiting_for_room: ({"provider": "withdrawn", "queue": "withdrawn"}, TicketWithdrawn, QueueWaitExceeded),
    in_flight: ({"provider": "succeeded", "queue": "aborted"}, TicketWithdrawn, DeadlineExceeded),
    between_attempts: ({"provider": "failed", "queue": "aborted"}, TicketWithdrawn, DeadlineExceeded),
    handed_over: ({"provider": "shed", "queue": "shed"}, ProviderCircuitOpen, ProviderCircuitOpen),
    resumed: ({"provider": "succeeded", "queue": "succeeded"}, None, None),
}


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_cancellation_matrix_of_run(
    settlement: Settlement, moment: Callable[[Case], Awaitable[Caller]], by: str, autojump_clock: MockClock
) -> None:
    words, by_own, by_deadline = MOMENTS[moment]
    async with open_house(settlement, autojump_clock, max_queued=2, retry=UpTo(2)) as house:
        async with trio.open_nursery() as nursery:
            case = Case(house, by, Circuit(), nursery)
            caller = await moment(case)
            await caller.back.wait()
        await trio.sleep(100.0)
        others = house.lane.statistics().totals.offered - 1
        if moment is before and by in ("outer", "nursery"):
            assert house.rows() == []  # it was never offered
            assert caller.was_cancelled
        else:
            if moment is before and by == "deadline":
                # It passed in the same instant in which an idle lane would have dispatched.
                assert caller.calls == 0
            row = next(row for row in house.rows() if row.outcome == words[settlement] and row.lane == "here")
            expected = {words[settlement]: 1}
            expected["succeeded"] = expected.get("succeeded", 0) + others
            assert house.endings == {word: count for word, count in expected.items() if count}
            if moment is resumed:
                assert caller.value == "A"
            elif by in ("own", "deadline") or moment is handed_over:
                assert type(caller.error) is (by_deadline if by == "deadline" else by_own)
            else:
                assert caller.was_cancelled
            never_dispatched = words[settlement] in ("withdrawn", "shed")
            assert (caller.calls == 0) == never_dispatched
            assert (row.dispatched_at is None) == never_dispatched
        house.check_over(case.circuit)


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_an_answer_on_its_way_is_returned_and_cancelled_comes_at_the_next_checkpoint(
    settlement: Settlement, autojump_clock: MockClock
) -> None:
    """The cancel comes in the step in which the call ends: before its settlement, or after."""
    seen = set()
    async with open_house(settlement, autojump_clock) as house:
        for number in range(20):
            caller = await house.stage.park(f"A{number}", answers(1.0))
            before = house.endings.get("succeeded", 0)
            await trio.sleep(1.0)
            settled = house.endings.get("succeeded", 0) > before
            caller.around.cancel()
            await caller.back.wait()
            assert (caller.value is not None) == settled
            assert caller.was_cancelled == (not settled)
            seen.add(settled)
            await trio.sleep(1.0)
        house.check_over()
    assert seen == {True, False}


async def test_a_withdrawal_lets_in_whom_it_held_back(autojump_clock: MockClock) -> None:
    """A wide head that leaves is looked past in the same step: nothing else would wake the lane before 9 s."""
    async with open_house("queue", autojump_clock, capacity=2) as house:
        await house.stage.park("out", answers(9.0))
        wide = await house.stage.park("wide", weight=2)
        small = await house.stage.park("small")
        assert small.calls == 0
        wide.around.cancel()
        await small.back.wait()
        assert small.back_at == 1.0


async def test_a_shed_head_lets_in_whom_it_held_back(autojump_clock: MockClock) -> None:
    async with open_house("queue", autojump_clock, capacity=2) as house:
        circuit = Circuit()
        await house.stage.park("out", answers(9.0))
        wide = await house.stage.park("wide", weight=2, circuit=circuit)
        small = await house.stage.park("small")
        circuit.trip(ProviderTimeout("another's"))
        await small.back.wait()
        assert small.back_at == 1.0
        assert isinstance(wide.error, ProviderCircuitOpen)


async def test_a_ticket_is_offered_once(autojump_clock: MockClock) -> None:
    async with open_house("provider", autojump_clock) as house:
        ticket = Ticket()

        async def call(_: None) -> str:
            return "done"

        assert await house.lane.run(call, ticket) == "done"
        with pytest.raises(UsageError, match="offered before"):
            await house.lane.run(call, ticket)
        assert house.lane.statistics().totals.offered == 1


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_a_take_finds_ten_deadlines_that_have_passed_and_the_one_that_has_not(
    settlement: Settlement, autojump_clock: MockClock
) -> None:
    async with open_house(settlement, autojump_clock) as house:
        stage = house.stage
        await stage.park("blocker", answers(1.0, at_end=lambda: autojump_clock.jump(10.0)))
        late = [await stage.park(f"late{number}", deadline_at=5.0) for number in range(10)]
        good = await stage.park("good", deadline_at=50.0)
        await good.back.wait()
        assert good.value == "good"
        for caller in late:
            assert type(caller.error) is QueueWaitExceeded
            assert caller.calls == 0
        assert house.endings == {"succeeded": 2, "withdrawn": 10}
        house.check_over()


async def test_a_slot_that_retires_passes_its_wake_up_on(autojump_clock: MockClock) -> None:
    """Three sleep; the lane has shrunk to one: two are woken only to go, and the third must hear of it."""
    capacity = 3
    async with open_house("queue", autojump_clock, capacity=lambda: capacity) as house:
        for caller in [await house.stage.park(name) for name in "ABC"]:
            await caller.back.wait()
        capacity = 1
        after = await house.stage.park("D")
        assert after.calls == 1
        assert house.lane.statistics().slots == 1
