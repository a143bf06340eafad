"""The order alone, where an example says more than the property in ``tests/laws``."""

from __future__ import annotations

from typing import Literal

import attrs
import pytest

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
