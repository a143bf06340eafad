"""Law 6 under any schedule: a state machine that offers, settles, cancels, trips, resizes and closes.

After every step the law is added up, from the lane's own figures, from the ledger's rows, and against what the callers
and their calls saw. A step may be followed by no step of trio at all, by one or two, or by rest: so that whatever two
things can meet in one moment do.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import attrs
import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test
from our_lanes import maker
from stepwise import Stepwise

from embedkit import Circuit, Lane, LaneClosed, Ledger, ProviderBusy, ProviderError, ProviderFailure, ProviderTimeout, Ticket
from embedkit.testing import seed_schedule
from embedkit.testing.laws.conservation import ENDINGS, accounted

ATTEMPTS = 2
REST = 99

after = st.sampled_from([0, 0, 1, 2, REST, REST])
which = st.integers(0, 20)


class RetryBusy:
    """A busy engine is asked once more, a second later."""

    def next_delay(self, error: ProviderError, attempt: int, **_: Any) -> float | None:
        return 1.0 if isinstance(error, ProviderBusy) and attempt < ATTEMPTS else None

    def attempt_limit(self, priority: str, **_: Any) -> float | None:
        return None


OUTCOMES = {
    "answer": lambda: "answer",
    "failure": lambda: ProviderFailure("no"),
    "busy": lambda: ProviderBusy("later"),
    "timeout": lambda: ProviderTimeout("late"),
}


@attrs.define(eq=False)
class Caller:
    ticket: Ticket
    circuit: Circuit | None
    around: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    calls: int = 0
    # Calls it may have made when all is over: lowered to what it has made, once something says that it gets no more.
    allowed: int = ATTEMPTS
    began: bool = False
    back: bool = False
    value: object = None
    error: BaseException | None = None


@attrs.define(eq=False)
class Call:
    """A provider call that is out, until it is told how it ends."""

    caller: Caller
    ending: object = None
    ended: trio.Event = attrs.field(factory=trio.Event)


class Conservation(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.trio = Stepwise()
        self.ledger = Ledger()
        self.capacity = 1
        self.callers: list[Caller] = []
        self.out: list[Call] = []
        self.circuits = [Circuit(), Circuit()]
        self.all_circuits = list(self.circuits)
        self.refused_at_the_door = 0
        self.ended = False
        self.wrong: list[str] = []

    @initialize(
        settlement=st.sampled_from(["provider", "queue"]),
        capacity=st.integers(1, 4),
        reserve=st.integers(0, 2),
        max_queued=st.sampled_from([1, 2, 100]),
        seed=st.integers(0, 999),
    )
    def begin(self, settlement: Any, capacity: int, reserve: int, max_queued: int, seed: int) -> None:
        seed_schedule(seed)
        self.settlement, self.capacity = settlement, capacity
        self.reserve, self.max_queued = reserve, max_queued
        self.trio.do(self._open)
        self.trio.rest()

    def _open(self) -> None:
        self.trio.root.start_soon(self._engine)
        self.groups: list[trio.CancelScope] = [trio.CancelScope(), trio.CancelScope()]

    async def _engine(self) -> None:
        async with trio.open_nursery() as self.engine:
            self.lane: Lane[None] = maker(self.settlement)(
                self.engine,
                capacity=lambda: self.capacity,
                reserve=self.reserve,
                max_queued=self.max_queued,
                retry=RetryBusy(),
                ledger=self.ledger,
            )
            await trio.sleep_forever()

    # What can happen.

    @rule(
        priority=st.sampled_from(["interactive", "batch", "batch", "probe"]),
        weight=st.sampled_from([1, 1, 2, 6]),
        tenant=st.sampled_from("xy"),
        run=st.sampled_from([None, 0, 1]),
        group=st.integers(0, 1),
        patience=st.sampled_from([math.inf, math.inf, 3.0]),
        limit=st.sampled_from([None, 4.0]),
        after=after,
    )
    def offer(self, after: int, **ticket: Any) -> None:
        self._step(lambda: self._offer(**ticket), after)

    def _offer(
        self, run: int | None, group: int, patience: float, limit: float | None, **ticket: Any
    ) -> None:
        circuit = None if run is None else self.circuits[run]
        made = Ticket(
            circuit=circuit,
            deadline_at=trio.current_time() + patience,
            timeout=limit,
            on_provider_timeout=None if circuit is None else circuit.trip,
            **ticket,
        )
        caller = Caller(made, circuit)
        self.callers.append(caller)
        self.trio.root.start_soon(self._call_the_lane, caller, self.groups[group])

    @precondition(lambda self: self.out)
    @rule(number=which, ending=st.sampled_from(sorted(OUTCOMES)), after=after)
    def settle(self, number: int, ending: str, after: int) -> None:
        call = self.out[number % len(self.out)]

        def end() -> None:
            call.ending = OUTCOMES[ending]()
            call.ended.set()

        self._step(end, after)

    @precondition(lambda self: self.callers)
    @rule(number=which, own=st.booleans(), after=after)
    def cancel(self, number: int, own: bool, after: int) -> None:
        caller = self.callers[-1 - number % len(self.callers)]
        self._step(lambda: self._cancel([caller], caller.ticket.scope if own else caller.around), after)

    @rule(group=st.integers(0, 1), after=after)
    def cancel_a_whole_group(self, group: int, after: int) -> None:
        def cancel() -> None:
            scope, self.groups[group] = self.groups[group], trio.CancelScope()
            # Those of the group are not known by name here: whoever leaves is seen by what comes back.
            scope.cancel()

        self._step(cancel, after)

    def _cancel(self, callers: list[Caller], scope: trio.CancelScope) -> None:
        scope.cancel()
        for caller in callers:
            caller.allowed = min(caller.allowed, caller.calls)

    @rule(run=st.integers(0, 1), after=after)
    def trip(self, run: int, after: int) -> None:
        def trip() -> None:
            circuit, self.circuits[run] = self.circuits[run], Circuit()
            self.all_circuits.append(self.circuits[run])
            circuit.trip(ProviderTimeout("another's"))

        self._step(trip, after)

    @rule(seconds=st.sampled_from([1.0, 3.0, 5.0, 40.0]), after=after)
    def pass_time(self, seconds: float, after: int) -> None:
        self._step(lambda: self.trio.clock.jump(seconds), after)

    @rule(capacity=st.integers(1, 4), refresh=st.booleans(), after=after)
    def resize(self, capacity: int, refresh: bool, after: int) -> None:
        def resize() -> None:
            self.capacity = capacity
            if refresh:
                self.lane.refresh()

        self._step(resize, after)

    @precondition(lambda self: len(self.callers) > 3 and not self.ended)
    @rule(after=after, how=st.sampled_from(["close", "close", "end of the engine"]))
    def close(self, after: int, how: str) -> None:
        self.ended = True
        self._step(self.lane.close if how == "close" else self.engine.cancel_scope.cancel, after)

    def _step(self, command: Any, after: int) -> None:
        self.trio.do(command)
        self.trio.do(self._lower)
        if after == REST:
            self.trio.rest()
        else:
            self.trio.rounds(after)

    def _lower(self) -> None:
        """Who gets no further call from now on?"""
        now = trio.current_time()
        for caller in self.callers:
            tripped = caller.circuit is not None and caller.circuit.is_open
            never = caller.calls == 0 and (caller.ticket.deadline_at <= now or self.lane_is_closed)
            if caller.back or tripped or never:
                caller.allowed = min(caller.allowed, caller.calls)

    @property
    def lane_is_closed(self) -> bool:
        return self.ended and self.lane.statistics().totals.queued == 0 and self.settled_at_close

    settled_at_close = False

    # What the lane's users see.

    async def _call_the_lane(self, caller: Caller, group: trio.CancelScope) -> None:
        async def call(_: None) -> object:
            return await self._provide(caller)

        before = self.lane.statistics().totals.offered
        caller.began = True
        try:
            with trio.CancelScope() as member:
                self._join(group, member)
                with caller.around:
                    caller.value = await self.lane.run(call, caller.ticket)
        except Exception as error:
            caller.error = error
            if caller.ticket.attempts == 0 and self.lane.statistics().totals.offered == before:
                self.refused_at_the_door += not isinstance(error, LaneClosed)
        finally:
            caller.back = True

    def _join(self, group: trio.CancelScope, member: trio.CancelScope) -> None: ...

    async def _provide(self, caller: Caller) -> object:
        caller.calls += 1
        if caller.calls > caller.allowed:
            self.wrong.append(f"call {caller.calls} of a caller that was to have {caller.allowed}")
        self._check_room(caller)
        call = Call(caller)
        self.out.append(call)
        try:
            await call.ended.wait()
        finally:
            self.out.remove(call)
        if isinstance(call.ending, Exception):
            raise call.ending
        return call.ending

    def _check_room(self, caller: Caller) -> None:
        seen = self.lane.statistics()
        if caller.calls > 1 or seen.tickets_in_flight == 1:
            return
        if seen.weight_in_flight > seen.capacity:
            self.wrong.append(f"{seen.weight_in_flight} units in flight, of {seen.capacity}")
        if caller.ticket.priority != "interactive":
            rows = [row for row in self.ledger.open_rows() if row.outcome == "in-flight"]
            patient = sum(row.weight for row in rows if row.priority != "interactive")
            if patient > seen.ceiling:
                self.wrong.append(f"{patient} units of batch and probe work, over a ceiling of {seen.ceiling}")

    # What must hold.

    @invariant()
    def law_6(self) -> None:
        if hasattr(self, "lane"):
            self.trio.do(self._check)

    def _check(self) -> None:
        assert not self.wrong, self.wrong
        totals = self.lane.statistics().totals
        assert totals.offered == accounted(totals), totals
        rows = self.ledger.open_rows()
        words = Counter(row.outcome for row in rows)
        assert (words["queued"], words["in-flight"]) == (totals.queued, totals.in_flight)

    def teardown(self) -> None:
        try:
            if hasattr(self, "lane"):
                self._finish()
        finally:
            self.trio.end()

    def _finish(self) -> None:
        """Everything ends, and everybody is back."""
