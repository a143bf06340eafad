"""Law 5. Retries belong to the ticket and hold its slot; only the final failure counts."""

from __future__ import annotations

import attrs
import trio

from embedkit import Circuit, ModelNotResident, ProviderBusy, ProviderError, ProviderTimeout
from embedkit.testing.laws.scenario import Law
from embedkit.testing.stage import Stage, Step, answers, fails
from embedkit.testing.trace import require

LAW = Law(5)


@attrs.frozen
class UpTo:
    """Every failure is tried again, up to so many attempts, after two seconds each time."""

    attempts: int
    delay: float = 2.0

    def next_delay(
        self, error: ProviderError, attempt: int, *, priority: str, spent: float, has_deadline: bool
    ) -> float | None:
        """See ``Retry.next_delay``."""
        return self.delay if attempt < self.attempts else None

    def stay_away(self, error: ProviderError) -> float | None:
        """``None``."""
        return None

    def attempt_limit(self, priority: str, *, has_deadline: bool) -> float | None:
        """``None``."""
        return None


def _timeouts(count: int) -> list[Step]:
    return [fails(ProviderTimeout(f"attempt {number}")) for number in range(1, count + 1)]


@LAW.scenario("timeout, timeout, answer: nobody is told of the two", retry=UpTo(3))
async def recovers(stage: Stage) -> None:
    """And the slot is held from the first attempt to the last."""
    heard: list[Exception] = []
    first = await stage.park("A", *_timeouts(2), answers(), on_provider_timeout=heard.append)
    second = await stage.park("B")
    await second.back.wait()
    require(not heard, f"intermediate failures reached the hook: {heard}")
    stage.check_answered(first, at=7.0)
    require(first.calls == first.ticket.attempts == 3, f"{first.calls} calls; the ticket says {first.ticket.attempts}")
    require(second.began_at == [7.0], f"A held the slot until 7 s, its sleeps included; B began at {second.began_at}")
    require(stage.totals.failed == 0, "an intermediate failure was counted")


@LAW.scenario("three timeouts are one", retry=UpTo(3))
async def gives_up(stage: Stage) -> None:
    """The last counts, once."""
    heard: list[Exception] = []
    first = await stage.park("A", *_timeouts(3), on_provider_timeout=heard.append)
    await first.back.wait()
    error = stage.check_error(first, ProviderTimeout)
    require(str(error) == "attempt 3" and heard == [error], f"A ends with {error}, and the hook heard {heard}")
    require(stage.totals.failed == 1, f"one ticket failed; the lane counts {stage.totals.failed}")


@LAW.scenario("busy and model-load failures between attempts", retry=UpTo(3))
async def contention(stage: Stage) -> None:
    """They never were timeouts."""
    heard: list[Exception] = []
    steps = [fails(ProviderBusy("later")), fails(ModelNotResident("loading")), answers()]
    caller = await stage.park("A", *steps, on_provider_timeout=heard.append)
    await caller.back.wait()
    stage.check_answered(caller, at=7.0)
    require(not heard, f"the hook heard {heard}")


@LAW.scenario("the circuit trips between two attempts", retry=UpTo(3))
async def tripped(stage: Stage) -> None:
    """No further attempt; the last error is the outcome."""
    circuit, heard = Circuit(), list[Exception]()
    caller = await stage.park("A", *_timeouts(3), circuit=circuit, on_provider_timeout=heard.append)
    await trio.sleep(2.0)
    circuit.trip(ProviderTimeout("another's"))
    await caller.back.wait()
    error = stage.check_error(caller, ProviderTimeout)
    require(str(error) == "attempt 1" and caller.calls == 1, f"A ends with {error} after {caller.calls} calls")
    require(caller.back_at == 2.0, f"the circuit tripped at 2 s; A came back at {caller.back_at:g} s")


@LAW.scenario("the caller leaves between two attempts", retry=UpTo(3))
async def left(stage: Stage) -> None:
    """No further attempt, and the slot is free."""
    leaver = await stage.park("A", *_timeouts(3))
    second = await stage.park("B")
    await trio.sleep(2.0)
    stage.cancel(leaver)
    await second.back.wait()
    require(leaver.calls == 1, f"A left after its first attempt, and {leaver.calls} were made")
    require(second.began_at == [2.0], f"A left between attempts at 2 s; B began at {second.began_at}")


@LAW.scenario("a retry that the deadline forbids is not begun", retry=UpTo(3))
async def deadline(stage: Stage) -> None:
    """Its own failure stands: there is no use in sleeping until the deadline."""
    caller = await stage.park("A", *_timeouts(3), deadline_at=2.5)
    await caller.back.wait()
    error = stage.check_error(caller, ProviderTimeout)
    require(str(error) == "attempt 1" and caller.back_at == 1.0, f"A ends with {error} at {caller.back_at:g} s")
