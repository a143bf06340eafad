"""Law 2. A slot is freed by the settlement that its lane's kind declares."""

from __future__ import annotations

from typing import Any

import trio

from embedkit import DeadlineExceeded, ProviderFailure, ProviderTimeout, TicketWithdrawn
from embedkit.testing.laws.scenario import Law
from embedkit.testing.stage import By, Caller, Stage, answers, fails, hangs
from embedkit.testing.trace import require

LAW = Law(2)


def _each_scope(by: By) -> None:
    @LAW.scenario(f"the caller leaves, by its {by}, and the provider's call goes on", settlement="provider")
    async def detached(stage: Stage) -> None:
        leaver = await stage.park("A", answers(10.0))
        behind = await stage.park("B")
        stage.cancel(leaver, by)
        await leaver.back.wait()
        require(trio.current_time() == 0.0, "A was cancelled, and did not come back at once")
        stage.check_written(stage.totals.in_flight == 1, "A left; its call is out, and the lane does not say in flight")
        if by == "own scope":
            stage.check_error(leaver, TicketWithdrawn)
        await behind.back.wait()
        require(leaver.ended_at == [10.0], f"A's call was to run for 10 s, and ended at {leaver.ended_at}")
        _check_began(behind.began_at, 10.0)
        stage.check_written(
            stage.totals.succeeded == 2, "A's call succeeded, though A was not there: it counts as succeeded", law=2
        )

    @LAW.scenario(f"the caller leaves, by its {by}, and closing the transport takes time", settlement="queue")
    async def closing(stage: Stage) -> None:
        leaver = await stage.park("A", answers(10.0, closing=2.0))
        behind = await stage.park("B")
        stage.cancel(leaver, by)
        await stage.rest()
        stage.check_written(
            stage.totals.in_flight == 1, "A left; its transport is not closed, and its slot is not in flight", law=2
        )
        await behind.back.wait()
        require(leaver.ended_at == [2.0], f"A left at 0 s and closing takes 2 s; its call ended at {leaver.ended_at}")
        _check_began(behind.began_at, 2.0)
        totals = stage.totals
        stage.check_written(
            (totals.aborted, totals.succeeded) == (1, 1), f"A's end is a closed transport: aborted, not {totals}", law=2
        )


_each_scope("own scope")
_each_scope("outer scope")


def _check_began(began_at: list[float], at: float) -> None:
    require(began_at == [at], f"the slot was free at {at:g} s; B's call began at {began_at}")


@LAW.scenario("the caller's deadline passes while the provider's call goes on", settlement="provider")
async def impatient(stage: Stage) -> None:
    """A deadline is a leaving like any other."""
    leaver = await stage.park("A", answers(10.0), deadline_at=3.0)
    behind = await stage.park("B")
    await leaver.back.wait()
    require(trio.current_time() == 3.0, "A's deadline is at 3 s, and A did not come back then")
    stage.check_error(leaver, DeadlineExceeded)
    await behind.back.wait()
    _check_began(behind.began_at, 10.0)


@LAW.scenario("the caller's deadline passes and the transport is closed", settlement="queue")
async def impatient_queue(stage: Stage) -> None:
    """A deadline is a leaving like any other."""
    leaver = await stage.park("A", hangs(), deadline_at=3.0)
    behind = await stage.park("B")
    await leaver.back.wait()
    stage.check_error(leaver, DeadlineExceeded)
    await behind.back.wait()
    _check_began(behind.began_at, 3.0)


@LAW.scenario("a detached call that ends in a timeout is a settlement like any other", settlement="provider")
async def late_timeout(stage: Stage) -> None:
    """The hook hears of it although nobody waits."""
    heard: list[Exception] = []
    error = ProviderTimeout("late")
    leaver = await stage.park("A", fails(error, 5.0), on_provider_timeout=heard.append)
    stage.cancel(leaver)
    await trio.sleep(6.0)
    require(heard == [error], f"A's detached call ended in a timeout; its hook heard {heard}")
    stage.check_written(
        (stage.totals.in_flight, stage.totals.failed) == (0, 1),
        "A's detached call failed, and is not settled so",
        law=2,
    )


@LAW.scenario("callers leave and come, and there are never more calls out than the lane has room for", capacity=3)
async def crowd(stage: Stage) -> None:
    """Whatever settles a slot, it is freed once."""
    for number in range(24):
        step = fails(ProviderFailure("no"), 2.0) if number % 4 == 1 else answers(3.0, closing=1.0)
        caller = await stage.park(str(number), step)
        if number % 3 == 0:
            stage.cancel(caller, "outer scope" if number % 2 else "own scope")
        if number % 5 == 4:
            await trio.sleep(1.0)
    await trio.sleep(100.0)
    require(stage.peak == 3, f"a lane of 3 had calls of weight {stage.peak} out at once")


