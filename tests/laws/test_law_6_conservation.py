"""Law 6, sharper: closing, refusing, and capacity that changes under way."""

from __future__ import annotations

import pytest
import trio
from our_lanes import SETTLEMENTS, open_house
from trio.testing import MockClock

from embedkit import LaneClosed, LaneFull, Ticket, UsageError
from embedkit.testing import Settlement
from embedkit.testing.stage import answers, hangs


async def _never_called(_: None) -> None:
    raise AssertionError("it is never called")


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_a_full_waiting_room_refuses_without_offering(settlement: Settlement, autojump_clock: MockClock) -> None:
    async with open_house(settlement, autojump_clock, max_queued=2) as house:
        await house.stage.park("out", answers(5.0))
        inside = [await house.stage.park(name, priority="batch") for name in "BC"]
        with pytest.raises(LaneFull, match=r"lane here: 2 batch tickets are waiting already \(max_queued\)"):
            await house.lane.run_nowait(_never_called, Ticket("batch"))
        assert house.lane.statistics().totals.offered == 3
        assert house.ledger.statistics().open == 3
        # The bound is for each class: people do not wait behind a batch for room.
        person = await house.stage.park("person")
        assert dict(house.lane.statistics().queued) == {"batch": 2, "interactive": 1}
        for caller in [*inside, person]:
            await caller.back.wait()
        house.check_over()


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_a_lane_of_many_shrinks_and_grows_under_way(settlement: Settlement, autojump_clock: MockClock) -> None:
    capacity = 4
    async with open_house(settlement, autojump_clock, capacity=lambda: capacity) as house:
        callers = [await house.stage.park(str(number), answers(10.0)) for number in range(12)]
        assert house.stage.out == 4
        capacity = 1
        await trio.sleep(10.5)
        assert house.stage.out == 1
        assert house.lane.statistics().capacity == 1
        capacity = 3
        await trio.sleep(1.0)
        assert house.stage.out == 1  # nothing polls
        house.lane.refresh()
        await house.stage.rest()
        assert house.stage.out == 3
        for caller in callers:
            await caller.back.wait()
        assert house.stage.peak == 4
        assert house.lane.statistics().slots <= 3
        house.check_over()


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "2", None])
async def test_a_capacity_that_is_none_is_named(wrong: object, autojump_clock: MockClock) -> None:
    named = pytest.RaisesExc(UsageError, match="lane here: capacity must be a positive whole number, not ")
    with pytest.RaisesGroup(named, flatten_subgroups=True):
        async with open_house("queue", autojump_clock, capacity=wrong):
            raise AssertionError("it was made")  # pragma: no cover


async def test_a_capacity_that_becomes_wrong_refuses_the_next_offer_and_harms_no_settlement(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    capacity: object = 2
    async with open_house("queue", autojump_clock, capacity=lambda: capacity) as house:
        first = await house.stage.park("A", answers(1.0))
        capacity = 0
        await first.back.wait()
        assert first.value == "A"
        assert house.lane.statistics().capacity == 2
        with pytest.raises(UsageError, match="not 0"):
            await house.lane.run(_never_called, Ticket())
        with pytest.raises(UsageError, match="not 0"):
            house.lane.refresh()
        capacity = 1
        after = await house.stage.park("B")
        await after.back.wait()
        assert after.value == "B"
        house.check_over()
    assert "capacity not read at a settlement" in caplog.text


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_closing_twice_and_draining_an_idle_lane(settlement: Settlement, autojump_clock: MockClock) -> None:
    async with open_house(settlement, autojump_clock) as house:
        caller = await house.stage.park("A")
        await caller.back.wait()
        cause = RuntimeError("the reason")
        queued = [await house.stage.park("B", answers(1.0)), await house.stage.park("C")]
        house.lane.close(cause)
        house.lane.close()
        await house.lane.drained()
        await queued[1].back.wait()
        assert type(queued[1].error) is LaneClosed
        assert queued[1].error.__cause__ is cause
        await house.stage.rest()
        assert house.lane.statistics().slots == 0
        house.check_over()


async def test_statistics_are_a_snapshot(autojump_clock: MockClock) -> None:
    async with open_house("queue", autojump_clock, capacity=3, reserve=1) as house:
        await trio.sleep(3.0)
        await house.stage.park("wide", hangs(), weight=2, priority="batch", tenant="x")
        await house.stage.park("held", priority="batch", tenant="y")
        await trio.sleep(4.0)
        await house.stage.park("person", hangs())
        seen = house.lane.statistics()
        assert (seen.capacity, seen.ceiling) == (3, 2)
        assert (seen.tickets_in_flight, seen.weight_in_flight) == (2, 3)
        assert dict(seen.queued) == {"batch": 1}
        assert dict(seen.queued_by_tenant) == {"y": 1}
        assert (seen.longest_wait, seen.held_for, seen.slots, seen.ledger_failures) == (4.0, 0.0, 2, 0)
        assert [one.flow for one in seen.accounts] == ["batch", "interactive", "probe"]  # who waits, first
        assert [(one.flow, one.queued) for one in seen.furthest_behind] == [("y", 1)]
        await house.stage.park("later")
        assert dict(seen.queued) == {"batch": 1}
        assert (seen.totals.queued, seen.totals.offered) == (1, 3)


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_an_offer_to_a_lane_whose_nursery_has_ended_is_withdrawn(
    settlement: Settlement, autojump_clock: MockClock
) -> None:
    async with open_house(settlement, autojump_clock) as house:
        house.stage.end_engine()
        await house.stage.rest()
        with pytest.raises((LaneClosed, RuntimeError)):
            await house.lane.run(_never_called, Ticket())
        assert house.lane.statistics().totals.queued == 0
        house.check_over()


async def test_waiting_for_a_drained_lane_can_be_cancelled_and_taken_up_again(autojump_clock: MockClock) -> None:
    async with open_house("provider", autojump_clock) as house:
        await house.stage.park("A", answers(5.0))
        with trio.move_on_after(1.0) as before:
            await house.lane.drained()
        house.lane.close()
        with trio.move_on_after(1.0) as while_out:
            await house.lane.drained()
        assert (before.cancelled_caught, while_out.cancelled_caught) == (True, True)
        await house.lane.drained()
        assert trio.current_time() == 5.0
        house.check_over()


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_run_nowait_waits_for_its_slot_as_run_does(settlement: Settlement, autojump_clock: MockClock) -> None:
    async with open_house(settlement, autojump_clock, max_queued=1) as house:
        await house.stage.park("A", answers(5.0))
        with trio.move_on_after(1.0) as scope:
            await house.lane.run_nowait(_never_called, Ticket())
        assert scope.cancelled_caught
        assert house.endings == {"withdrawn": 1}
        house.lane.close()
        with pytest.raises(LaneClosed):
            await house.lane.run_nowait(_never_called, Ticket())
