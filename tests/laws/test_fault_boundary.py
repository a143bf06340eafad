"""What a ticket, a policy, a recorder, a capacity or a connection brings along fails one ticket, or nobody."""

from __future__ import annotations

import contextlib
import math
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import pytest
import trio
from our_lanes import KINDS, SETTLEMENTS, connect, open_house
from trio.testing import MockClock, wait_all_tasks_blocked

from embedkit import (
    BudgetLane,
    CapacityLane,
    Circuit,
    DeadlineExceeded,
    FairOrder,
    LaneClosed,
    LaneFull,
    Ledger,
    NoRetry,
    ProviderBusy,
    ProviderCircuitOpen,
    ProviderFailure,
    ProviderTimeout,
    QueueWaitExceeded,
    Ticket,
    TicketWithdrawn,
    UsageError,
)
from embedkit.activity.rows import TicketRow
from embedkit.admission.slots import PORTION
from embedkit.testing import Settlement
from embedkit.testing.stage import answers, fails, hangs

NAN = math.nan


async def _never_called(_: None) -> None:
    raise AssertionError("nobody may make this call")


async def _answer(_: None) -> str:
    await trio.sleep(1.0)
    return "answer"


# What a ticket brings along.


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"priority": "urgent"}, "priority must be one of interactive, batch, probe, not 'urgent'"),
        ({"priority": ["batch"]}, "priority must be one of"),
        ({"tenant": ["a", "list"]}, "tenant must be a string, or None"),
        ({"tenant": 7}, "tenant must be a string, or None, not 7"),
        ({"timeout": NAN}, "timeout must be a positive number of seconds, not nan"),
        ({"timeout": 0}, "timeout must be a positive number of seconds, not 0"),
        ({"timeout": "5"}, "timeout must be a positive number of seconds, not '5'"),
        ({"deadline_at": NAN}, "deadline_at must be an instant of trio's clock, not nan"),
        ({"deadline_at": "soon"}, "deadline_at must be an instant of trio's clock, not 'soon'"),
    ],
)
def test_what_no_lane_could_use_is_refused_as_the_ticket_is_made(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Ticket(**fields)


@pytest.mark.parametrize(("field", "value"), [("priority", "urgent"), ("tenant", []), ("timeout", NAN), ("weight", 0)])
@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_a_ticket_that_was_spoiled_afterwards_is_refused_as_it_is_offered(
    field: str, value: Any, settlement: Settlement, autojump_clock: MockClock
) -> None:
    ticket, circuit = Ticket(), Circuit()
    ticket.circuit = circuit
    setattr(ticket, field, value)
    async with open_house(settlement, autojump_clock) as house:
        with pytest.raises(ValueError, match=f"a ticket's {field} must be"):
            await house.lane.run(_never_called, ticket)
        assert (house.lane.statistics().totals.offered, house.rows()) == (0, [])
        house.check_over(circuit)


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_a_scope_that_was_used_is_refused_before_anything_is_counted(
    settlement: Settlement, autojump_clock: MockClock
) -> None:
    async with open_house(settlement, autojump_clock) as house:
        used, offered = Ticket(), Ticket()
        with used.scope:
            pass
        await house.lane.run(_answer, offered)
        for ticket in (used, offered):
            with pytest.raises(UsageError, match="make a new one for each call"):
                await house.lane.run(_never_called, ticket)
        assert (house.endings, len(house.rows())) == ({"succeeded": 1}, 1)


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_a_deadline_of_its_own_scope_counts_as_its_deadline(
    settlement: Settlement, autojump_clock: MockClock
) -> None:
    async with open_house(settlement, autojump_clock) as house:
        await house.stage.park("blocker", answers(10.0))
        queued, out = Ticket(), Ticket()
        queued.scope.deadline = 5.0
        with pytest.raises(QueueWaitExceeded):
            await house.lane.run(_never_called, queued)
        assert trio.current_time() == 5.0
        out.scope.deadline = 10.5
        with pytest.raises(DeadlineExceeded):
            await house.lane.run(_answer, out)
        assert trio.current_time() == 10.5


# What a policy says.


@attrs.define
class Says(NoRetry):
    """A policy that gives one answer to each question; one that is an exception is raised."""

    hint: Any = None
    delay: Any = None
    limit: Any = None

    def stay_away(self, error: Any) -> Any:
        return self._say(self.hint)

    def next_delay(self, error: Any, attempt: int, **_: Any) -> Any:
        return self._say(self.delay) if attempt == 1 else None

    def attempt_limit(self, priority: str, **_: Any) -> Any:
        return self._say(self.limit)

    def _say(self, answer: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer


BAD = [NAN, math.inf, -math.inf, "soon", RuntimeError("x"), True, [1.0]]


@pytest.mark.parametrize("settlement", SETTLEMENTS)
@pytest.mark.parametrize("question", ["hint", "delay", "limit"])
@pytest.mark.parametrize("said", BAD, ids=repr)
async def test_an_answer_that_is_no_number_of_seconds_is_none(
    said: Any, question: str, settlement: Settlement, autojump_clock: MockClock
) -> None:
    async with open_house(settlement, autojump_clock, retry=Says(**{question: said})) as house:
        innocent = await house.stage.park("innocent", answers(0.5))
        failing = await house.stage.park("failing", fails(ProviderBusy("later")))
        behind = await house.stage.park("behind", answers(1.0))
        await behind.back.wait()
        house.stage.check_answered(innocent)
        house.stage.check_error(failing, ProviderBusy)
        house.stage.check_answered(behind, at=2.5)
        assert failing.calls == 1


async def test_a_hint_that_lies_a_moment_back_holds_nobody(autojump_clock: MockClock) -> None:
    async with open_house("queue", autojump_clock, retry=Says(hint=-0.2, delay=-0.2)) as house:
        first = await house.stage.park("first", fails(ProviderBusy("later")), answers())
        second = await house.stage.park("second")
        await second.back.wait()
        house.stage.check_answered(first, at=2.0)
        house.stage.check_answered(second, at=3.0)


@attrs.define
class Hints(NoRetry):
    """Tries again after a second; passes on the hints of errors."""

    def stay_away(self, error: Any) -> Any:
        return error.retry_after

    def next_delay(self, error: Any, attempt: int, **_: Any) -> Any:
        return 1.0


def _busy(retry_after: float | None) -> ProviderBusy:
    return ProviderBusy("later", retry_after=retry_after)


async def test_a_hint_holds_the_retries_of_tickets_in_flight_too_and_is_not_shortened(
    autojump_clock: MockClock,
) -> None:
    async with open_house("queue", autojump_clock, capacity=3, retry=Hints()) as house:
        told = await house.stage.park("told", fails(_busy(20.0), 1.0), answers(1.0))
        other = await house.stage.park("other", fails(_busy(None), 0.5), answers(1.0))
        shorter = await house.stage.park("shorter", fails(_busy(2.0), 1.2), answers(1.0))
        await other.back.wait()
        # `other` would have tried again at 1.5 s; the engine asked at 1.0 s to be left alone until 21.0 s.
        assert told.began_at == [0.0, 21.0]
        assert other.began_at == [0.0, 21.0]
        assert shorter.began_at == [0.0, 21.0]
        assert other.ticket.clocks.retry_wait == 20.5


async def test_a_hint_beyond_the_deadline_of_a_ticket_ends_it_at_once(autojump_clock: MockClock) -> None:
    async with open_house("queue", autojump_clock, capacity=2, retry=Hints()) as house:
        late = await house.stage.park("late", fails(_busy(None), 0.5), answers(1.0), deadline_at=10.0)
        await house.stage.park("told", fails(_busy(20.0), 1.0), answers(1.0))
        await late.back.wait()
        house.stage.check_error(late, ProviderBusy)
        assert late.back_at == 1.5  # when it would have tried again


async def test_a_retry_that_could_begin_only_as_the_deadline_passes_is_not_begun(autojump_clock: MockClock) -> None:
    async with open_house("queue", autojump_clock, retry=Hints()) as house:
        caller = await house.stage.park("A", fails(_busy(None), 1.0), answers(0.5), deadline_at=2.0)
        await caller.back.wait()
        house.stage.check_error(caller, ProviderBusy)
        assert (caller.calls, caller.back_at) == (1, 1.0)


class Nameless(Hints):
    """A policy whose method is an object without a name."""

    def __init__(self) -> None:
        self.stay_away = partial(self._raise)  # type: ignore[method-assign]

    def _raise(self, _: Any) -> Any:
        raise RuntimeError("x")


@pytest.mark.parametrize("policy", [Nameless(), object()])
async def test_a_policy_that_has_no_such_method_or_no_name_for_it_says_nothing(
    policy: Any, autojump_clock: MockClock
) -> None:
    async with open_house("queue", autojump_clock, retry=policy) as house:
        failing = await house.stage.park("failing", fails(_busy(None)), answers())
        behind = await house.stage.park("behind")
        await behind.back.wait()
        await failing.back.wait()
        house.stage.check_answered(behind)


class Ticking(trio.abc.Clock):
    """A real clock in small: each reading is later than the one before, if it is told so."""

    def __init__(self) -> None:
        self.now = self.step = 0.0

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        self.now += self.step
        return self.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        if self.now < deadline < self.now + 1e6:
            self.now = deadline
        return 0.0 if deadline < self.now + 1e6 else 1e6


@pytest.mark.parametrize("offset", range(14))
def test_a_hint_that_ends_between_two_readings_of_the_clock_strands_nobody(offset: int) -> None:
    clock = Ticking()

    async def busy(_: None) -> None:
        raise _busy(10.0)

    async def answer(_: None) -> str:
        return "answer"

    async def main() -> None:
        async with trio.open_nursery() as engine:
            lane = CapacityLane(
                "here", nursery=engine, connect=connect, capacity=1, ledger=Ledger(), retry=Says(hint=10.0)
            )
            with pytest.raises(ProviderBusy):
                await lane.run(busy, Ticket())
            for _ in range(3):
                await trio.lowlevel.checkpoint()
            clock.now = 10.0 - 1e-6 * (offset + 0.5)
            clock.step = 1e-6
            with trio.fail_after(100.0):
                assert await lane.run(answer, Ticket()) == "answer"
            lane.close()

    trio.run(main, clock=clock)


# What an order does.


class Breaks(FairOrder[Any]):
    """An order one of whose methods raises from now on."""

    def break_now(self, method: str) -> None:
        setattr(self, method, self._raise)

    def _raise(self, *_: object, **__: object) -> Any:
        raise ZeroDivisionError


@pytest.mark.parametrize("settlement", SETTLEMENTS)
@pytest.mark.parametrize("method", ["add", "remove", "choose", "commit", "settle"])
async def test_an_order_that_raises_ends_the_lane_and_strands_nobody(
    method: str, settlement: Settlement, autojump_clock: MockClock
) -> None:
    order, outcomes = Breaks(), Counter[str]()

    async def caller(scope: trio.CancelScope) -> None:
        with scope:
            try:
                await lane.run(_answer, Ticket())
                outcomes["answered"] += 1
            except (LaneClosed, ZeroDivisionError):
                outcomes["refused"] += 1

    scopes = [trio.CancelScope() for _ in range(6)]
    async with trio.open_nursery() as engine:
        lane = KINDS[settlement]("here", nursery=engine, connect=connect, capacity=2, ledger=Ledger(), order=order)
        async with trio.open_nursery() as callers:
            for scope in scopes[:5]:
                callers.start_soon(caller, scope)
                await wait_all_tasks_blocked()
            order.break_now(method)
            scopes[2].cancel()
            callers.start_soon(caller, scopes[5])
        lane.close()
        await lane.drained()
    assert outcomes["answered"] >= 2
    assert outcomes.total() + scopes[2].cancelled_caught == 6


async def test_each_of_many_offers_opens_a_slot_though_connections_come_slowly(autojump_clock: MockClock) -> None:
    opened = 0

    @asynccontextmanager
    async def slow() -> AsyncGenerator[None]:
        nonlocal opened
        opened += 1
        await trio.sleep(10.0)
        yield

    async with trio.open_nursery() as engine:
        lane = CapacityLane("here", nursery=engine, connect=slow, capacity=8, ledger=Ledger())
        began_at = trio.current_time()
        async with trio.open_nursery() as callers:
            for _ in range(8):
                callers.start_soon(lane.run, _answer, Ticket())
        assert trio.current_time() == began_at + 11.0
        assert opened == 8
        await lane.run(_answer, Ticket())
        assert opened == 8
        lane.close()


# What a recorder does.


class Raises:
    """A recorder that raises at each call."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def method(*_: object, **__: object) -> Any:
            raise RuntimeError(f"{name}: the text of an input")

        return method


class RaisesOnce(Ledger):
    """A ledger one of whose methods raises."""

    def __init__(self, method: str, error: BaseException) -> None:
        super().__init__()
        self._error = error
        setattr(self, method, self._raise)

    def _raise(self, *_: object, **__: object) -> Any:
        raise self._error


@pytest.mark.parametrize("settlement", SETTLEMENTS)
@pytest.mark.parametrize(
    "ledger",
    [
        Raises(),
        *(
            RaisesOnce(name, error("the text of an input"))
            for name in ("open", "dispatched", "attempt_started", "attempt_ended", "settled")
            for error in (RuntimeError, SystemExit)
        ),
    ],
)
async def test_a_recorder_that_raises_is_counted_and_changes_nothing(
    ledger: Any, settlement: Settlement, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with trio.open_nursery() as engine:
        lane = KINDS[settlement]("here", nursery=engine, connect=connect, capacity=1, ledger=ledger)
        assert await lane.run(_answer, Ticket()) == "answer"
        with trio.move_on_after(0.5):
            await lane.run(_answer, Ticket())
        lane.close()
        await lane.drained()
    statistics = lane.statistics()
    assert statistics.totals.offered == statistics.totals.accounted == 2
    assert statistics.ledger_failures >= 2
    assert len([record for record in caplog.records if "the ledger raised" in record.message]) == 1
    assert "the text of an input" not in caplog.text


class Meddler:
    """A listener that does something, once, when a row comes to a certain outcome."""

    def __init__(self, at: str, do: Callable[[], object]) -> None:
        self.at = at
        self.do: Callable[[], object] | None = do

    def changed(self, row: TicketRow) -> None:
        if row.outcome == self.at and self.do is not None:
            do, self.do = self.do, None
            do()


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_a_recorder_that_closes_the_lane_during_an_offer(
    settlement: Settlement, autojump_clock: MockClock
) -> None:
    async with open_house(settlement, autojump_clock) as house:
        await house.stage.park("A", answers(2.0))
        house.ledger.attach(Meddler("queued", house.lane.close))
        caller = await house.stage.park("B")
        house.stage.check_error(caller, LaneClosed)
        assert (caller.calls, house.endings, house.row().outcome) == (0, {}, "shed")
        house.shed_at_the_door = 1
        await house.lane.drained()


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_a_recorder_that_trips_the_circuit_during_an_offer(
    settlement: Settlement, autojump_clock: MockClock
) -> None:
    circuit = Circuit()
    async with open_house(settlement, autojump_clock) as house:
        house.ledger.attach(Meddler("queued", lambda: circuit.trip(ProviderTimeout("another's"))))
        caller = await house.stage.park("A", circuit=circuit)
        house.stage.check_error(caller, ProviderCircuitOpen)
        assert (caller.calls, house.lane.statistics().totals.offered) == (0, 0)
        house.shed_at_the_door = 1
        house.check_over(circuit)


@pytest.mark.parametrize("settlement", SETTLEMENTS)
@pytest.mark.parametrize("at", ["shed", "withdrawn", "in-flight", "succeeded"])
@pytest.mark.parametrize("does", ["trip", "close", "cancel", "refresh"])
async def test_a_recorder_that_meddles_in_the_middle_of_a_step_strands_nobody(
    does: str, at: str, settlement: Settlement, autojump_clock: MockClock
) -> None:
    circuit = Circuit()
    async with open_house(settlement, autojump_clock, capacity=2) as house:
        out = [await house.stage.park(f"out{n}", answers(3.0), circuit=circuit) for n in range(2)]
        queued = [await house.stage.park(f"queued{n}", circuit=circuit if n % 2 else None) for n in range(6)]
        deeds: dict[str, Callable[[], object]] = {
            "trip": lambda: circuit.trip(ProviderTimeout("another's")),
            "close": house.lane.close,
            "cancel": lambda: [caller.around.cancel() for caller in queued[1:4]],
            "refresh": house.lane.refresh,
        }
        house.ledger.attach(Meddler(at, deeds[does]))
        queued[0].around.cancel()
        await trio.sleep(1.0)
        house.lane.close()
        for caller in [*out, *queued]:
            await caller.back.wait()
        await house.lane.drained()
        house.check_over(circuit)


# What a capacity does.


class Stop(BaseException):
    """Stands for what is no Exception."""


@pytest.mark.parametrize("settlement", SETTLEMENTS)
@pytest.mark.parametrize("raised", [RuntimeError("x"), Stop()])
async def test_a_capacity_that_raises_at_an_offer_raises_there_and_counts_nothing(
    raised: BaseException, settlement: Settlement, autojump_clock: MockClock
) -> None:
    answer: list[BaseException] = []

    def capacity() -> int:
        if answer:
            raise answer.pop()
        return 1

    async with open_house(settlement, autojump_clock, capacity=capacity) as house:
        answer.append(raised)
        with pytest.raises(type(raised)):
            await house.lane.run(_never_called, Ticket())
        assert (house.lane.statistics().totals.offered, house.rows()) == (0, [])
        assert await house.lane.run(_answer, Ticket()) == "answer"


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_a_capacity_that_stops_at_a_settlement_leaves_nobody_parked(
    settlement: Settlement, autojump_clock: MockClock
) -> None:
    armed = False

    def capacity() -> int:
        if armed:
            raise Stop
        return 1

    with pytest.RaisesGroup(Stop, flatten_subgroups=True):
        async with open_house(settlement, autojump_clock, capacity=capacity) as house:
            first = await house.stage.park("A", answers(1.0))
            queued = [await house.stage.park(name) for name in "BC"]
            armed = True
            for caller in (first, *queued):
                await caller.back.wait()
            house.stage.check_answered(first)
            assert [type(caller.error) for caller in queued] == [LaneClosed, LaneClosed]
            house.check_over()


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_a_capacity_may_close_the_lane_and_call_back(settlement: Settlement, autojump_clock: MockClock) -> None:
    deeds: list[Callable[[], object]] = []

    def capacity() -> int:
        for deed in deeds:
            deed()
        return 1

    async with open_house(settlement, autojump_clock, capacity=capacity) as house:
        deeds += [house.lane.refresh, house.lane.statistics]
        assert await house.lane.run(_answer, Ticket()) == "answer"
        waiting = await house.stage.park("A", answers(5.0))
        deeds.append(house.lane.close)
        with pytest.raises(LaneClosed):
            await house.lane.run(_never_called, Ticket())
        await waiting.back.wait()
        house.stage.check_answered(waiting)
        house.shed_at_the_door = 1
        await house.lane.drained()


async def test_a_shrink_does_not_retire_the_last_slot_that_can_work(autojump_clock: MockClock) -> None:
    connections = 0
    capacity = 2

    @asynccontextmanager
    async def slow_but_for_the_first() -> AsyncGenerator[None]:
        nonlocal connections
        connections += 1
        if connections > 1:
            await trio.sleep(100.0)
        yield
        await trio.sleep(100.0)

    async with trio.open_nursery() as engine:
        lane = CapacityLane(
            "here", nursery=engine, connect=slow_but_for_the_first, capacity=lambda: capacity, ledger=Ledger()
        )
        async with trio.open_nursery() as callers:
            for _ in range(2):
                callers.start_soon(lane.run, _answer, Ticket())
        assert trio.current_time() == 2.0  # the second slot is still connecting
        capacity = 1
        lane.refresh()
        assert await lane.run(_answer, Ticket()) == "answer"
        assert trio.current_time() == 3.0
        await trio.sleep(100.0)
        assert lane.statistics().slots == 1
        assert await lane.run(_answer, Ticket()) == "answer"
        lane.close()


# What a connection and a call do.


class OddError(ProviderFailure):
    """An error of somebody's own: its code and status are properties that raise, and it takes no attributes."""

    def __init__(self) -> None:
        Exception.__init__(self, "odd")

    @property
    def code(self) -> str:  # type: ignore[override]
        raise ZeroDivisionError

    @property
    def status(self) -> int:  # type: ignore[override]
        raise ZeroDivisionError

    @property
    def clocks(self) -> None:  # type: ignore[override]
        raise ZeroDivisionError


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_an_error_whose_very_attributes_raise_is_its_ticket_s_outcome(
    settlement: Settlement, autojump_clock: MockClock
) -> None:
    async with open_house(settlement, autojump_clock) as house:
        odd = await house.stage.park("odd", fails(OddError()), on_provider_timeout=lambda _: None)
        behind = await house.stage.park("behind")
        await behind.back.wait()
        house.stage.check_error(odd, OddError)
        house.stage.check_answered(behind, at=2.0)
        assert (house.row(0).outcome, house.row(0).code) == ("failed", "unknown")


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_a_connection_that_raises_as_it_closes_is_logged(
    settlement: Settlement, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    @asynccontextmanager
    async def breaks_at_the_end() -> AsyncGenerator[None]:
        try:
            yield
        finally:
            raise OSError("the text of an input")

    async with trio.open_nursery() as engine:
        lane = KINDS[settlement]("here", nursery=engine, connect=breaks_at_the_end, capacity=1, ledger=Ledger())
        assert await lane.run(_answer, Ticket()) == "answer"
        lane.close()
        await wait_all_tasks_blocked()
    assert "a connection raised OSError as it was closed" in caplog.text
    assert "the text of an input" not in caplog.text


async def test_nobody_connects_again_and_again_for_nobody(autojump_clock: MockClock) -> None:
    tries = 0

    @asynccontextmanager
    async def never() -> AsyncGenerator[None]:
        nonlocal tries
        tries += 1
        raise OSError("no way there")
        yield

    async with trio.open_nursery() as engine:
        lane = CapacityLane("here", nursery=engine, connect=never, capacity=1, ledger=Ledger())
        with pytest.raises(ProviderFailure):
            await lane.run(_never_called, Ticket())
        await trio.sleep(1000.0)
        assert (tries, lane.statistics().slots) == (1, 0)
        lane.close()


@pytest.mark.parametrize("settlement", SETTLEMENTS)
@pytest.mark.parametrize(
    "beside", [OSError("x"), ProviderFailure("of the transport"), ExceptionGroup("x", [OSError()])]
)
async def test_a_timeout_whose_transport_raises_while_it_closes_is_still_a_timeout(
    beside: Exception, settlement: Settlement, autojump_clock: MockClock
) -> None:
    circuit = Circuit()

    async def call(_: None) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise beside

    async with open_house(settlement, autojump_clock) as house:
        with pytest.raises(ProviderTimeout):
            await house.lane.run(call, Ticket(timeout=5.0, circuit=circuit, on_provider_timeout=circuit.trip))
        assert isinstance(circuit.cause, ProviderTimeout)
        assert house.row().code == "KB_VECTOR_EMBED_PROVIDER_TIMEOUT"
        assert await house.lane.run(_answer, Ticket()) == "answer"


async def test_a_timeout_of_a_call_with_a_nursery_of_its_own_is_still_a_timeout(autojump_clock: MockClock) -> None:
    async def breaks() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise OSError("x")

    async def call(_: None) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(breaks)
            nursery.start_soon(trio.sleep_forever)

    async with open_house("provider", autojump_clock) as house:
        with pytest.raises(ProviderTimeout):
            await house.lane.run(call, Ticket(timeout=5.0))


@pytest.mark.parametrize("reply", [ProviderTimeout("of its own"), ProviderBusy("later"), OSError("x")])
async def test_a_caller_s_abort_never_trips_whatever_the_provider_answers_to_the_cut(
    reply: Exception, autojump_clock: MockClock
) -> None:
    circuit = Circuit()

    async def call(_: None) -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            raise reply from None

    async with open_house("queue", autojump_clock) as house:
        with trio.move_on_after(1.0):
            await house.lane.run(call, Ticket(circuit=circuit, on_provider_timeout=circuit.trip))
        await house.stage.rest()
        assert not circuit.is_open
        assert house.endings == {"aborted": 1}


async def test_an_answer_that_comes_in_spite_of_the_abort_is_an_answer(autojump_clock: MockClock) -> None:
    async def call(_: None) -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(3.0)
        return "answer"

    async with open_house("queue", autojump_clock) as house:
        with trio.move_on_after(1.0):
            await house.lane.run(call, Ticket())
        await trio.sleep(5.0)
        assert house.endings == {"succeeded": 1}
        assert house.row().detached


async def test_the_clocks_of_a_raised_error_do_not_change_afterwards(autojump_clock: MockClock) -> None:
    ticket = Ticket()
    async with open_house("queue", autojump_clock) as house:
        caught: list[TicketWithdrawn] = []

        async def caller() -> None:
            try:
                await house.lane.run(_closes_slowly, ticket)
            except TicketWithdrawn as error:
                caught.append(error)

        house.stage.callers.start_soon(caller)
        await trio.sleep(1.0)
        ticket.scope.cancel()
        await house.stage.rest()
        clocks = caught[0].clocks
        await trio.sleep(10.0)
        assert caught[0].clocks == clocks
        assert clocks is not None
        assert (clocks.provider_time, ticket.clocks.provider_time) == (1.0, 4.0)


async def _closes_slowly(_: None) -> None:
    try:
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            await trio.sleep(3.0)


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_who_is_answered_was_there_when_its_row_was_closed(
    settlement: Settlement, autojump_clock: MockClock
) -> None:
    async with open_house(settlement, autojump_clock) as house:
        await (await house.stage.park("A")).back.wait()
        await (await house.stage.park("B", fails(ProviderFailure("no")))).back.wait()
        assert [row.detached for row in house.rows()] == [False, False]


# How a lane and its engine end.


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_an_engine_that_is_cancelled_while_a_call_sits_in_a_thread_sends_nothing_more(
    settlement: Settlement,
) -> None:
    in_thread, go_on = threading.Event(), threading.Event()

    def work() -> str:
        in_thread.set()
        go_on.wait()
        return "answer"

    async def call(_: None) -> str:
        return await trio.to_thread.run_sync(work)

    outcomes: list[str] = []

    async def caller(lane: Any, make: Any) -> None:
        try:
            outcomes.append(await lane.run(make, Ticket()))
        except LaneClosed:
            outcomes.append("closed")

    async with trio.open_nursery() as outside, trio.open_nursery() as engine:
        lane = KINDS[settlement]("here", nursery=engine, connect=connect, capacity=1, ledger=Ledger())
        outside.start_soon(caller, lane, call)
        await trio.to_thread.run_sync(in_thread.wait)
        for _ in range(3):
            outside.start_soon(caller, lane, _never_called)
        await wait_all_tasks_blocked()
        engine.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await wait_all_tasks_blocked()
            came_back = list(outcomes)
            with contextlib.suppress(LaneClosed):
                await lane.run(_never_called, Ticket())
        go_on.set()
    assert came_back == ["closed"] * 3
    assert outcomes[3:] in (["answer"], ["closed"])
    totals = lane.statistics().totals
    assert (totals.queued, totals.in_flight, totals.offered) == (0, 0, 4)


@pytest.mark.parametrize("round_", range(10))
async def test_callers_that_are_cancelled_with_the_engine_may_let_in_whom_they_held_back(
    round_: int, autojump_clock: MockClock
) -> None:
    """A withdrawal inside ``cancel()`` that frees the way for another must start no task there."""
    async with trio.open_nursery() as engine:
        lane = BudgetLane("here", nursery=engine, connect=connect, capacity=4, ledger=Ledger())
        engine.start_soon(lane.run, _closes_slowly, Ticket(weight=2))
        await wait_all_tasks_blocked()
        for weight in (4, 1, 4, 1, 1):
            engine.start_soon(lane.run, _answer, Ticket(weight=weight))
            await wait_all_tasks_blocked()
        engine.cancel_scope.cancel()
    totals = lane.statistics().totals
    assert (totals.offered, totals.accounted, totals.queued, totals.in_flight) == (6, 6, 0, 0)


async def _counted(lane: Any, outcomes: Counter[str], scope: trio.CancelScope) -> None:
    with scope:
        try:
            await lane.run(_never_called, Ticket(tenant=str(id(scope) % 7)))
        except LaneClosed:
            outcomes["closed"] += 1
    outcomes["left"] += scope.cancelled_caught


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_closing_a_lane_with_many_waiting_holds_up_nobody_else(
    settlement: Settlement, autojump_clock: MockClock
) -> None:
    count, outcomes = 2 * PORTION + 500, Counter[str]()
    began_at = trio.current_time()
    async with trio.open_nursery() as engine, trio.open_nursery() as callers:
        lane = KINDS[settlement]("here", nursery=engine, connect=connect, capacity=1, ledger=Ledger())
        callers.start_soon(lane.run, _closes_after_5, Ticket())
        await wait_all_tasks_blocked()
        scopes = [trio.CancelScope() for _ in range(count)]
        for scope in scopes:
            callers.start_soon(_counted, lane, outcomes, scope)
        await wait_all_tasks_blocked()
        lane.close()
        assert lane.statistics().totals.shed == PORTION
        others_ran = 0
        while lane.statistics().totals.queued:
            scopes[others_ran].cancel()  # it may leave meanwhile
            others_ran += 1
            await trio.lowlevel.checkpoint()
        assert others_ran >= 2
        await lane.drained()
        assert trio.current_time() == began_at + 5.0
    totals = lane.statistics().totals
    assert totals.shed + totals.withdrawn == count
    assert totals.withdrawn <= outcomes["left"] <= others_ran
    assert outcomes["closed"] + outcomes["left"] == count


async def _closes_after_5(_: None) -> None:
    await trio.sleep(5.0)


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_run_nowait_refuses_before_it_is_awaited_and_only_its_own_tenant(
    settlement: Settlement, autojump_clock: MockClock
) -> None:
    async with open_house(settlement, autojump_clock, max_queued=2) as house:
        await house.stage.park("out", hangs())
        for number in range(2):
            await house.stage.park(f"q{number}", tenant="busy")
        with pytest.raises(LaneFull, match="2 interactive tickets of tenant 'busy' are waiting already"):
            house.lane.run_nowait(_never_called, Ticket(tenant="busy"))
        assert house.lane.statistics().totals.offered == 3
        with trio.move_on_after(1.0) as scope:
            await house.lane.run_nowait(_never_called, Ticket(tenant="other"))
        assert scope.cancelled_caught
        with trio.move_on_after(1.0) as scope:
            await house.lane.run_nowait(_never_called, Ticket(tenant="busy", priority="batch"))
        assert scope.cancelled_caught


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_queued": 0}, "max_queued"),
        ({"reserve": -1}, "reserve"),
        ({"lead": NAN}, "lead"),
        ({"lead": -1.0}, "lead"),
        ({"batch_share": 0.0}, "batch_share"),
        ({"batch_share": math.inf}, "batch_share"),
        ({"shares": {"x": 0.0}}, "the share of 'x'"),
        ({"capacity": 0}, "capacity"),
    ],
)
async def test_a_lane_refuses_what_it_could_not_work_with(options: dict[str, Any], said: str) -> None:
    async with trio.open_nursery() as engine:
        with pytest.raises(UsageError, match=f"lane here: {said} must be"):
            BudgetLane("here", nursery=engine, connect=connect, ledger=Ledger(), **{"capacity": 1, **options})
