"""Law 4, pure: the real order and the real room, without a lane. With lanes it is in ``tests/laws``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shares import Item, World

from embedkit.admission.fair_order import FairOrder
from embedkit.admission.room import Room


def world(capacity: int = 1, reserve: int = 0, **options: Any) -> World:
    shares = {"batch": options.get("batch_share", 1.0), **(options.get("shares") or {})}
    return World(capacity, reserve, FairOrder(**options), shares)


def names(items: Sequence[Item]) -> list[str]:
    return [item.priority for item in items]


def test_f_1_blocker_then_batch_and_interactive_by_turns() -> None:
    here = world(lead=0.0)
    here.at(0.0, lambda: here.offer(Item("interactive")))
    here.at(0.5, lambda: here.offer(*(Item(name) for name in ("interactive", "batch") for _ in range(3))))
    here.run()
    assert names(here.dispatched) == [
        "interactive",
        "batch",
        "interactive",
        "batch",
        "interactive",
        "batch",
        "interactive",
    ]


@pytest.mark.parametrize("lead", [0.0, 5.0, 30.0])
def test_f_1_people_never_cease_and_one_batch_ticket_is_served_after_their_lead_and_one_service(lead: float) -> None:
    here = world(lead=lead)
    for second in range(200):
        here.at(0.9 * second, lambda: here.offer(Item("interactive")))
    batch = Item("batch")
    here.at(10.0, lambda: here.offer(batch))
    here.run()
    assert batch.dispatched_at is not None
    assert batch.dispatched_at <= 10.0 + lead + 1.0


def test_people_do_not_starve_behind_a_backlog_of_long_batch_services() -> None:
    """One slot; batch of 10 s, always there; a person every 6 s, who needs 1 s. Counting dispatches answered half."""
    here = world()
    people = [Item("interactive") for _ in range(1200)]
    for number, person in enumerate(people):
        here.at(6.0 * number, lambda person=person: here.offer(person))  # type: ignore[misc]
    here.at(0.0, lambda: here.offer(*(Item("batch", seconds=10.0) for _ in range(900))))
    here.run(until=7200.0)
    waits = [person.dispatched_at - person.offered_at for person in people if person.dispatched_at is not None]
    assert len(waits) >= 1199
    assert sum(waits) / len(waits) < 7.0
    assert max(waits) <= 11.0  # the call that is out, and whoever of them came just before
    batch = sum(item.seconds for item in here.dispatched if item.priority == "batch")
    assert batch > 5990.0


def test_people_who_ask_for_twice_the_engine_get_half_of_it() -> None:
    here = world()
    for number in range(1800):
        here.at(1.0 * number, lambda: here.offer(Item("interactive", seconds=2.0)))
    here.at(0.0, lambda: here.offer(*(Item("batch", seconds=10.0) for _ in range(225))))
    here.run(until=1800.0)
    spent = Counter[str]()
    for item in here.dispatched:
        spent[item.priority] += int(item.seconds)
    assert abs(spent["interactive"] - 900) <= 30 + 10
    assert abs(spent["batch"] - 900) <= 30 + 10


def test_tenants_are_equal_in_engine_time_and_not_in_count() -> None:
    here = world(capacity=2)
    here.at(0.0, lambda: here.offer(*(Item("batch", "long", seconds=20.0) for _ in range(150))))
    here.at(0.0, lambda: here.offer(*(Item("batch", "short", seconds=1.0) for _ in range(2_500))))
    here.run(until=1800.0)
    spent = Counter[str | None]()
    for item in here.dispatched:
        spent[item.tenant] += int(item.seconds)
    assert abs(spent["long"] - spent["short"]) <= 2 * (20 + 1)


def test_a_small_tenant_does_not_wait_for_5000_tickets_of_a_big_one() -> None:
    here = world()
    small = [Item("batch", "small") for _ in range(10)]
    here.at(0.0, lambda: here.offer(*(Item("batch", "big") for _ in range(5000))))
    here.at(0.5, lambda: here.offer(*small))
    here.run(until=30.0)
    assert all(item.dispatched_at is not None for item in small)


def test_a_wide_ticket_that_is_long_gone_changes_no_later_turn() -> None:
    here = world(capacity=4)
    here.at(0.0, lambda: here.offer(Item("batch", "wide", weight=4)))
    small = Item("batch", "small")
    here.at(100.0, lambda: here.offer(*(Item("batch", "big") for _ in range(512))))
    here.at(100.5, lambda: here.offer(small))
    here.run(until=200.0)
    assert small.dispatched_at is not None
    assert small.dispatched_at <= 102.0


def test_a_class_that_only_the_ceiling_holds_back_is_passed_by_people_and_by_nobody_else() -> None:
    order: FairOrder[Item] = FairOrder()
    room = Room(4, reserve=1)
    room.enter(Item("batch"))
    wide, probe, person = Item("batch", weight=3), Item("probe"), Item("interactive")
    order.add(wide)
    order.add(probe)
    assert order.choose(room) is None  # the probe would take what the batch ticket waits for
    order.add(person)
    assert order.choose(room) is person


def test_probes_that_never_cease_keep_no_wide_batch_ticket_out() -> None:
    here = world(capacity=4, reserve=1)
    wide = Item("batch", weight=3)
    for number in range(400):
        here.at(0.5 * number, lambda: here.offer(Item("probe", seconds=3.0)))
    here.at(20.2, lambda: here.offer(wide))
    here.run()
    assert wide.dispatched_at is not None
    assert wide.dispatched_at <= 30.0


def test_nobody_overtakes_a_chosen_ticket_that_does_not_fit() -> None:
    order: FairOrder[Item] = FairOrder()
    room = Room(2)
    room.enter(Item("interactive"))
    wide, small = Item("interactive", weight=2), Item("interactive")
    order.add(wide)
    order.add(small)
    assert order.choose(room) is None
    room.leave(Item("interactive"))
    assert order.choose(room) is wide


def test_f_3_a_withdrawal_and_a_look_change_no_account() -> None:
    here = world()
    here.at(0.0, lambda: here.offer(*(Item(name, tenant) for name in ("interactive", "batch") for tenant in "xyz")))
    here.run(until=2.5)
    leaving = [Item("batch", "x"), Item("interactive", "z")]
    for item in leaving:
        here.offer(item)
    before = here.order.accounts(), here.order.furthest_behind(9)
    head = here.order.choose(Room(9))
    assert head is not None
    for _ in range(5):
        assert here.order.choose(Room(9)) is head
    assert (here.order.accounts(), here.order.furthest_behind(9)) == before
    for item in [*leaving, head]:
        here.withdraw(item)
    accounts = {one.flow: one.account for one in here.order.accounts()}
    assert accounts == {one.flow: one.account for one in before[0]}


@pytest.mark.parametrize("at_once", [1, 5])
def test_tenants_that_came_once_cost_no_memory(at_once: int) -> None:
    here = world()
    here.is_watched = False
    for number in range(5_000):
        at = 2.0 * (number - number % at_once)
        here.at(at, lambda number=number: here.offer(Item("batch", f"t{number}", seconds=1.5)))  # type: ignore[misc]
    here.run()
    assert len(here.dispatched) == 5_000
    assert len(here.order._classes["batch"].tenants) <= 64


def test_shares_of_tenants_and_of_batch_count() -> None:
    here = world(lead=0.0, batch_share=3.0, shares={"paying": 4.0})
    here.at(0.0, lambda: here.offer(*(Item("batch", tenant) for tenant in ("paying", "other") for _ in range(500))))
    here.at(0.0, lambda: here.offer(*(Item("interactive") for _ in range(500))))
    here.run(until=400.0)
    spent = Counter((item.priority, item.tenant) for item in here.dispatched)
    assert abs(spent["interactive", None] - 100) <= 2
    assert abs(spent["batch", "paying"] - 240) <= 3


def test_what_it_shows() -> None:
    order: FairOrder[Item] = FairOrder(lead=7.0)
    old = Item("batch", "x", offered_at=3.0)
    for item in (old, Item("batch", "x", offered_at=4.0), Item("interactive", "y", offered_at=5.0)):
        order.add(item)
    assert len(order) == len(list(order)) == 3
    assert order.census() == {("batch", "x"): 2, ("interactive", "y"): 1}
    assert (order.queued("batch", "x"), order.queued("batch", "y"), order.oldest()) == (2, 0, 3.0)
    assert [(one.flow, one.offset, one.queued) for one in order.accounts()] == [
        ("interactive", -7.0, 1),
        ("batch", 0.0, 2),
        ("probe", 7.0, 0),
    ]
    assert {one.flow for one in order.furthest_behind(1)} == {"x", "y"}


@attrs.frozen
class Arrival:
    at: float
    item: dict[str, Any]
    leaves_after: float | None


SECONDS = st.one_of(st.floats(0.001, 1.0), st.floats(1.0, 300.0))
ARRIVALS = st.lists(
    st.builds(
        Arrival,
        at=st.floats(0.0, 1000.0),
        item=st.fixed_dictionaries(
            {
                "priority": st.sampled_from(("interactive", "batch", "probe")),
                "tenant": st.sampled_from(("a", "b", None)),
                "weight": st.integers(1, 3),
                "seconds": SECONDS,
            }
        ),
        leaves_after=st.one_of(st.none(), st.none(), st.floats(0.0, 500.0)),
    ),
    max_size=40,
)


@settings(max_examples=120)
@given(
    arrivals=ARRIVALS,
    capacities=st.lists(st.tuples(st.floats(0.0, 1000.0), st.integers(1, 8)), max_size=3),
    capacity=st.integers(1, 8),
    reserve=st.integers(0, 2),
    lead=st.sampled_from((0.0, 30.0, 100.0)),
    batch_share=st.sampled_from((0.25, 1.0, 4.0)),
    share=st.sampled_from((0.5, 1.0, 2.0)),
)
def test_f_2_the_bound_between_classes_and_between_tenants(
    arrivals: list[Arrival],
    capacities: list[tuple[float, int]],
    capacity: int,
    reserve: int,
    lead: float,
    batch_share: float,
    share: float,
) -> None:
    """As docs/fair-shares.md states it: the offset of who waits over the least, and two services of each slot."""
    here = world(capacity, reserve, lead=lead, batch_share=batch_share, shares={"a": share})
    here.tenants.share_of = lambda flow: share if isinstance(flow, tuple) and flow[1] == "a" else 1.0
    for arrival in arrivals:
        item = Item(**arrival.item)
        here.at(arrival.at, lambda item=item: here.offer(item))  # type: ignore[misc]
        if arrival.leaves_after is not None:
            here.at(arrival.at + arrival.leaves_after, lambda item=item: here.withdraw(item))  # type: ignore[misc]
    for at, units in capacities:
        here.at(at, lambda units=units: setattr(here.room, "capacity", units))  # type: ignore[misc]
    here.run()
    assert not here.queued
    offsets = {"interactive": -lead, "batch": 0.0, "probe": lead}
    least = min((offsets[str(flow)] for flow in here.known), default=0.0)
    for (served, waits), worst in here.classes.worst.items():
        if served not in here.passed:
            out = here.classes.most_out
            slack = 2 * (out[served] + out[waits])
            assert worst <= offsets[str(waits)] - least + slack + 1e-6, (served, waits)
    for (served, waits), worst in here.tenants.worst.items():
        assert isinstance(served, tuple)
        assert isinstance(waits, tuple)
        if served[0] == waits[0]:
            out = here.tenants.most_out
            assert worst <= 2 * (out[served] + out[waits]) + 1e-6, (served, waits)
    if len(here.dispatched) > 20 and capacity == 1:
        assert here.classes.worst, "somebody waited, or the witness saw nothing"
