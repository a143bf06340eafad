"""The order alone, where an example says more than the property in ``tests/laws``."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from typing import Literal

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from embedkit.admission.order import Order
from embedkit.admission.room import Room


@attrs.frozen(eq=False)
class Item:
    priority: Literal["interactive", "batch", "probe"]
    weight: int = 1
    tenant: str | None = None
    offered_at: float = 0.0


def batch(tenant: str, weight: int = 1) -> Item:
    return Item("batch", weight, tenant)


def serve(order: Order[Item], count: int, now: float = 0.0) -> list[Item]:
    """The next dispatches of a lane with room for one."""
    served = []
    for _ in range(count):
        chosen = order.choose(now, Room(1))
        assert chosen is not None
        order.commit(chosen, now, Room(1))
        served.append(chosen)
    return served


def test_nobody_waits() -> None:
    order: Order[Item] = Order()
    assert (order.choose(0.0, Room(1)), order.head, len(order), list(order)) == (None, None, 0, [])


def test_tenants_take_turns_by_weight() -> None:
    """Eight units each: the tenant of small tickets gets as many units as the one of large ones."""
    order: Order[Item] = Order()
    for _ in range(8):
        order.add(batch("small"), 0.0)
    for _ in range(2):
        order.add(batch("large", 4), 0.0)
    units = {"small": 0, "large": 0}
    for item in serve(order, 10):
        assert item.tenant is not None
        units[item.tenant] += item.weight
        assert abs(units["small"] - units["large"]) <= 8
    assert units == {"small": 8, "large": 8}


def test_a_million_chunks_do_not_hold_up_ten() -> None:
    order: Order[Item] = Order()
    for _ in range(1000):
        order.add(batch("big"), 0.0)
    for _ in range(10):
        order.add(batch("small"), 0.0)
    served = [item.tenant for item in serve(order, 30)]
    assert served.count("small") == 10
    assert max(index for index, tenant in enumerate(served) if tenant == "small") <= 21


def test_a_tenant_behind_others_who_always_come_back_has_its_turn() -> None:
    """Two tenants with one ticket at a time, and one with a backlog between them."""
    order: Order[Item] = Order()
    for tenant in "ABCBB":
        order.add(batch(tenant), 0.0)
    served = []
    for _ in range(12):
        (item,) = serve(order, 1)
        assert item.tenant is not None
        served.append(item.tenant)
        if item.tenant in "AC":
            order.add(batch(item.tenant), 0.0)
    assert served.count("B") == 3
    assert "B" in served[:3]


def test_a_head_stays_head_until_it_goes() -> None:
    order: Order[Item] = Order()
    first = batch("x")
    order.add(first, 0.0)
    for tenant in "yz":
        order.add(batch(tenant), 1.0)
        assert order.head is first
    order.remove(first, 2.0)
    assert order.head is not None
    assert order.head.tenant == "y"


def test_what_a_tenant_was_owed_goes_with_it() -> None:
    """It leaves with credit, comes back, and has one turn like the others, not two."""
    order: Order[Item] = Order()
    order.add(batch("x"), 0.0)
    order.add(heavy := batch("y", 9), 0.0)
    order.remove(heavy, 0.0)
    serve(order, 1)
    for _ in range(9):
        order.add(batch("x"), 0.0)
        order.add(batch("y"), 0.0)
    served = [item.tenant for item in serve(order, 18)]
    assert served.count("x") == served.count("y") == 9


@pytest.mark.parametrize("passed", range(1, 5))
def test_a_probe_that_has_waited_for_its_turn_goes_before_people(passed: int) -> None:
    order: Order[Item] = Order(max_passes=passed)
    probe = Item("probe")
    order.add(probe, 0.0)
    for _ in range(9):
        order.add(batch("x"), 0.0)
    served = serve(order, passed)
    assert all(item.priority == "batch" for item in served)
    order.add(Item("interactive"), 0.0)
    assert serve(order, 1) == [probe]


def test_a_probe_is_next_when_it_is_old() -> None:
    order: Order[Item] = Order()
    probe = Item("probe")
    order.add(probe, 0.0)
    order.add(Item("interactive"), 0.0)
    order.add(batch("x"), 0.0)
    assert serve(order, 1, now=30.0) == [probe]


def test_the_next_probe_counts_anew() -> None:
    order: Order[Item] = Order(max_passes=2)
    probes = [Item("probe"), Item("probe")]
    for item in probes:
        order.add(item, 0.0)
    for _ in range(9):
        order.add(batch("x"), 0.0)
    served = serve(order, 6)
    assert [served.index(probe) for probe in probes] == [2, 5]


def test_overtakes_are_counted_as_they_are_spent() -> None:
    order: Order[Item] = Order(max_overtakes=2)
    order.add(batch("x"), 0.0)
    for _ in range(3):
        order.add(Item("interactive"), 0.0)
    classes = [item.priority for item in serve(order, 4)]
    assert classes == ["interactive", "interactive", "batch", "interactive"]
    assert order.overtakes_spent == 2


CLASSES = ("interactive", "batch", "probe")


@given(
    depths=st.fixed_dictionaries({priority: st.sampled_from([0, 1, 2, 5]) for priority in CLASSES}),
    weights=st.fixed_dictionaries({priority: st.integers(1, 6) for priority in CLASSES}),
    capacity=st.integers(1, 4),
    reserve=st.integers(0, 3),
    service=st.sampled_from([1.0, 5.0, 29.0, 30.0, 40.0, 183.0]),
    stagger=st.lists(st.sampled_from([0.5, 1.0, 1.1, 1.7]), min_size=1, max_size=5),
)
@example(  # a head wider than what is left of the ceiling, behind probes that overlap
    depths={"interactive": 0, "batch": 2, "probe": 2}, weights={"interactive": 1, "batch": 3, "probe": 1},
    capacity=4, reserve=1, service=5.0, stagger=[1.0, 1.1, 1.7],
)  # fmt: skip
@example(  # every probe is old when its turn comes, and a head whose bound is spent holds the person back
    depths={"interactive": 2, "batch": 2, "probe": 2}, weights={"interactive": 1, "batch": 1, "probe": 1},
    capacity=1, reserve=0, service=40.0, stagger=[1.0],
)  # fmt: skip
@settings(max_examples=200)
def test_no_class_starves_though_the_others_never_cease(
    depths: dict[str, int],
    weights: dict[str, int],
    capacity: int,
    reserve: int,
    service: float,
    stagger: list[float],
) -> None:
    order: Order[Item] = Order()
    room = Room(capacity, reserve)
    now = 0.0
    in_flight: list[tuple[float, int, Item]] = []
    waited: Counter[str] = Counter()

    def add(priority: str) -> None:
        order.add(Item(priority, weights[priority], "x"), now)  # type: ignore[arg-type]  # one of CLASSES

    for priority, depth in depths.items():
        for _ in range(depth):
            add(priority)
    # Age alone brings a probe past people, who are served one by one meanwhile on every slot.
    patience = {"interactive": 12, "batch": 12, "probe": 12 + capacity * math.ceil(order.max_age / (service * 0.5))}
    for number in range(300 if any(depths.values()) else 0):
        while (chosen := order.choose(now, room)) is None:
            now, _, ended = heapq.heappop(in_flight)
            room.leave(ended)
        order.commit(chosen, now, room)
        room.enter(chosen)
        heapq.heappush(in_flight, (now + service * stagger[number % len(stagger)], number, chosen))
        for priority, depth in depths.items():
            waited[priority] += depth > 0
        waited[chosen.priority] = 0
        assert all(waited[priority] <= patience[priority] for priority in CLASSES), waited
        add(chosen.priority)
