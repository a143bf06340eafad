"""Law 2. A slot is freed by the settlement that its lane's kind declares."""

from __future__ import annotations

import trio

from embedkit import DeadlineExceeded, ProviderFailure, ProviderTimeout, TicketWithdrawn
from embedkit.testing.laws.scenario import Law
from embedkit.testing.stage import By, Stage, answers, fails, hangs
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
        require(stage.totals.in_flight == 1, "A left; its call is out, and the lane does not say in flight")
        if by == "own scope":
            stage.check_error(leaver, TicketWithdrawn)
        await behind.back.wait()
        require(leaver.ended_at == [10.0], f"A's call was to run for 10 s, and ended at {leaver.ended_at}")
        _check_began(behind.began_at, 10.0)
        require(stage.totals.succeeded == 2, "A's call succeeded, though A was not there: it counts as succeeded")

    @LAW.scenario(f"the caller leaves, by its {by}, and closing the transport takes time", settlement="queue")
    async def closing(stage: Stage) -> None:
        leaver = await stage.park("A", answers(10.0, closing=2.0))
        behind = await stage.park("B")
        stage.cancel(leaver, by)
        await stage.rest()
        require(stage.totals.in_flight == 1, "A left; its transport is not closed, and its slot is not in flight")
        await behind.back.wait()
        require(leaver.ended_at == [2.0], f"A left at 0 s and closing takes 2 s; its call ended at {leaver.ended_at}")
        _check_began(behind.began_at, 2.0)
        totals = stage.totals
        require((totals.aborted, totals.succeeded) == (1, 1), f"A's end is a closed transport: aborted, not {totals}")


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
    require((stage.totals.in_flight, stage.totals.failed) == (0, 1), "A's detached call failed, and is not settled so")


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
    totals = stage.totals
    require((totals.queued, totals.in_flight) == (0, 0), f"everything ended, and the lane says {totals}")
