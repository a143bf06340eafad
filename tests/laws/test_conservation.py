"""Law 6 under any schedule: a state machine that offers, settles, cancels, trips, resizes and closes.

After every step the law is added up, from the lane's own figures, from the ledger's rows, and against what the callers
and their calls saw. A step may be followed by no step of trio at all, by one or two, or by rest: so that whatever two
things can meet in one moment do.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import trio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from our_lanes import maker
from stepwise import Stepwise

from embedkit import (
    Circuit,
    Lane,
    Ledger,
    ProviderBusy,
    ProviderCircuitOpen,
    ProviderError,
    ProviderFailure,
    ProviderTimeout,
    Ticket,
)
from embedkit.testing import seed_schedule
from embedkit.testing.books import ENDINGS, accounted

ATTEMPTS = 2
GROUPS = 3
REST = 99

after = st.sampled_from([0, 0, 1, 2, REST, REST])
which = st.integers(0, 20)

OUTCOMES: dict[str, Callable[[], object]] = {
    "answer": lambda: "answer",
    "busy": lambda: ProviderBusy("later"),
    "failure": lambda: ProviderFailure("no"),
    "timeout": lambda: ProviderTimeout("late"),
}


class RetryBusy:
    """A busy engine is asked once more, a second later."""

    def next_delay(self, error: ProviderError, attempt: int, **_: Any) -> float | None:
        return 1.0 if isinstance(error, ProviderBusy) and attempt < ATTEMPTS else None

    def stay_away(self, error: Exception) -> float | None:
        return None

    def attempt_limit(self, priority: str, **_: Any) -> float | None:
        return None


@attrs.define(eq=False)
class Caller:
    """Somebody with a ticket.

    ``allowed`` is how many calls it may have made when all is over: lowered to what it has made, once something
    happens after which it gets no more.
    """

    ticket: Ticket
    group: int
    around: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    calls: int = 0
    allowed: int = ATTEMPTS
    back: bool = False
    value: object = None
    error: Exception | None = None

    def gets_no_more_calls(self) -> None:
        self.allowed = min(self.allowed, self.calls)


@attrs.define(eq=False)
class Call:
    """A provider call that is out, until it is told how it ends."""

    ending: object = "answer"
    ended: trio.Event = attrs.field(factory=trio.Event)

    def end(self, ending: object) -> None:
        self.ending = ending
        self.ended.set()


class Conservation(RuleBasedStateMachine):
    lane: Lane[None]
    engine: trio.Nursery

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.callers: list[Caller] = []
        self.out: list[Call] = []
        self.circuits = [Circuit(), Circuit()]
        self.past_circuits: list[Circuit] = []
        self.groups: dict[int, trio.Nursery] = {}
        self.shed_at_the_door = 0
        self.wrong: list[str] = []
        self.over = False
        self.trio = Stepwise()

    @initialize(
        settlement=st.sampled_from(["provider", "queue"]),
        capacity=st.integers(1, 4),
        reserve=st.integers(0, 2),
        max_queued=st.sampled_from([1, 2, 100]),
        seed=st.integers(0, 999),
    )
    def begin(self, settlement: Any, capacity: int, reserve: int, max_queued: int, seed: int) -> None:
        seed_schedule(seed)
        self.capacity = capacity

        async def host() -> None:
            async with trio.open_nursery() as self.engine:
                self.lane = maker(settlement)(
                    self.engine,
                    capacity=lambda: self.capacity,
                    reserve=reserve,
                    max_queued=max_queued,
                    retry=RetryBusy(),
                    ledger=self.ledger,
                )
                await trio.sleep_forever()

        async def group(number: int) -> None:
            async with trio.open_nursery() as self.groups[number]:
                await trio.sleep_forever()

        def open_all() -> None:
            self.trio.root.start_soon(host)
            for number in range(GROUPS):
                self.trio.root.start_soon(group, number)

        self._step(open_all, REST)

    # What can happen.

    @precondition(lambda self: self.groups)
    @rule(
        priority=st.sampled_from(["interactive", "batch", "batch", "probe"]),
        weight=st.sampled_from([1, 1, 2, 6]),
        tenant=st.sampled_from("xy"),
        run=st.sampled_from([None, 0, 1]),
        group=which,
        patience=st.sampled_from([math.inf, math.inf, 3.0]),
        limit=st.sampled_from([None, 4.0]),
        after=after,
    )
    def offer(
        self, run: int | None, group: int, patience: float, limit: float | None, after: int, **ticket: Any
    ) -> None:
        circuit = None if run is None else self.circuits[run]
        number = sorted(self.groups)[group % len(self.groups)]

        def offer() -> None:
            deadline = trio.current_time() + patience
            hook = None if circuit is None else circuit.trip
            made = Ticket(circuit=circuit, deadline_at=deadline, timeout=limit, on_provider_timeout=hook, **ticket)
            self.callers.append(Caller(made, number))
            self.groups[number].start_soon(self._call_the_lane, self.callers[-1])

        self._step(offer, after)

    @precondition(lambda self: self.out)
    @rule(number=which, ending=st.sampled_from(sorted(OUTCOMES)), after=after)
    def settle(self, number: int, ending: str, after: int) -> None:
        call = self.out[number % len(self.out)]
        self._step(lambda: call.end(OUTCOMES[ending]()), after)

    @precondition(lambda self: self.callers)
    @rule(number=which, own=st.booleans(), after=after)
    def cancel(self, number: int, own: bool, after: int) -> None:
        caller = self.callers[-1 - number % len(self.callers)]
        scope = caller.ticket.scope if own else caller.around
        self._step(scope.cancel, after, lambda one: one is caller)

    @precondition(lambda self: len(self.groups) > 1)
    @rule(after=after)
    def cancel_a_whole_nursery(self, after: int) -> None:
        number, nursery = self.groups.popitem()
        self._step(nursery.cancel_scope.cancel, after, lambda one: one.group == number)

    @rule(run=st.integers(0, 1), after=after)
    def trip(self, run: int, after: int) -> None:
        circuit, self.circuits[run] = self.circuits[run], Circuit()
        self.past_circuits.append(circuit)
        error = ProviderTimeout("another's")
        self._step(lambda: circuit.trip(error), after, lambda one: one.ticket.circuit is circuit)

    @rule(seconds=st.sampled_from([1.0, 3.0, 5.0, 40.0]), after=after)
    def pass_time(self, seconds: float, after: int) -> None:
        def is_late(one: Caller) -> bool:
            return one.calls == 0 and one.ticket.deadline_at <= trio.current_time() + seconds

        self._step(lambda: self.trio.clock.jump(seconds), after, is_late)

    @rule(capacity=st.integers(1, 4), refresh=st.booleans(), after=after)
    def resize(self, capacity: int, refresh: bool, after: int) -> None:
        self.capacity = capacity
        self._step(self.lane.refresh if refresh else lambda: None, after)

    @precondition(lambda self: len(self.callers) > 3 and not self.over)
    @rule(after=after)
    def close(self, after: int) -> None:
        self.over = True
        self._step(self.lane.close, after, lambda one: one.calls == 0)
        assert self.trio.do(self.lane.statistics).totals.queued == 0

    @precondition(lambda self: len(self.callers) > 3 and not self.over)
    @rule()
    def end_engine(self) -> None:
        self.over = True
        self._step(lambda: self.engine.cancel_scope.cancel(), REST)
        totals = self.trio.do(self.lane.statistics).totals
        assert (totals.queued, totals.in_flight, self.out) == (0, 0, [])
        assert all(caller.back for caller in self.callers)

    def _step(
        self, command: Callable[[], object], after: int, has_enough: Callable[[Caller], bool] = lambda _: False
    ) -> None:
        """``command``, after which those who had enough before it get no more calls; then trio takes so many steps."""

        def step() -> None:
            # Asked here: others may take a step in the tick in which the command comes to its turn.
            enough = [caller for caller in self.callers if has_enough(caller)]
            command()
            for caller in enough:
                caller.gets_no_more_calls()

        self.trio.do(step)
        if after == REST:
            self.trio.rest()
        else:
            self.trio.rounds(after)

    # What the lane's users see.

    async def _call_the_lane(self, caller: Caller) -> None:
        async def call(_: None) -> object:
            return await self._provide(caller)

        try:
            with caller.around:
                circuit = caller.ticket.circuit
                was_open = circuit is not None and circuit.is_open
                try:
                    caller.value = await self.lane.run(call, caller.ticket)
                except Exception as error:
                    caller.error = error
                    self.shed_at_the_door += was_open and isinstance(error, ProviderCircuitOpen)
        finally:
            caller.back = True
            caller.gets_no_more_calls()

    async def _provide(self, caller: Caller) -> object:
        caller.calls += 1
        if caller.calls > caller.allowed:
            self.wrong.append(f"call {caller.calls} of a caller that was to have {caller.allowed}")
        if caller.calls == 1:
            self._check_room(caller.ticket)
        call = Call()
        self.out.append(call)
        try:
            await call.ended.wait()
        finally:
            self.out.remove(call)
        if isinstance(call.ending, Exception):
            raise call.ending
        return call.ending

    def _check_room(self, dispatched: Ticket) -> None:
        seen = self.lane.statistics()
        if seen.tickets_in_flight == 1:
            return  # whatever its weight
        if seen.weight_in_flight > seen.capacity:
            self.wrong.append(f"{seen.weight_in_flight} units in flight, of {seen.capacity}")
        rows = [row for row in self.ledger.open_rows() if row.outcome == "in-flight"]
        patient = sum(row.weight for row in rows if row.priority != "interactive")
        if dispatched.priority != "interactive" and patient > seen.ceiling:
            self.wrong.append(f"{patient} units of batch and probe work, over a ceiling of {seen.ceiling}")

    # What must hold.

    @invariant()
    def each_ticket_is_in_one_place(self) -> None:
        if hasattr(self, "lane"):
            self.trio.do(self._check)

    def _check(self) -> None:
        assert not self.wrong, self.wrong
        totals = self.lane.statistics().totals
        assert totals.offered == accounted(totals), totals
        open_rows = Counter(row.outcome for row in self.ledger.open_rows())
        assert (open_rows["queued"], open_rows["in-flight"]) == (totals.queued, totals.in_flight)
        settled = Counter(row.outcome for row in self.ledger.settled_rows())
        settled["shed"] -= self.shed_at_the_door_so_far(settled["shed"], totals.shed)
        assert all(settled[word] == getattr(totals, word) for word in ENDINGS), (settled, totals)

    def shed_at_the_door_so_far(self, rows: int, shed: int) -> int:
        """Rows of tickets that never touched the lane; their callers may not have run since."""
        assert rows - shed >= self.shed_at_the_door
        return rows - shed

    def teardown(self) -> None:
        try:
            if hasattr(self, "lane"):
                self._end_all()
        finally:
            self.trio.end()

    def _end_all(self) -> None:
        """The lane is closed and every call ends: everybody is back, with what the ledger says."""
        self._step(self.lane.close, REST)
        while self.trio.do(self.lane.statistics).totals.in_flight:
            self._step(self._answer_all, REST)
            self._step(lambda: self.trio.clock.jump(2.0), REST)  # those that sleep between attempts
        self.trio.do(self._check_end)

    def _answer_all(self) -> None:
        for call in self.out:
            call.end("answer")

    def _check_end(self) -> None:
        self._check()
        totals = self.lane.statistics().totals
        assert (totals.queued, totals.in_flight) == (0, 0)
        assert all(caller.back for caller in self.callers)
        shed = Counter(row.outcome for row in self.ledger.settled_rows())["shed"]
        assert shed == totals.shed + self.shed_at_the_door
        assert sum(caller.value is not None for caller in self.callers) <= totals.succeeded
        for circuit in (*self.circuits, *self.past_circuits):
            before = circuit.shed
            circuit.trip(ProviderTimeout("afterwards"))
            assert circuit.shed == before


def _run(examples: int, steps: int) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    run_state_machine_as_test(
        Conservation,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=checks
        ),
    )


def test_every_ticket_is_in_one_place_under_any_schedule() -> None:
    _run(examples=400, steps=8)


@pytest.mark.soak
def test_every_ticket_is_in_one_place_under_any_schedule_for_long() -> None:
    _run(examples=100_000, steps=30)
