"""``whose_turn`` as a table, and the snapshot that it reads: what goes through JSON comes back."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from embedkit.admission.fair_order import FairOrder
from embedkit.admission.order import Account
from embedkit.admission.room import Room
from embedkit.admission.snapshot import LaneSnapshot, snapshot_from, snapshot_of
from embedkit.admission.statistics import LaneStatistics, Totals
from embedkit.admission.waiting import Priority
from embedkit.admission.whose_turn import whose_turn


def people(account: float, queued: int = 1) -> Account:
    return Account("interactive", account, 1.0, -30.0, queued)


def batch(account: float, queued: int = 1) -> Account:
    return Account("batch", account, 1.0, 0.0, queued)


def probes(account: float, queued: int = 1) -> Account:
    return Account("probe", account, 0.05, 30.0, queued)


def tenant(name: str | None, account: float, within: Priority = "batch") -> Account:
    return Account(name, account, 1.0, 0.0, 1, within)


def lane(*accounts: Account, **known: Any) -> LaneSnapshot:
    """The lane's accounts come with the one that is next first, as an order gives them."""
    ordered = sorted(accounts, key=lambda one: one.account + one.offset)
    figures: dict[str, Any] = {
        "capacity": 4,
        "ceiling": 3,
        "weight_in_flight": 4,
        "queued": {str(one.flow): one.queued for one in accounts if one.queued},
        "accounts": ordered,
        "furthest_behind": [],
        "held_by_ceiling": [],
        "held_for": 0.0,
        "totals": Totals(),
    }
    return LaneSnapshot(**(figures | known))


TABLE = [
    # Nobody, and one class.
    (lane(), "nobody waits"),
    (lane(people(40, 0), batch(2, 0), probes(0, 0)), "nobody waits"),
    (lane(people(40), batch(2, 0)), "people are next; nobody else waits"),
    (lane(people(90, 0), batch(2, 7)), "batch is next; nobody else waits"),
    (lane(people(90, 0), probes(2)), "probes are next; nobody else waits"),
    # People and batch.
    (lane(people(112), batch(100)), "people are 12 s ahead; batch is next at 30"),
    (lane(people(112.345), batch(100)), "people are 12.3 s ahead; batch is next at 30"),
    (lane(people(130), batch(100)), "people are 30 s ahead; batch is next at 30"),
    (lane(people(130.5), batch(100)), "people are 30.5 s ahead, past 30; batch is next"),
    (lane(people(2_135), batch(100)), "people are 2,035 s ahead, past 30; batch is next"),
    (lane(people(96), batch(100)), "people are next, 4 s behind batch; batch is next at 30 ahead"),
    (lane(people(100.04), batch(100)), "people are next, level with batch; batch is next at 30 ahead"),
    (lane(people(99.96), batch(100)), "people are next, level with batch; batch is next at 30 ahead"),
    # Probes as well.
    (lane(batch(10), probes(4)), "batch is 6 s ahead; probes are next at 30"),
    (
        lane(people(112), batch(100), probes(90)),
        "people are 12 s ahead of batch; batch is next at 30; people are 22 s ahead of probes; probes are next at 60",
    ),
    (
        lane(people(140), batch(100), probes(98)),
        "people are 40 s ahead of batch, past 30; batch is next; batch is 2 s ahead of probes; probes are next at 30",
    ),
    (
        lane(people(170), batch(140), probes(100)),
        "people are 70 s ahead of probes, past 60; batch is 40 s ahead of probes, past 30; probes are next",
    ),
    # The ceiling.
    (lane(people(9, 0), batch(2), held_by_ceiling=["batch"]), "batch is held by the ceiling of 3 units"),
    (lane(batch(2), held_by_ceiling=["batch"], ceiling=1), "batch is held by the ceiling of 1 unit"),
    (
        lane(batch(2), probes(4), held_by_ceiling=["batch", "probe"]),
        "batch and probes are held by the ceiling of 3 units",
    ),
    (
        lane(people(112), batch(100), held_by_ceiling=["batch"]),
        "people are 12 s ahead; batch is held by the ceiling of 3 units",
    ),
    (
        lane(people(150), batch(100), held_by_ceiling=["batch"]),
        "people are 50 s ahead; batch is held by the ceiling of 3 units",
    ),
    # The engine asked for peace.
    (lane(held_for=8.0), "the engine asked to be left alone for another 8 s; nobody waits"),
    (
        lane(batch(2), held_for=8.5),
        "the engine asked to be left alone for another 6 s; batch is next; nobody else waits",
    ),
    (lane(batch(2), held_for=2.5), "batch is next; nobody else waits"),
    # Tenants.
    (lane(batch(2), furthest_behind=[tenant("x", 5)]), "batch is next; nobody else waits"),
    (
        lane(batch(2), furthest_behind=[tenant("x", 5), tenant("y", 45), tenant("z", 90)]),
        "batch is next; nobody else waits; tenant x is next, 40 s behind y",
    ),
    (
        lane(batch(2), furthest_behind=[tenant(None, 5), tenant("y", 5)]),
        "batch is next; nobody else waits; work without a tenant is next, level with y",
    ),
    (
        lane(
            people(112),
            batch(100),
            furthest_behind=[
                tenant("a", 1, "interactive"), tenant("b", 3, "interactive"), tenant("x", 5), tenant("y", 45)
            ],
        ),
        "people are 12 s ahead; batch is next at 30; among people, tenant a is next, 2 s behind b",
    ),
    (
        lane(batch(2), furthest_behind=[tenant("x\n\x1b[2J", 5), tenant("y", 45)]),
        "batch is next; nobody else waits; tenant x\\n\\x1b[2J is next, 40 s behind y",
    ),
    # Another order.
    (
        lane(queued={"interactive": 2, "batch": 1_200}),
        "waiting: people 2, batch 1,200; this lane's order keeps no accounts",
    ),
    (lane(Account("urgent", 5, 1, 0, 1)), "urgent is next; nobody else waits"),
]  # fmt: skip


