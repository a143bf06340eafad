"""Law 1. A queued ticket whose caller is cancelled leaves the lane before ``cancel()`` returns."""

from __future__ import annotations

import trio

from embedkit import LaneFull, ProviderTimeout, QueueWaitExceeded, TicketWithdrawn
from embedkit.testing.laws.scenario import Law
from embedkit.testing.stage import By, Caller, Stage, answers, fails
from embedkit.testing.trace import require

LAW = Law(1)
ROUNDS = range(6)


def _cancel_queued(stage: Stage, caller: Caller, by: By) -> None:
    """Cancel ``caller``, which is queued, and check that this alone took it out."""
    before = stage.totals
    queued, withdrawn = before.queued, before.withdrawn
    stage.cancel(caller, by)
    after = stage.totals
    stage.check_written(
        (after.queued, after.withdrawn) == (queued - 1, withdrawn + 1),
        f"{caller.name} was cancelled while queued; as cancel() returns, {after.queued} of {queued} are still queued "
        f"and {after.withdrawn - withdrawn} more are withdrawn",
        law=1,
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
        stage.check_written(stage.totals.queued == 0, "A was cancelled before it parked, and is still queued", law=1)
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


def _new_lane(rounds: int) -> None:
    @LAW.scenario(f"cancelled {rounds} steps after it was offered to a new lane")
    async def offered(stage: Stage) -> None:
        # Nothing in the lane has served anybody yet: whatever is opened for the first ticket is not lost with it.
        caller, behind = stage.offer("A", answers(5.0)), stage.offer("B")
        await _cancel_in(stage, caller, rounds, "outer scope")
        await behind.back.wait()
        stage.check_answered(behind)


for _rounds in ROUNDS:
    _new_lane(_rounds)


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
    stage.check_written(stage.totals.queued == 1, "B's deadline passed, and it is still queued", law=1)
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


@LAW.scenario("a deadline of its scope's own that has passed at the take, before trio has fired it")
async def scope_passed(stage: Stage) -> None:
    """It counts as the ticket's does."""
    await stage.park("A", answers(1.0, at_end=lambda: stage.clock.jump(10.0)))
    late = await stage.park("B")
    late.ticket.scope.deadline = 5.0
    behind = await stage.park("C")
    await behind.back.wait()
    stage.check_never_called(late, "had a scope whose deadline was over")
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
        for leaver in leavers:
            leaver.left_unserved = True
        leaving.cancel_scope.cancel()
        totals = stage.totals
        stage.check_written(
            (totals.queued, totals.withdrawn) == (1, 20),
            f"20 callers were cancelled; as cancel() returns, {totals.queued - 1} of them are still queued",
            law=1,
        )
    await stayer.back.wait()
    for leaver in leavers:
        stage.check_never_called(leaver, "was cancelled while queued")


@LAW.scenario("a deadline of its scope's own passes while it is queued")
async def scope_deadline(stage: Stage) -> None:
    """It is a deadline like the ticket's."""
    await stage.park("A", answers(10.0))
    late = await stage.park("B")
    late.ticket.scope.deadline = 4.0
    await late.back.wait()
    require(late.back_at == 4.0, f"B's scope ends at 4 s; it came back at {late.back_at:g} s")
    stage.check_error(late, QueueWaitExceeded)


@LAW.scenario("ten deadlines that have passed at the take, and one that has not", capacity=2)
async def ten_passed(stage: Stage) -> None:
    """The take goes on to the first that may still be served."""
    await stage.park("long", answers(60.0))
    await stage.park("A", answers(1.0, at_end=lambda: stage.clock.jump(10.0)))
    late = [await stage.park(f"late {number}", deadline_at=5.0) for number in range(10)]
    behind = await stage.park("B", deadline_at=100.0)
    await behind.back.wait()
    stage.check_answered(behind, at=12.0)
    for caller in late:
        stage.check_error(caller, QueueWaitExceeded)


@LAW.scenario("the one whom it held back is let in as it leaves", capacity=2, needs=("weights",))
async def held_back(stage: Stage) -> None:
    """A wide ticket waits for room, and another that would fit waits behind it."""
    ways: tuple[By | None, ...] = ("own scope", "outer scope", None)
    for by in ways:
        since = trio.current_time()
        long = await stage.park(f"long, {by}", answers(10.0))
        wide = await stage.park(f"wide, {by}", weight=2, deadline_at=since + (1000.0 if by else 3.0))
        small = await stage.park(f"small, {by}")
        if by is not None:
            await trio.sleep(3.0)
            stage.cancel(wide, by)
        await small.back.wait()
        require(
            small.began_at == [since + 3.0],
            f"'wide' left by its {by or 'deadline'} after 3 s; the one that it held back began at {small.began_at}",
        )
        await long.back.wait()


@LAW.scenario("cancelled by what happens as another's call ends")
async def by_another(stage: Stage) -> None:
    """Between a settlement and the take that follows there is no step; but much may be called there."""
    callers: list[Caller] = []

    def cancel_next(_: object = None) -> None:
        stage.cancel(callers[0])

    await stage.park("A", answers(at_end=cancel_next))
    callers.append(await stage.park("B"))
    behind = await stage.park("C", fails(ProviderTimeout("late")), on_provider_timeout=cancel_next)
    await stage.rest()
    await callers[0].back.wait()
    callers[0] = await stage.park("D")
    last = await stage.park("E")
    await last.back.wait()
    stage.check_error(behind, ProviderTimeout)
    stage.check_order("A", "C", "E")
    stage.check_answered(last, at=3.0)


@LAW.scenario("places to wait come back, whoever held them", max_queued=2, calls=("run_nowait",))
async def places(stage: Stage) -> None:
    """A refused ticket was not offered; one that has left holds no place."""
    await stage.park("A", answers(1000.0))
    for rounds in range(5):
        waiting = [await stage.park(f"{name}{rounds}", by_nowait=True) for name in "BC"]
        refused = await stage.park(f"D{rounds}", by_nowait=True)
        require(
            all(not caller.back.is_set() for caller in waiting),
            f"two may wait, and in round {rounds} they come back with {', '.join(caller.fate for caller in waiting)}",
        )
        stage.check_error(refused, LaneFull)
        stage.cancel(waiting[0], "own scope")
        stage.cancel(waiting[1], "outer scope")
        await stage.rest()
    totals = stage.totals
    stage.check_written((totals.offered, totals.withdrawn) == (11, 10), f"11 were offered, 10 left; it says {totals}")
