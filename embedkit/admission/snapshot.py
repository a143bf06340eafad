"""A lane at one instant, small enough to be written down for other processes. Pure.

``LaneStatistics`` grows with the tenants that wait; this does not. It keeps what ``whose_turn`` needs to say who is
next, and the totals. As JSON it goes through the knowledge base's file, which any version of embedkit may have written:
``snapshot_from`` refuses what it cannot read, and nothing else fails.

Tested in ``tests/admission/test_whose_turn.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from embedkit.activity.rows import name_or_none
from embedkit.admission.order import Account
from embedkit.admission.statistics import LaneStatistics, Totals

# Tenants of a class that are kept, and characters of each one's name.
_KEPT_BEHIND = 5
_KEPT_OF_A_NAME = 100


@attrs.frozen
class LaneSnapshot:
    """What is kept of a lane's statistics; see there for the meaning of each.

    Attributes:
        capacity: Units that may be in flight.
        ceiling: Units that batch and probe work may use together.
        weight_in_flight: Units in use.
        queued: Waiting tickets by class.
        accounts: Of the classes; the one that is next is first.
        furthest_behind: At most five tenants of each class; the one that is next in its class is first.
        held_by_ceiling: The classes that only the ceiling holds back.
        held_for: Seconds for which the engine wanted to be left alone.
        totals: Law 6.
    """

    capacity: int
    ceiling: int
    weight_in_flight: int
    queued: Mapping[str, int]
    accounts: Sequence[Account]
    furthest_behind: Sequence[Account]
    held_by_ceiling: Sequence[str]
    held_for: float
    totals: Totals

    def as_json(self) -> dict[str, Any]:
        """As it is stored, and as ``status --json`` prints it."""
        return {
            "capacity": self.capacity,
            "ceiling": self.ceiling,
            "weight_in_flight": self.weight_in_flight,
            "queued": dict(self.queued),
            "accounts": [_described(one, {"class": one.flow, "offset": one.offset}) for one in self.accounts],
            "furthest_behind": [
                _described(one, {"class": one.within, "tenant": one.flow}) for one in self.furthest_behind
            ],
            "held_by_ceiling": list(self.held_by_ceiling),
            "held_for": self.held_for,
            "totals": attrs.asdict(self.totals),
        }


def snapshot_of(statistics: LaneStatistics) -> LaneSnapshot:
    """What is kept of ``statistics``."""
    return LaneSnapshot(
        capacity=statistics.capacity,
        ceiling=statistics.ceiling,
        weight_in_flight=statistics.weight_in_flight,
        queued={of_class: count for of_class, count in statistics.queued.items() if count},
        accounts=tuple(statistics.accounts),
        furthest_behind=tuple(_few(statistics.furthest_behind)),
        held_by_ceiling=tuple(statistics.held_by_ceiling),
        held_for=statistics.held_for,
        totals=statistics.totals,
    )


def snapshot_from(document: Mapping[str, Any]) -> LaneSnapshot:
    """The snapshot that ``as_json`` made ``document`` from.

    Raises:
        ValueError: It is none, or one of another version that has other fields.
    """
    try:
        return LaneSnapshot(
            capacity=int(document["capacity"]),
            ceiling=int(document["ceiling"]),
            weight_in_flight=int(document["weight_in_flight"]),
            queued={str(of_class): int(count) for of_class, count in document["queued"].items()},
            accounts=[Account(str(one["class"]), *_figures(one, float(one["offset"]))) for one in document["accounts"]],
            furthest_behind=[
                Account(name_or_none(one["tenant"]), *_figures(one, 0.0), within=one["class"])
                for one in document["furthest_behind"]
            ],
            held_by_ceiling=[str(of_class) for of_class in document["held_by_ceiling"]],
            held_for=float(document["held_for"]),
            totals=Totals(**document["totals"]),
        )
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise ValueError(f"no snapshot of a lane that this embedkit can read ({type(error).__name__})") from error


def _few(accounts: Iterable[Account]) -> Iterator[Account]:
    """A bounded number of ``accounts`` with bounded names, whatever order gave them."""
    seen: Counter[str | None] = Counter()
    for one in accounts:
        seen[one.within] += 1
        if seen[one.within] <= _KEPT_BEHIND:
            name = name_or_none(one.flow)
            if name is not None and len(name) > _KEPT_OF_A_NAME:
                name = name[: _KEPT_OF_A_NAME - 1] + "…"
            yield attrs.evolve(one, flow=name)


def _described(one: Account, first: Mapping[str, Any]) -> dict[str, Any]:
    return {**first, "account": one.account, "share": one.share, "queued": one.queued}


def _figures(one: Mapping[str, Any], offset: float) -> tuple[float, float, float, int]:
    return float(one["account"]), float(one["share"]), offset, int(one["queued"])
