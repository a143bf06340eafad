"""Law 5. Retries belong to the ticket and hold its slot; only the final failure counts."""

from __future__ import annotations

import attrs
import trio

from embedkit import Circuit, ModelNotResident, ProviderBusy, ProviderError, ProviderFailure, ProviderTimeout
from embedkit.testing.laws.scenario import Law
from embedkit.testing.stage import Stage, Step, answers, fails
from embedkit.testing.trace import require

LAW = Law(5)


@attrs.frozen
class UpTo:
    """Every failure is tried again, up to so many attempts, after two seconds each time.

    Attributes:
        attempts: So many.
        delay: Seconds before the next.
        limit: Of an attempt, in seconds; ``None``: the ticket's own alone.
        asked: What it was asked: the number of the attempt that failed, and the seconds slept so far.
    """

    attempts: int
    delay: float = 2.0
    limit: float | None = None
    asked: list[tuple[int, float]] = attrs.field(factory=list, eq=False)

    def next_delay(
        self, error: ProviderError, attempt: int, *, priority: str, spent: float, has_deadline: bool
    ) -> float | None:
        """See ``Retry.next_delay``."""
        self.asked.append((attempt, spent))
        return self.delay if attempt < self.attempts else None

    def stay_away(self, error: ProviderError) -> float | None:
        """The ``retry_after`` of the error."""
        return error.retry_after

    def attempt_limit(self, priority: str, *, has_deadline: bool) -> float | None:
        """Its ``limit``."""
        return self.limit


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
    require(first.calls == 3, f"A was to make three calls, and made {first.calls}")
    require(second.began_at == [7.0], f"A held the slot until 7 s, its sleeps included; B began at {second.began_at}")
    stage.check_written(stage.totals.failed == 0, "an intermediate failure was counted", law=5)


@LAW.scenario("three timeouts are one", retry=UpTo(3))
async def gives_up(stage: Stage) -> None:
    """The last counts, once."""
    heard: list[Exception] = []
    first = await stage.park("A", *_timeouts(3), on_provider_timeout=heard.append)
    await first.back.wait()
    error = stage.check_error(first, ProviderTimeout)
    require(str(error) == "attempt 3" and heard == [error], f"A ends with {error}, and the hook heard {heard}")
    stage.check_written(stage.totals.failed == 1, f"one ticket failed; the lane counts {stage.totals.failed}", law=5)


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


@LAW.scenario("a retry that would begin at the very deadline is not begun", retry=UpTo(3))
async def at_the_deadline(stage: Stage) -> None:
    """It could not even start."""
    caller = await stage.park("A", *_timeouts(3), deadline_at=3.0)
    await caller.back.wait()
    require(caller.calls == 1 and caller.back_at == 1.0, f"A makes {caller.calls} calls, until {caller.back_at:g} s")


@LAW.scenario("each attempt has a limit of its own, and sleeps are not in it", retry=UpTo(3))
async def limits(stage: Stage) -> None:
    """The ticket's limit is that of one attempt."""
    caller = await stage.park("A", answers(9.0), answers(9.0), answers(2.5), timeout=3.0)
    behind = await stage.park("B", answers(2.0), timeout=3.0)
    await behind.back.wait()
    require(caller.began_at == [0.0, 5.0, 10.0], f"two attempts of 3 s and sleeps of 2 s: begun at {caller.began_at}")
    stage.check_answered(caller, at=12.5)
    stage.check_answered(behind, at=14.5)


_SHORT = UpTo(1, limit=3.0)


@LAW.scenario("the policy has a limit of an attempt too, and the shorter one counts", retry=_SHORT)
async def limit_of_policy(stage: Stage) -> None:
    """Whoever gave it."""
    for timeout, expected in ((None, 3.0), (2.0, 2.0), (5.0, 3.0)):
        began = trio.current_time()
        caller = await stage.park(f"A{timeout}", answers(9.0), timeout=timeout)
        await caller.back.wait()
        stage.check_error(caller, ProviderTimeout)
        spent = caller.back_at - began
        require(spent == expected, f"a ticket's {timeout} s and a policy's 3 s: the attempt was cut after {spent:g} s")


_ASKED = UpTo(3)


@LAW.scenario("the policy is told how many attempts there were, and how long it slept", retry=_ASKED)
async def asked(stage: Stage) -> None:
    """Once after each failure."""
    _ASKED.asked.clear()
    caller = await stage.park("A", *_timeouts(3))
    await caller.back.wait()
    require(
        _ASKED.asked == [(1, 0.0), (2, 2.0), (3, 4.0)], f"attempts and seconds slept that it was told: {_ASKED.asked}"
    )


def _busy(seconds: float) -> ProviderBusy:
    return ProviderBusy("later", retry_after=seconds)


@LAW.scenario("an engine that wants to be left alone is left alone", capacity=2, retry=UpTo(1))
async def left_alone(stage: Stage) -> None:
    """By everybody; and a later, shorter hint does not shorten an earlier one."""
    await stage.park("A", fails(_busy(10.0)))
    await stage.park("B", fails(_busy(1.0), 2.0))
    third = await stage.park("C")
    await trio.sleep(5.0)
    fourth = await stage.park("D")
    await fourth.back.wait()
    for caller in (third, fourth):
        require(
            caller.began_at == [11.0], f"the engine is to be left alone until 11 s; {caller.name}: {caller.began_at}"
        )
    await stage.run_dry()


@LAW.scenario("a hint holds the retries of others, too", capacity=2, retry=UpTo(2))
async def holds_retries(stage: Stage) -> None:
    """They sleep until it is over."""
    other = await stage.park("B", fails(ProviderFailure("no"), 0.5), answers())
    await stage.park("A", fails(_busy(10.0)), answers())
    await other.back.wait()
    require(other.began_at == [0.0, 11.0], f"the engine is to be left alone until 11 s; B began at {other.began_at}")


@LAW.scenario("a retry that the deadline forbids is not begun", retry=UpTo(3))
async def deadline(stage: Stage) -> None:
    """Its own failure stands: there is no use in sleeping until the deadline."""
    caller = await stage.park("A", *_timeouts(3), deadline_at=2.5)
    await caller.back.wait()
    error = stage.check_error(caller, ProviderTimeout)
    require(str(error) == "attempt 1" and caller.back_at == 1.0, f"A ends with {error} at {caller.back_at:g} s")
