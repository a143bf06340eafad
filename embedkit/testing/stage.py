"""A stage for scenarios: a lane, callers with names, calls with scripts, and a trace of what happens between them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import attrs
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from embedkit import Ticket
from embedkit.testing.lane_under_test import LaneUnderTest, Settlement, TotalsUnderTest
from embedkit.testing.trace import Trace, require

By = Literal["own scope", "outer scope"]


@attrs.frozen
class Step:
    """What one attempt does.

    Attributes:
        seconds: How long it takes.
        error: What it ends with; ``None``: it answers with its caller's name.
        closing: Seconds that closing its transport takes, if it is cut off.
        at_end: Called in the call itself, with nothing between that and its end.
    """

    seconds: float = 1.0
    error: BaseException | None = None
    closing: float = 0.0
    at_end: Callable[[], object] | None = None


def answers(seconds: float = 1.0, *, closing: float = 0.0, at_end: Callable[[], object] | None = None) -> Step:
    """An attempt that succeeds after ``seconds``."""
    return Step(seconds, None, closing, at_end)


def fails(error: BaseException, seconds: float = 1.0) -> Step:
    """An attempt that ends with ``error`` after ``seconds``."""
    return Step(seconds, error)


def hangs() -> Step:
    """An attempt that never ends by itself."""
    return Step(math.inf)


@attrs.define(eq=False)
class Caller:
    """Somebody who offers a ticket, and what became of that.

    Attributes:
        name: In traces.
        ticket: Theirs.
        steps: What the attempts do, in order; the last is repeated.
        around: The outer scope of their wait.
        calls: Attempts begun.
        began_at: When each began.
        ended_at: When each ended.
        value: What ``run`` returned.
        error: What it raised, unless that was Cancelled.
        was_cancelled: Whether Cancelled came out of it.
        back: Set when it is back.
        back_at: When that was.
    """

    name: str
    ticket: Ticket
    steps: tuple[Step, ...]
    around: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    calls: int = 0
    began_at: list[float] = attrs.field(factory=list)
    ended_at: list[float] = attrs.field(factory=list)
    value: object = None
    error: Exception | None = None
    was_cancelled: bool = False
    back: trio.Event = attrs.field(factory=trio.Event)
    back_at: float = math.nan


@attrs.define(eq=False)
class Stage:
    """Where a scenario plays.

    Attributes:
        lane: Under test.
        settlement: What its kind declares.
        callers: The nursery in which callers run.
        engine: The nursery in which the lane runs.
        clock: Virtual; it jumps when nothing moves.
        trace: What happened.
        order: The callers' names, as their first calls began.
        out: Weight of the calls that are out now.
        peak: The most that ever was.
        crash: What came out of the lane's nursery, or out of ``run`` where that is no ``Exception``.
    """

    lane: LaneUnderTest
    settlement: Settlement
    callers: trio.Nursery
    engine: trio.Nursery
    clock: MockClock
    trace: Trace
    order: list[str] = attrs.field(factory=list)
    out: int = 0
    peak: int = 0
    crash: BaseException | None = None

    @property
    def totals(self) -> TotalsUnderTest:
        """The lane's, now."""
        return self.lane.statistics().totals

    def offer(self, name: str, *steps: Step, within: trio.Nursery | None = None, **ticket: Any) -> Caller:
        """Start a caller, ``within`` a nursery of its own or not, whose ticket has these fields. It has not run yet."""
        caller = Caller(name, Ticket(**ticket), steps or (answers(),))
        (within or self.callers).start_soon(self._call_the_lane, caller, name=f"caller {name}")
        return caller

    async def park(self, name: str, *steps: Step, **ticket: Any) -> Caller:
        """``offer``, and wait until nothing moves: the caller waits in the lane or its call is out.

        Cancellation:
            The caller goes on.
        """
        caller = self.offer(name, *steps, **ticket)
        await self.rest()
        return caller

    async def rest(self) -> None:
        """Wait until nothing moves.

        Cancellation:
            Nothing changes.
        """
        await wait_all_tasks_blocked()

    def cancel(self, caller: Caller, by: By = "own scope") -> None:
        """Cancel a caller. When this returns, whatever ``cancel()`` does at once has been done."""
        self.trace.note(f"{caller.name}: cancelled by its {by}")
        (caller.ticket.scope if by == "own scope" else caller.around).cancel()

    def end_engine(self) -> None:
        """Cancel the nursery in which the lane runs."""
        self.trace.note("the engine's nursery: cancelled")
        self.engine.cancel_scope.cancel()

    def check_never_called(self, caller: Caller, why: str) -> None:
        """Law: ``caller`` made no call."""
        require(caller.calls == 0, f"{caller.name} {why}, yet {caller.calls} calls were made for it")

    def check_order(self, *names: str) -> None:
        """Law: the calls began in this order."""
        require(self.order == list(names), f"the order of dispatch is {self.order}, not {list(names)}")

    def check_answered(self, caller: Caller, at: float | None = None) -> None:
        """Law: ``caller`` has its answer (since instant ``at``)."""
        require(caller.value == caller.name, f"{caller.name} has no answer: {_fate(caller)}")
        require(at is None or caller.back_at == at, f"{caller.name} was answered at {caller.back_at:g} s, not at {at}")

    def check_error(self, caller: Caller, kind: type[Exception]) -> Exception:
        """Law: ``caller`` has an error of exactly this ``kind``; it is returned."""
        require(type(caller.error) is kind, f"{caller.name} ends with {_fate(caller)}, not {kind.__name__}")
        assert caller.error is not None
        return caller.error

    async def _call_the_lane(self, caller: Caller) -> None:
        async def call(_: object) -> object:
            return await self._attempt(caller)

        self.trace.note(f"{caller.name}: offered ({caller.ticket.priority}, weight {caller.ticket.weight})")
        try:
            with caller.around:
                caller.value = await self.lane.run(call, caller.ticket)
        except trio.Cancelled:
            raise
        except Exception as error:
            caller.error = error
        except BaseException as crash:
            self.crash = crash
        finally:
            caller.was_cancelled = caller.value is None and caller.error is None
            caller.back_at = trio.current_time()
            caller.back.set()
            self.trace.note(f"{caller.name}: back with {_fate(caller)}")

    async def _attempt(self, caller: Caller) -> object:
        step = caller.steps[min(caller.calls, len(caller.steps) - 1)]
        caller.calls += 1
        number = caller.calls
        if number == 1:
            self.order.append(caller.name)
        caller.began_at.append(trio.current_time())
        self.out += caller.ticket.weight
        self.peak = max(self.peak, self.out)
        self.trace.note(f"{caller.name}: call {number} begins")
        ending = "is cut off"
        try:
            await _spend(step)
            ending = f"ends with {type(step.error).__name__}" if step.error is not None else "ends"
        finally:
            self.out -= caller.ticket.weight
            caller.ended_at.append(trio.current_time())
            self.trace.note(f"{caller.name}: call {number} {ending}")
        if step.at_end is not None:
            step.at_end()
        if step.error is not None:
            raise step.error
        return caller.name


async def _spend(step: Step) -> None:
    try:
        if step.seconds == math.inf:
            await trio.sleep_forever()
        await trio.sleep(step.seconds)
    except trio.Cancelled:
        if step.closing:
            with trio.CancelScope(shield=True):
                await trio.sleep(step.closing)
        raise


def _fate(caller: Caller) -> str:
    if caller.value is not None:
        return f"the answer {caller.value!r}"
    if caller.error is not None:
        return f"{type(caller.error).__name__}({caller.error})"
    return "Cancelled" if caller.was_cancelled else "nothing yet"
