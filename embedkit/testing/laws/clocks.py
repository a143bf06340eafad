"""Law 7. Three times are kept apart, and a failure that the queue caused is never the provider's."""

from __future__ import annotations

import trio

from embedkit import (
    Circuit,
    Clocks,
    DeadlineExceeded,
    EmbedkitError,
    ProviderFailure,
    ProviderTimeout,
    QueueWaitExceeded,
    TicketWithdrawn,
    is_provider_timeout,
)
from embedkit.testing.laws.retries import UpTo
from embedkit.testing.laws.scenario import Law
from embedkit.testing.stage import Caller, Stage, answers, fails
from embedkit.testing.trace import require

LAW = Law(7)


def _check_clocks(
    stage: Stage, caller: Caller, queue_wait: float, provider_time: float, retry_wait: float = 0.0
) -> None:
    expected = Clocks(queue_wait, provider_time, retry_wait)
    stage.check_written(
        caller.ticket.clocks == expected, f"{caller.name}: {caller.ticket.clocks}, not {expected}", law=7
    )


def _check_failure(stage: Stage, caller: Caller, kind: type[EmbedkitError], attribution: str, *clocks: float) -> None:
    error = stage.check_error(caller, kind)
    assert isinstance(error, EmbedkitError)
    expected = Clocks(*clocks)
    stage.check_written(
        error.clocks == expected, f"{caller.name}'s error carries {error.clocks}, not {expected}", law=7
    )
    stage.check_written(
        error.attribution == attribution, f"{caller.name}'s failure is put down to {error.attribution}", law=7
    )


@LAW.scenario("an answer after a wait and a retry", retry=UpTo(2))
async def three_times(stage: Stage) -> None:
    """Each second is in one of the three."""
    await trio.sleep(10.0)
    await stage.park("A", answers(3.0))
    second = await stage.park("B", fails(ProviderFailure("no"), 1.5), answers(2.5))
    await second.back.wait()
    _check_clocks(stage, second, 3.0, 4.0, 2.0)


@LAW.scenario("a failure whose wait was longer than the provider's time")
async def queue_caused(stage: Stage) -> None:
    """It says so; the other way round as well."""
    await stage.park("A", answers(5.0))
    waited = await stage.park("B", fails(ProviderFailure("no"), 1.0))
    served = await stage.park("C", fails(ProviderFailure("no"), 7.0))
    await served.back.wait()
    _check_failure(stage, waited, ProviderFailure, "queue", 5.0, 1.0, 0.0)
    _check_failure(stage, served, ProviderFailure, "provider", 6.0, 7.0, 0.0)


@LAW.scenario("a deadline that the queue ate")
async def eaten(stage: Stage) -> None:
    """It has its own name, makes no call, trips nothing; and freeing the lane later sends nothing."""
    heard: list[Exception] = []
    await trio.sleep(10.0)  # the clock does not begin with the lane
    await stage.park("A", answers(5.0))
    late = await stage.park("B", deadline_at=12.0, on_provider_timeout=heard.append)
    behind = await stage.park("C")
    await behind.back.wait()
    stage.check_never_called(late, "had a deadline that the queue ate")
    _check_failure(stage, late, QueueWaitExceeded, "queue", 2.0, 0.0, 0.0)
    require(
        not heard and not is_provider_timeout(late.error), "a deadline is the caller's, and was told as the provider's"
    )


@LAW.scenario("a deadline that passes while the call is out")
async def impatient(stage: Stage) -> None:
    """The caller's patience, not the provider's time."""
    heard: list[Exception] = []
    await stage.park("A", answers(1.0))
    late = await stage.park("B", answers(9.0), deadline_at=4.0, on_provider_timeout=heard.append)
    await late.back.wait()
    _check_failure(stage, late, DeadlineExceeded, "provider", 1.0, 3.0, 0.0)
    require(
        not heard and not is_provider_timeout(late.error), "a deadline is the caller's, and was told as the provider's"
    )


@LAW.scenario("a timeout's time is the provider's")
async def timed_out(stage: Stage) -> None:
    """The limit counts from the dispatch, not from the offer."""
    await stage.park("A", answers(5.0))
    late = await stage.park("B", answers(9.0), timeout=2.0)
    await late.back.wait()
    require(late.back_at == 7.0, f"the limit was to begin with the dispatch at 5 s; it passed at {late.back_at:g} s")
    _check_failure(stage, late, ProviderTimeout, "queue", 5.0, 2.0, 0.0)


@LAW.scenario("tickets that were never dispatched have no provider time")
async def never_dispatched(stage: Stage) -> None:
    """Shed and withdrawn ones alike."""
    circuit = Circuit()
    await trio.sleep(10.0)
    await stage.park("A", answers(9.0))
    shed = await stage.park("B", circuit=circuit)
    withdrawn = await stage.park("C")
    await trio.sleep(3.0)
    circuit.trip(ProviderTimeout("another's"))
    await trio.sleep(1.0)
    stage.cancel(withdrawn)
    await shed.back.wait()
    await withdrawn.back.wait()
    _check_clocks(stage, shed, 3.0, 0.0)
    _check_failure(stage, withdrawn, TicketWithdrawn, "queue", 4.0, 0.0, 0.0)


@LAW.scenario("a detached call's time runs to its own end", settlement="provider")
async def detached(stage: Stage) -> None:
    """Not to the moment when its caller left."""
    leaver = await stage.park("A", answers(8.0))
    stage.cancel(leaver, "outer scope")
    await trio.sleep(10.0)
    _check_clocks(stage, leaver, 0.0, 8.0)


@LAW.scenario("an aborted call's time ends with its transport", settlement="queue")
async def aborted(stage: Stage) -> None:
    """Closing counts."""
    leaver = await stage.park("A", answers(8.0, closing=2.0))
    stage.cancel(leaver, "outer scope")
    behind = await stage.park("B")
    await behind.back.wait()
    _check_clocks(stage, leaver, 0.0, 2.0)
    _check_clocks(stage, behind, 2.0, 1.0)


@LAW.scenario("clocks that somebody has been given do not change")
async def given(stage: Stage) -> None:
    """The caller leaves with an error that says how it was then; its call goes on, or closes for two seconds more."""
    leaver = await stage.park("A", answers(8.0, closing=2.0))
    await trio.sleep(3.0)
    stage.cancel(leaver)
    await leaver.back.wait()
    before = getattr(leaver.error, "clocks", None)
    await trio.sleep(10.0)
    stage.check_written(before == Clocks(0.0, 3.0, 0.0), f"A left after 3 s with the clocks {before}", law=7)
    after = getattr(leaver.error, "clocks", None)
    stage.check_written(before == after, f"A's error said {before}, and later {after}", law=7)
    _check_clocks(stage, leaver, 0.0, 8.0 if stage.settlement == "provider" else 5.0)


@LAW.scenario("a limit begins with the attempt, though the ticket waited", capacity=2, retry=UpTo(2))
async def limit_after_wait(stage: Stage) -> None:
    """A long wait, or a first attempt, takes nothing away."""
    for name in "AB":
        await stage.park(name, answers(20.0))
    waiting = await stage.park("C", fails(ProviderFailure("no"), 2.0), answers(2.5), timeout=3.0)
    await waiting.back.wait()
    stage.check_answered(waiting, at=26.5)
    _check_clocks(stage, waiting, 20.0, 4.5, 2.0)
