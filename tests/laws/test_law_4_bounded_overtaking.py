"""Law 4, sharper: any sequence of arrivals, against the law's own words and a slow order that is obviously right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from our_lanes import open_house
from slow_order import SlowOrder
from trio.testing import MockClock

from embedkit.admission.order import Order
from embedkit.admission.room import Room
from embedkit.testing.stage import Caller, answers


@attrs.define(eq=False)
class Item:
    priority: Literal["interactive", "batch", "probe"]
    weight: int = 1
    tenant: str | None = None
    offered_at: float = 0.0
    # What the law has seen of it since it became head.
    head_since: float | None = None
    overtaken: int = 0
    # As overtaken, and also those who went while it did not fit for its own size: they spend its bound as well.
    gone_before: int = 0
    passed: int = 0


arrivals = st.builds(
    Item,
    priority=st.sampled_from(["interactive", "interactive", "batch", "batch", "probe"]),
    weight=st.sampled_from([1, 1, 1, 2, 3, 9]),
    tenant=st.sampled_from(["x", "y", "z"]),
)
# A number says which of the tickets in flight settles, or which of those that wait leaves.
steps = st.lists(
    st.one_of(
        arrivals,
        st.tuples(st.just("settle"), st.integers(0, 99)),
        st.tuples(st.just("leave"), st.integers(0, 99)),
        st.tuples(st.just("pass"), st.sampled_from([1, 6, 11])),
    ),
    max_size=60,
)


@attrs.define
class Witness:
    """Plays a sequence on both orders and holds every dispatch against the law."""

    max_overtakes: int
    max_age: float
    room: Room
    now: float = 0.0
    in_flight: list[Item] = attrs.field(factory=list)
    waiting: list[Item] = attrs.field(factory=list)
    order: Order[Item] = attrs.field(init=False)
    slow: SlowOrder = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.order = Order(max_overtakes=self.max_overtakes, max_age=self.max_age)
        self.slow = SlowOrder(max_overtakes=self.max_overtakes, max_age=self.max_age)

    def play(self, step: Any) -> None:
        if isinstance(step, Item):
            item = attrs.evolve(step, offered_at=self.now)
            self.waiting.append(item)
            self.order.add(item, self.now)
            self.slow.add(item, self.now)
        elif step[0] == "settle" and self.in_flight:
            self.room.leave(self.in_flight.pop(step[1] % len(self.in_flight)))
        elif step[0] == "leave" and self.waiting:
            item = self.waiting.pop(step[1] % len(self.waiting))
            self.order.remove(item, self.now)
            self.slow.remove(item, self.now)
        elif step[0] == "pass":
            self.now += step[1]
        self.take_all()

    def take_all(self) -> None:
        self.note_head()
        while (chosen := self.order.choose(self.now, self.room)) is not None:
            for _ in range(3):  # looking spends nothing
                assert self.order.choose(self.now, self.room) is chosen
            assert self.slow.choose(self.now, self.room) is chosen
            self.dispatch(chosen)
        assert self.slow.choose(self.now, self.room) is None
        assert {id(item) for item in self.order} == {id(item) for item in self.waiting}
        assert len(self.order) == len(self.waiting)

    def dispatch(self, chosen: Item) -> None:
        self.check_law(chosen)
        self.order.commit(chosen, self.now, self.room)
        self.slow.commit(chosen, self.now, self.room)
        self.waiting.remove(chosen)
        self.in_flight.append(chosen)
        self.room.enter(chosen)
        assert self.room.tickets == 1 or self.room.weight <= self.room.capacity
        patient = [item for item in self.in_flight if item.priority != "interactive"]
        assert len(self.in_flight) == 1 or sum(i.weight for i in patient) <= self.room.ceiling or chosen not in patient
        self.note_head()

    def note_head(self) -> None:
        head = self.order.head
        if head is not None and head.head_since is None:
            head.head_since = self.now

    def check_law(self, chosen: Item) -> None:
        head = self.order.head
        if chosen.priority == "interactive":
            assert self.is_first(chosen, lambda item: item.priority == "interactive")
            if head is not None and not self.room.held_by_ceiling(head):
                head.gone_before += 1
                assert head.gone_before <= self.max_overtakes
            if head is not None and self.room.fits(head):
                assert head.head_since is not None
                head.overtaken += 1
                assert head.overtaken <= self.max_overtakes
                assert self.now - head.head_since < self.max_age or chosen.passed > 0
            return
        self.check_people(chosen)
        if chosen.priority == "batch":
            assert chosen is head
            assert self.is_first(chosen, lambda item: item.priority == "batch" and item.tenant == chosen.tenant)
            probe = next((item for item in self.waiting if item.priority == "probe"), None)
            if probe is not None:
                probe.passed += 1
                assert probe.passed <= 4
        else:
            assert self.is_first(chosen, lambda item: item.priority == "probe")

    def check_people(self, chosen: Item) -> None:
        """A batch ticket that is merely old passes a person once; one that was overtaken enough may do it again."""
        people = [item for item in self.waiting if item.priority == "interactive"]
        if people and chosen.priority == "batch" and not self.room.held_by_ceiling(chosen):
            assert people[0].passed == 0 or chosen.gone_before >= self.max_overtakes
        for person in people:
            person.passed += 1

    def is_first(self, chosen: Item, of: Callable[[Item], bool]) -> bool:
        return next(item for item in self.waiting if of(item)) is chosen

    def run_dry(self) -> None:
        """Nobody waits for ever: once arrivals end, everybody is served."""
        while self.waiting or self.in_flight:
            before = len(self.waiting) + len(self.in_flight)
            self.play(("settle", 0))
            assert len(self.waiting) + len(self.in_flight) < before


@pytest.mark.parametrize("reserve", [0, 1, 3], ids=["no ceiling", "reserve 1", "reserve 3"])
@given(
    sequence=steps,
    capacity=st.integers(1, 5),
    max_overtakes=st.integers(0, 3),
    max_age=st.sampled_from([5.0, 30.0]),
)
@settings(max_examples=150)
def test_f_2_law_4_for_any_arrival_sequence(
    reserve: int, sequence: list[Any], capacity: int, max_overtakes: int, max_age: float
) -> None:
    witness = Witness(max_overtakes, max_age, Room(capacity, reserve))
    for step in sequence:
        witness.play(step)
    witness.run_dry()


@given(
    tenants=st.lists(st.sampled_from("ABCD"), min_size=1, max_size=40),
    again=st.sets(st.sampled_from("ABCD")),
)
@settings(max_examples=100)
def test_a_tenant_that_waits_is_passed_by_each_other_at_most_twice(tenants: list[str], again: set[str]) -> None:
    """Some have a backlog; those of ``again`` come back with one more as soon as theirs is dispatched."""
    order: Order[Item] = Order()
    room = Room(1)
    for tenant in tenants:
        order.add(Item("batch", tenant=tenant), 0.0)
    passed: dict[str, Counter[str]] = {tenant: Counter() for tenant in tenants}
    for _ in range(100):
        chosen = order.choose(0.0, room)
        if chosen is None:
            break
        assert chosen.tenant is not None
        order.commit(chosen, 0.0, room)
        waiting = {item.tenant for item in order}
        if chosen.tenant in again:
            order.add(Item("batch", tenant=chosen.tenant), 0.0)
        passed[chosen.tenant].clear()
        for tenant, by in passed.items():
            if tenant in waiting and tenant != chosen.tenant:
                by[chosen.tenant] += 1
                assert by[chosen.tenant] <= 2, f"{tenant} waits while {chosen.tenant} is served again and again"


async def _poll(house: Any, until: Caller, pause: float) -> int:
    """An interactive source that never stops: as one of its calls ends the next is there already."""
    asked = 0
    while not until.back.is_set():
        asked += 1
        await house.stage.park(f"i{asked}", answers(1.0))
        await trio.sleep(pause)
    return asked


@pytest.mark.parametrize("pause", [0.3, 0.5, 1.0])
async def test_f_1_a_polled_lane_completes_its_batch_ticket(pause: float, autojump_clock: MockClock) -> None:
    async with open_house("queue", autojump_clock) as house:
        await house.stage.park("i0")
        await house.stage.park("i00")
        batch = await house.stage.park("batch", priority="batch")
        await _poll(house, batch, pause)
        assert batch.back_at <= 3.0


async def test_f_1_the_order_with_one_overtake(autojump_clock: MockClock) -> None:
    async with open_house("queue", autojump_clock) as house:
        await house.stage.park("blocker")
        first = await house.stage.park("interactive-1")
        batch = await house.stage.park("batch", priority="batch")
        second = await house.stage.park("interactive-2")
        for caller in (first, batch, second):
            await caller.back.wait()
        house.stage.check_order("blocker", "interactive-1", "batch", "interactive-2")


async def test_f_2_a_lone_person_behind_1000_batch_tickets(autojump_clock: MockClock) -> None:
    async with open_house("queue", autojump_clock, capacity=2) as house:
        for number in range(1000):
            house.stage.offer(f"b{number}", answers(3.0), priority="batch")
        await trio.sleep(7.0)
        person = await house.stage.park("person")
        await person.back.wait()
        # Two calls are out until 9 s at most; then one more batch service of 3 s, at most, and its own second.
        assert person.back_at <= 13.0
        house.stage.callers.cancel_scope.cancel()


async def test_f_2_a_lone_person_behind_batch_tickets_that_are_all_old_when_their_turn_comes(
    autojump_clock: MockClock,
) -> None:
    async with open_house("queue", autojump_clock, max_age=30.0) as house:
        for number in range(100):
            house.stage.offer(f"b{number}", answers(40.0), priority="batch")
        await trio.sleep(35.0)
        person = await house.stage.park("person")
        await person.back.wait()
        # The call that is out until 40 s; the next head, which is 40 s old by then; and its own second.
        assert person.back_at == 81.0
        house.stage.callers.cancel_scope.cancel()


def test_a_probe_s_turn_lets_nobody_pass_a_head_whose_bound_is_spent() -> None:
    order: Order[Item] = Order(max_overtakes=0, max_age=5.0)
    room = Room(1)
    person, first, second, probe = Item("interactive"), Item("batch"), Item("batch"), Item("probe")
    for item in (person, first, second, probe):
        order.add(item, 0.0)
    assert order.choose(0.0, room) is first
    order.commit(first, 0.0, room)  # it passes the person
    # By now the probe is old, and may not pass the person again by its age; the head's bound still lets nobody by.
    assert order.choose(6.0, room) is probe
    order.commit(probe, 6.0, room)
    assert order.choose(6.0, room) is second


async def test_f_3_cancelling_an_aged_head_does_not_bias_its_successor(autojump_clock: MockClock) -> None:
    async with open_house("queue", autojump_clock, max_age=30.0) as house:
        await house.stage.park("blocker", answers(40.0))
        aged = await house.stage.park("aged", priority="batch")
        successor = await house.stage.park("successor", priority="batch")
        people = [await house.stage.park(name) for name in ("i1", "i2")]
        await trio.sleep(39.0)
        aged.around.cancel()
        for caller in (*people, successor):
            await caller.back.wait()
        house.stage.check_order("blocker", "i1", "successor", "i2")
        assert house.lane.statistics().overtakes_spent == 1


async def test_f_4_two_batch_callers_never_exceed_the_ceiling_together(autojump_clock: MockClock) -> None:
    async with open_house("queue", autojump_clock, capacity=4, reserve=1) as house:
        for _ in range(2):
            for number in range(10):
                house.stage.offer(f"b{number}", answers(2.0), priority="batch", tenant=str(number % 2))
        for _ in range(15):
            await house.stage.rest()
            assert house.lane.statistics().weight_in_flight <= 3
            await trio.sleep(0.9)
        assert house.stage.peak == 3


async def test_f_4_an_interactive_caller_always_gets_the_last_slot(autojump_clock: MockClock) -> None:
    async with open_house("queue", autojump_clock, capacity=4, reserve=1) as house:
        for number in range(10):
            await house.stage.park(f"b{number}", answers(50.0), priority="batch")
        for number in range(5):
            person = await house.stage.park(f"i{number}", answers(2.0))
            assert person.calls == 1
            await person.back.wait()
        house.stage.callers.cancel_scope.cancel()


async def test_f_4_a_ticket_wider_than_the_lane_runs_alone(autojump_clock: MockClock) -> None:
    async with open_house("queue", autojump_clock, capacity=2, reserve=1) as house:
        await house.stage.park("a", answers(3.0))
        wide = await house.stage.park("wide", answers(3.0), weight=7, priority="batch")
        people = [await house.stage.park(f"i{number}") for number in range(3)]
        for caller in (wide, *people):
            await caller.back.wait()
        # One person may pass it; then the lane runs dry for it.
        assert wide.began_at == [3.0]
        assert [person.began_at[0] for person in people] == [0.0, 6.0, 6.0]


async def test_a_probe_is_passed_by_at_most_four_batch_tickets(autojump_clock: MockClock) -> None:
    async with open_house("queue", autojump_clock) as house:
        await house.stage.park("blocker")
        probe = await house.stage.park("probe", priority="probe")
        for number in range(8):
            await house.stage.park(f"b{number}", priority="batch")
        await probe.back.wait()
        assert house.stage.order[:6] == ["blocker", "b0", "b1", "b2", "b3", "probe"]
        house.stage.callers.cancel_scope.cancel()