@pytest.mark.parametrize(("seen", "said"), TABLE, ids=[said[:60] for _, said in TABLE])
def test_whose_turn_it_is(seen: LaneSnapshot, said: str) -> None:
    age = 2.5 if seen.held_for in (8.5, 2.5) else 0.0
    assert whose_turn(seen, age) == said
    # Another process says the same.
    assert whose_turn(snapshot_from(json.loads(json.dumps(seen.as_json()))), age) == said


@attrs.frozen(eq=False)
class Waits:
    priority: Priority
    weight: int = 1
    tenant: str | None = None
    offered_at: float = 0.0


def order_of(*tickets: Waits) -> FairOrder[Waits]:
    order: FairOrder[Waits] = FairOrder()
    for ticket in tickets:
        order.add(ticket)
    return order


@pytest.mark.parametrize(
    ("tickets", "patient", "held"),
    [
        ([], 3, []),
        ([Waits("batch")], 2, []),
        ([Waits("batch")], 3, ["batch"]),
        ([Waits("batch", 2)], 2, ["batch"]),
        ([Waits("batch", 4)], 2, []),  # wider than the ceiling: it waits for an idle lane, and holds everybody
        ([Waits("interactive")], 3, []),
        ([Waits("probe"), Waits("interactive"), Waits("batch")], 3, ["batch", "probe"]),
        ([Waits("batch", 2), Waits("probe")], 2, ["batch", "probe"]),  # probes do not pass batch work
    ],
)  # fmt: skip
def test_who_is_held_by_the_ceiling(tickets: list[Waits], patient: int, held: list[str]) -> None:
    order, room = order_of(*tickets), Room(4, 1, tickets=patient, weight=patient, patient=patient)
    assert order.held_by_ceiling(room) == held
    chosen = order.choose(room)
    assert chosen is None or chosen.priority not in held
    # Where no unit is kept for people, a lane at its ceiling is full, and it is the accounts that say who is next.
    assert order.held_by_ceiling(Room(3, 0, tickets=patient, weight=patient, patient=patient)) == []


def statistics(order: FairOrder[Waits], **known: Any) -> LaneStatistics:
    figures: dict[str, Any] = {
        "capacity": 4,
        "ceiling": 3,
        "tickets_in_flight": 2,
        "weight_in_flight": 2,
        "queued": {"batch": len(order), "probe": 0},
        "queued_by_tenant": {},
        "longest_wait": 0.0,
        "accounts": order.accounts(),
        "furthest_behind": order.furthest_behind(100),
        "held_by_ceiling": ("batch",),
        "held_for": 1.5,
        "slots": 4,
        "ledger_failures": 0,
        "totals": Totals(offered=3, succeeded=1, in_flight=2),
    }
    return LaneStatistics(**(figures | known))


def test_a_snapshot_goes_through_json_and_is_bounded() -> None:
    names = [f"{number} " + "é" * 5_000 for number in range(1_000)]
    snapshot = snapshot_of(statistics(order_of(*(Waits("batch", tenant=name) for name in names))))
    text = json.dumps(snapshot.as_json())
    assert len(text) < 8_000
    back = snapshot_from(json.loads(text))
    assert back.as_json() == snapshot.as_json()
    assert (back.queued, back.totals, back.held_for) == ({"batch": 1_000}, Totals(3, 0, 2, 1), 1.5)
    assert [(one.within, len(one.flow or "")) for one in back.furthest_behind] == [("batch", 100)] * 5


@pytest.mark.parametrize("key", sorted(lane(batch(1)).as_json()))
@pytest.mark.parametrize("value", [None, [3], "x", {"a": 1}, float("inf")])
def test_what_is_no_snapshot_is_refused_and_nothing_else_fails(key: str, value: object) -> None:
    document = lane(batch(1), furthest_behind=[tenant("x", 1)]).as_json()
    assert snapshot_from(document).as_json() == document
    with pytest.raises(ValueError, match="no snapshot"):
        snapshot_from({other: item for other, item in document.items() if other != key})
    try:
        read = snapshot_from({**document, key: value})
    except ValueError:
        return
    assert isinstance(whose_turn(read), str)
