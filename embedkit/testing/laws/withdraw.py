"""Law 1. A queued ticket whose caller is cancelled leaves the lane before ``cancel()`` returns."""

from __future__ import annotations

import trio

from embedkit import QueueWaitExceeded, TicketWithdrawn
from embedkit.testing.laws.scenario import Law
from embedkit.testing.stage import By, Caller, Stage, answers
from embedkit.testing.trace import require

LAW = Law(1)
ROUNDS = range(6)


def _cancel_queued(stage: Stage, caller: Caller, by: By) -> None:
    """Cancel ``caller``, which is queued, and check that this alone took it out."""
    before = stage.totals
    queued, withdrawn = before.queued, before.withdrawn
    stage.cancel(caller, by)
    after = stage.totals
    require(
        (after.queued, after.withdrawn) == (queued - 1, withdrawn + 1),
        f"{caller.name} was cancelled while queued; as cancel() returns, {after.queued} of {queued} are still queued "
        f"and {after.withdrawn - withdrawn} more are withdrawn",
    )


def _each_scope(by: By) -> None:
    @LAW.scenario(f"cancelled while parked, by its {by}")
    async def parked(stage: Stage) -> None:
        await stage.park("A", answers(10.0))
        first, _, third = [await stage.park(name) for name in "BCD"]
        _cancel_queued(stage, first, by)
        _cancel_queued(stage, third, by)
        await stage.rest()
        require(first.back.is_set(), "B was cancelled and has not come back")
        if by == "own scope":
            stage.check_error(first, TicketWithdrawn)
        last = await stage.park("E")
        await last.back.wait()
        stage.check_order("A", "C", "E")

    @LAW.scenario(f"cancelled before it parked, by its {by}")
    async def before(stage: Stage) -> None:
        caller = stage.offer("A")
        stage.cancel(caller, by)
        await caller.back.wait()
        stage.check_never_called(caller, "was cancelled before it ran")
        require(stage.totals.queued == 0, "A was cancelled before it parked, and is still queued")
        after = await stage.park("B")
        await after.back.wait()
        stage.check_order("B")

    @LAW.scenario(f"cancelled between wake-up and dispatch, by its {by}")
    async def woken(stage: Stage) -> None:
        # The lane is idle but not new: somebody sleeps in it, and is woken for what comes next.
        await (await stage.park("first")).back.wait()
        await stage.rest()
        for rounds in ROUNDS:
            stage.order.clear()
            caller, behind = stage.offer(f"A{rounds}", answers(5.0)), stage.offer(f"B{rounds}")
            await _cancel_in(stage, caller, rounds, by)
            await behind.back.wait()
            await stage.rest()

    @LAW.scenario(f"cancelled between a settlement and its own dispatch, by its {by}")
    async def handed(stage: Stage) -> None:
        for rounds in ROUNDS:
            ended = trio.Event()
            await stage.park(f"blocker{rounds}", answers(at_end=ended.set))
            caller = await stage.park(f"A{rounds}", answers(5.0))
            behind = await stage.park(f"B{rounds}")
            await ended.wait()
            freed_at = trio.current_time()
            if await _cancel_in(stage, caller, rounds, by):
                await stage.rest()
                require(
                    behind.began_at == [freed_at],
                    f"{caller.name} left just before its dispatch, and {behind.name}, next in line, was not dispatched",
                )
            await behind.back.wait()
            await stage.rest()


async def _cancel_in(stage: Stage, caller: Caller, rounds: int, by: By) -> bool:
    """Cancel ``caller`` after so many scheduling rounds; whether that was before its call began."""
    for _ in range(rounds):
        await trio.lowlevel.checkpoint()
    early = caller.calls == 0
    stage.cancel(caller, by)
    await stage.rest()
    if early:
        stage.check_never_called(caller, f"was cancelled before its call began (scheduling round {rounds})")
    return early


_each_scope("own scope")
_each_scope("outer scope")


@LAW.scenario("cancelled while parked, by its deadline")
async def deadline(stage: Stage) -> None:
    """The deadline of a queued ticket passes."""
    await stage.park("A", answers(10.0))
    late = await stage.park("B", deadline_at=4.0)
    behind = await stage.park("C")
    await late.back.wait()
    require(trio.current_time() == 4.0, f"B's deadline is at 4 s; it came back at {trio.current_time():g} s")
    stage.check_error(late, QueueWaitExceeded)
    require(stage.totals.queued == 1, "B's deadline passed, and it is still queued")
    await behind.back.wait()
    stage.check_order("A", "C")


@LAW.scenario("a deadline that has passed at the take, before trio has fired it")
async def passed(stage: Stage) -> None:
    """Something computed for long: the clock is past the deadline, and the take comes first."""
    await stage.park("A", answers(1.0, at_end=lambda: stage.clock.jump(10.0)))
    late = await stage.park("B", deadline_at=5.0)
    behind = await stage.park("C")
    await behind.back.wait()
    stage.check_never_called(late, "had a deadline that was over")
    stage.check_error(late, QueueWaitExceeded)


@LAW.scenario("a whole nursery of callers is cancelled")
async def nursery(stage: Stage) -> None:
    """Many callers leave in one step."""
    await stage.park("A", answers(10.0))
    async with trio.open_nursery() as leaving:
        leavers = [stage.offer(f"B{number}", within=leaving) for number in range(20)]
        await stage.rest()
        stayer = await stage.park("C")
        stage.trace.note("the nursery of B0 to B19: cancelled")
        leaving.cancel_scope.cancel()
        totals = stage.totals
        require(
            (totals.queued, totals.withdrawn) == (1, 20),
            f"20 callers were cancelled; as cancel() returns, {totals.queued - 1} of them are still queued",
        )
    await stayer.back.wait()
    for leaver in leavers:
        stage.check_never_called(leaver, "was cancelled while queued")
