"""A stage for scenarios: a lane, callers with names, calls with scripts, and a trace of what happens between them.

The stage knows what every lane owes at every moment, whatever the scenario is about: no more calls out than there is
room, nobody served who has left, whose run has tripped or whose deadline is over, first come first served within a
tenant. It says so as soon as it sees otherwise.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import attrs
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from embedkit import Ids, Ledger, Ticket
from embedkit.testing.caller import By as By
from embedkit.testing.caller import Caller as Caller
from embedkit.testing.caller import Ending
from embedkit.testing.caller import Step as Step
from embedkit.testing.caller import answers as answers
from embedkit.testing.caller import fails as fails
from embedkit.testing.caller import hangs as hangs
from embedkit.testing.lane_under_test import Feature, LaneUnderTest, Settlement, TotalsUnderTest
from embedkit.testing.trace import Findings, Trace, require


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
        capacity: Of the lane; ``None``: nothing is said about it.
        reserve: Of the lane.
        without: What the lane does not have: tickets are made without it.
        ledger: The lane's, for those that keep one.
        findings: What is wrong with the lane, so far.
        everybody: All callers, in the order they came on.
        order: The callers' names, as their first calls began.
        out: Weight of the calls that are out now.
        peak: The most that ever was.
        crash: What came out of the lane's nursery, or out of ``run`` where that is no ``Exception``.
        is_closed: The scenario has closed the lane.
        is_over: The scenario has ended the lane's nursery.
        over_at: When that was.
    """

    lane: LaneUnderTest
    settlement: Settlement
    callers: trio.Nursery
    engine: trio.Nursery
    clock: MockClock
    trace: Trace
    capacity: int | None = None
    reserve: int = 0
    without: frozenset[Feature] = frozenset()
    ledger: Ledger | None = None
    findings: Findings = attrs.field(factory=Findings)
    everybody: list[Caller] = attrs.field(factory=list)
    order: list[str] = attrs.field(factory=list)
    out: int = 0
    peak: int = 0
    crash: BaseException | None = None
    is_closed: bool = False
    is_over: bool = False
    over_at: float = math.inf
    _patient: int = 0
    # Those of a class and tenant who have called the lane, in that order; whoever need not be served leaves the front.
    _lines: dict[tuple[str, str | None], deque[Caller]] = attrs.field(factory=dict)
    # Who was passed by whom, and when.
    _passed: dict[Caller, tuple[Caller, float]] = attrs.field(factory=dict)
    _call_ended: trio.Event = attrs.field(factory=trio.Event)

    @property
    def totals(self) -> TotalsUnderTest:
        """The lane's, now."""
        return self.lane.statistics().totals

    def offer(
        self, name: str, *steps: Step, within: trio.Nursery | None = None, by_nowait: bool = False, **ticket: Any
    ) -> Caller:
        """Start a caller, ``within`` a nursery of its own or not, whose ticket has these fields. It has not run yet."""
        if "tenants" in self.without:
            ticket.pop("tenant", None)
        if "weights" in self.without:
            ticket.pop("weight", None)
        caller = Caller(name, Ticket(**{"ids": Ids(run=name), **ticket}), steps or (answers(),), by_nowait)
        self.everybody.append(caller)
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

    async def run_dry(self) -> None:
        """Wait until everybody is back and no call is out any more.

        Cancellation:
            Nothing changes.
        """
        for caller in self.everybody:
            await caller.back.wait()
        while self.out:
            await self._call_ended.wait()
        await self.rest()

    async def next_call(self) -> None:
        """Wait until a call has ended, and whatever follows has begun.

        Cancellation:
            Nothing changes.
        """
        await self._call_ended.wait()
        await self.rest()

    def cancel(self, caller: Caller, by: By = "own scope") -> None:
        """Cancel a caller. When this returns, whatever ``cancel()`` does at once has been done."""
        self.trace.note(f"{caller.name}: cancelled by its {by}")
        if not caller.calls and not caller.back.is_set():
            caller.left_unserved = True
        (caller.ticket.scope if by == "own scope" else caller.around).cancel()

    def close(self) -> None:
        """Close the lane."""
        self.trace.note("the lane: closed")
        self.is_closed = True
        self.lane.close()

    def end_engine(self) -> None:
        """Cancel the nursery in which the lane runs."""
        self.trace.note("the engine's nursery: cancelled")
        self.is_over = True
        self.over_at = trio.current_time()
        self.engine.cancel_scope.cancel()

    def resize(self, capacity: int) -> None:
        """The lane's capacity is another from now on. Only for lanes that have ``refresh``."""
        self.trace.note(f"the capacity: {capacity}")
        self.capacity = capacity
        self.lane.refresh()  # type: ignore[attr-defined]  # such scenarios are played with lanes that have it

    def check_written(self, holds: bool, otherwise: str, law: int = 6) -> None:
        """What the lane writes down: noted if it is not so, and the scenario goes on."""
        if not holds:
            self.findings.wrote(law, otherwise)

    def check_never_called(self, caller: Caller, why: str) -> None:
        """Law: ``caller`` made no call."""
        require(caller.calls == 0, f"{caller.name} {why}, yet {caller.calls} calls were made for it")

    def check_order(self, *names: str) -> None:
        """Law: the calls began in this order."""
        require(self.order == list(names), f"the order of dispatch is {self.order}, not {list(names)}")

    def check_answered(self, caller: Caller, at: float | None = None) -> None:
        """Law: ``caller`` has its answer (since instant ``at``)."""
        require(caller.value == caller.name, f"{caller.name} has no answer: {caller.fate}")
        require(at is None or caller.back_at == at, f"{caller.name} was answered at {caller.back_at:g} s, not at {at}")

    def check_error(self, caller: Caller, kind: type[Exception]) -> Exception:
        """Law: ``caller`` has an error of exactly this ``kind``; it is returned."""
        require(type(caller.error) is kind, f"{caller.name} ends with {caller.fate}, not {kind.__name__}")
        assert caller.error is not None
        return caller.error

    async def _call_the_lane(self, caller: Caller) -> None:
        async def call(_: object) -> object:
            return await self._attempt(caller)

        ticket = caller.ticket
        self.trace.note(f"{caller.name}: offered ({ticket.priority}, weight {ticket.weight})")
        caller.offered_at = trio.current_time()
        self._lines.setdefault((ticket.priority, ticket.tenant), deque()).append(caller)
        try:
            with caller.around:
                if caller.by_nowait:
                    caller.value = await self.lane.run_nowait(call, ticket)  # type: ignore[attr-defined]
                else:
                    caller.value = await self.lane.run(call, ticket)
        except trio.Cancelled:
            raise
        except Exception as error:
            caller.error = error
        except BaseException as crash:
            self.crash = crash
        finally:
            caller.was_cancelled = caller.value is None and caller.error is None
            caller.back_at = trio.current_time()
            self._judge_passed(caller)
            caller.back.set()
            self.trace.note(f"{caller.name}: back with {caller.fate}")

    async def _attempt(self, caller: Caller) -> object:
        step = caller.step()
        self._begin(caller)
        ending: Ending = "cut"
        try:
            await step.spend()
            if step.at_end is not None:
                step.at_end()
            ending = "value" if step.error is None else "error"
        finally:
            self._end(caller, ending)
        if step.error is not None:
            raise step.error
        return caller.name

    def _begin(self, caller: Caller) -> None:
        self._judge_call(caller)
        caller.calls += 1
        if caller.calls == 1:
            self.order.append(caller.name)
        caller.began_at.append(trio.current_time())
        weight = caller.ticket.weight
        self.out += weight
        self.peak = max(self.peak, self.out)
        if caller.ticket.priority != "interactive":
            self._patient += weight
        self.trace.note(f"{caller.name}: call {caller.calls} begins")

    def _end(self, caller: Caller, ending: Ending) -> None:
        weight = caller.ticket.weight
        self.out -= weight
        if caller.ticket.priority != "interactive":
            self._patient -= weight
        caller.ended_at.append(trio.current_time())
        caller.endings.append(ending)
        words = {"cut": "is cut off", "value": "ends", "error": f"ends with {type(caller.last_step.error).__name__}"}
        self.trace.note(f"{caller.name}: call {caller.calls} {words[ending]}")
        self._call_ended.set()
        self._call_ended = trio.Event()

    # What every call owes.

    def _judge_call(self, caller: Caller) -> None:
        """A call is about to begin: may it?"""
        did, name = self.findings.did, caller.name
        ticket, number = caller.ticket, caller.calls + 1
        if caller.left_unserved:
            did(1, f"{name} was cancelled before its first call, and call {number} is made for it")
        elif number > 1 and caller.left:
            did(5, f"{name} has left, and attempt {number} is made for it")
        if ticket.circuit is not None and ticket.circuit.is_open:
            did(3 if number == 1 else 5, f"the circuit of {name} is open, and call {number} is made for it")
        if ticket.deadline_at <= trio.current_time():
            did(1 if number == 1 else 5, f"the deadline of {name} is over, and call {number} is made for it")
        if self.is_over or (self.is_closed and number == 1):
            did(6, f"the lane has ended, and call {number} is made for {name}")
        if number == 1:
            self._judge_turn(caller)
        if caller.is_out:
            did(5, f"two attempts of {name} are out at once")
        # A retry holds its slot, though the capacity has shrunk meanwhile.
        if self.capacity is not None and self.out and number == 1:
            self._judge_room(caller, self.capacity)

    def _judge_room(self, caller: Caller, capacity: int) -> None:
        ticket, sum_ = caller.ticket, self.out + caller.ticket.weight
        if sum_ > capacity:
            # Whose call went on though they had left, and whose slot did not, is a question of settlement.
            self.findings.did(2, f"a lane of {capacity} has calls of weight {sum_} out, as {caller.name} begins")
        ceiling = max(capacity - self.reserve, 1)
        if ticket.priority != "interactive" and self._patient + ticket.weight > ceiling:
            self.findings.did(
                4, f"batch work may use {ceiling} of {capacity}; {caller.name} begins as {self._patient} are in use"
            )

    def _judge_turn(self, caller: Caller) -> None:
        """First come first served, within a class and tenant."""
        self._judge_passed(caller)
        line = self._lines[caller.ticket.priority, caller.ticket.tenant]
        while line and line[0] is not caller and not line[0].is_waiting:
            line.popleft()
        if line and line[0] is not caller:
            # Two that were dispatched in one instant may begin in any order: their tasks do.
            self._passed.setdefault(line[0], (caller, trio.current_time()))

    def _judge_passed(self, caller: Caller) -> None:
        """Somebody may have begun before ``caller``, who came earlier: was that in the very instant?"""
        passed_by, at = self._passed.pop(caller, (None, math.inf))
        if passed_by is not None and at < trio.current_time():
            self.findings.did(4, f"{passed_by.name} began before {caller.name}, who came earlier, of the same flow")