@LAW.scenario("a caller leaves in the very step in which its call ends")
async def at_the_end(stage: Stage) -> None:
    """What has come is settled as it is; and whatever was to cut that call does not hit the next one."""
    for by in ("own scope", "outer scope"):
        for error in (None, ProviderFailure("no")):
            since = trio.current_time()
            callers: list[Caller] = []

            def leave(callers: list[Caller] = callers, by: str = by) -> None:
                stage.cancel(callers[0], "own scope" if by == "own scope" else "outer scope")

            step = answers(at_end=leave) if error is None else fails(error, at_end=leave)
            callers.append(stage.offer(f"A, {by}, {error}", step))
            await stage.rest()
            behind = await stage.park(f"B, {by}, {error}", answers(3.0))
            await behind.back.wait()
            stage.check_answered(behind, at=since + 4.0)


class _Leaves:
    """A listener of the ledger that cancels a caller at the n-th change of its row."""

    def __init__(self, stage: Stage, caller: Caller, change: int) -> None:
        self._stage = stage
        self._caller = caller
        self._left = change

    def changed(self, row: Any) -> None:
        if row.run == self._caller.name:
            self._left -= 1
            if self._left == 0:
                self._stage.cancel(self._caller, "outer scope")


def _each_change(change: int) -> None:
    @LAW.scenario(f"a caller leaves as the ledger hears of it for the {change}. time")
    async def heard(stage: Stage) -> None:
        # Whoever listens to the ledger may do anything, in the middle of a step of the lane.
        assert stage.ledger is not None
        for error in (None, ProviderFailure("no")):
            caller = stage.offer(f"A, {error}", answers(2.0) if error is None else fails(error, 2.0))
            stage.ledger.attach(_Leaves(stage, caller, change))
            await stage.rest()
            behind = await stage.park(f"B, {error}", answers(3.0))
            await behind.back.wait()
            stage.check_answered(behind)


# Opened, and then the end of its attempt and its settlement: in between it is dispatched, and no call is out yet.
for _change in (1, 4, 5):
    _each_change(_change)


@LAW.scenario("the limit of an attempt passes in the very step in which it ends")
async def limit_at_the_end(stage: Stage) -> None:
    """An answer is an answer; and the next attempt has a limit of its own."""
    first = await stage.park("A", answers(at_end=lambda: stage.clock.jump(5.0)), timeout=3.0)
    second = await stage.park("B", answers(4.0), timeout=5.0)
    third = await stage.park("C", answers(100.0))
    await third.back.wait()
    stage.check_answered(first, at=6.0)
    stage.check_answered(second, at=10.0)
    stage.check_answered(third, at=110.0)


@LAW.scenario("a closing transport fails, and the call is aborted all the same", settlement="queue")
async def closing_fails(stage: Stage) -> None:
    """What a call raises when it is cut is no outcome, not even a provider timeout."""
    heard: list[Exception] = []
    for number, error in enumerate((ProviderTimeout("cut"), ProviderFailure("cut"), OSError("cut"))):
        leaver = await stage.park(
            f"A{number}", answers(10.0, closing=1.0, if_cut=error), on_provider_timeout=heard.append
        )
        behind = await stage.park(f"B{number}", answers(3.0))
        stage.cancel(leaver, "outer scope")
        await behind.back.wait()
        stage.check_answered(behind)
    require(not heard, f"a caller's leaving was told as a provider timeout: {heard}")


@LAW.scenario("what a call raises is its ticket's outcome, whatever it is")
async def any_error(stage: Stage) -> None:
    """A bug in a call costs nobody else anything."""
    for number, error in enumerate((ZeroDivisionError("a bug"), ExceptionGroup("two", [OSError("a"), OSError("b")]))):
        first = await stage.park(f"A{number}", fails(error))
        second = await stage.park(f"B{number}")
        await second.back.wait()
        require(first.error is error, f"the call raised {error!r}; its caller got {first.fate}")
        stage.check_answered(second)


@LAW.scenario("a slot is used again and again, whatever became of the last call in it", capacity=2)
async def again(stage: Stage) -> None:
    """Answered, failed, timed out, left: in every order."""
    number = 0
    for first in range(4):
        for second in range(4):
            for kind in (first, second, 0):
                number += 1
                step = fails(ProviderFailure("no")) if kind == 1 else answers(2.0, closing=0.5)
                caller = stage.offer(str(number), step, timeout=1.0 if kind == 2 else 100.0)
                await stage.rest()
                if kind == 3:
                    stage.cancel(caller, "own scope" if number % 2 else "outer scope")
                if number % 2:
                    await trio.sleep(3.0)
    await stage.run_dry()
    for caller in stage.everybody:
        require(caller.calls == 1, f"{caller.name} made {caller.calls} calls")
        if caller.last_step.error is None and caller.ticket.timeout == 100.0 and not caller.left:
            stage.check_answered(caller)
