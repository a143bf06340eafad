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


def _check_clocks(caller: Caller, queue_wait: float, provider_time: float, retry_wait: float = 0.0) -> None:
    expected = Clocks(queue_wait, provider_time, retry_wait)
    require(caller.ticket.clocks == expected, f"{caller.name}: {caller.ticket.clocks}, not {expected}")


def _check_failure(caller: Caller, kind: type[EmbedkitError], attribution: str, *clocks: float) -> None:
    error = caller.error
    require(type(error) is kind, f"{caller.name} ends with {error!r}, not {kind.__name__}")
    assert isinstance(error, EmbedkitError)
    expected = Clocks(*clocks)
    require(error.clocks == expected, f"{caller.name}'s error carries {error.clocks}, not {expected}")
    require(error.attribution == attribution, f"{caller.name}'s failure is put down to {error.attribution}")


@LAW.scenario("an answer after a wait and a retry", retry=UpTo(2))
async def three_times(stage: Stage) -> None:
    """Each second is in one of the three."""
    await trio.sleep(10.0)
    await stage.park("A", answers(3.0))
    second = await stage.park("B", fails(ProviderFailure("no"), 1.5), answers(2.5))
    await second.back.wait()
    _check_clocks(second, 3.0, 4.0, 2.0)


@LAW.scenario("a failure whose wait was longer than the provider's time")
async def queue_caused(stage: Stage) -> None:
    """It says so; the other way round as well."""
    await stage.park("A", answers(5.0))
    waited = await stage.park("B", fails(ProviderFailure("no"), 1.0))
    served = await stage.park("C", fails(ProviderFailure("no"), 7.0))
    await served.back.wait()
    _check_failure(waited, ProviderFailure, "queue", 5.0, 1.0, 0.0)
    _check_failure(served, ProviderFailure, "provider", 6.0, 7.0, 0.0)


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
    _check_failure(late, QueueWaitExceeded, "queue", 2.0, 0.0, 0.0)
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
    _check_failure(late, DeadlineExceeded, "provider", 1.0, 3.0, 0.0)
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
    _check_failure(late, ProviderTimeout, "queue", 5.0, 2.0, 0.0)


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
    require(shed.ticket.clocks.provider_time == 0.0, f"B made no call; its clocks are {shed.ticket.clocks}")
    require(shed.ticket.clocks.queue_wait >= 3.0, f"B waited for 3 s at least; its clocks are {shed.ticket.clocks}")
    _check_failure(withdrawn, TicketWithdrawn, "queue", 4.0, 0.0, 0.0)


@LAW.scenario("a detached call's time runs to its own end", settlement="provider")
async def detached(stage: Stage) -> None:
    """Not to the moment when its caller left."""
    leaver = await stage.park("A", answers(8.0))
    stage.cancel(leaver, "outer scope")
    await trio.sleep(10.0)
    _check_clocks(leaver, 0.0, 8.0)


@LAW.scenario("an aborted call's time ends with its transport", settlement="queue")
async def aborted(stage: Stage) -> None:
    """Closing counts."""
    leaver = await stage.park("A", answers(8.0, closing=2.0))
    stage.cancel(leaver, "outer scope")
    behind = await stage.park("B")
    await behind.back.wait()
    _check_clocks(leaver, 0.0, 2.0)
    _check_clocks(behind, 2.0, 1.0)
