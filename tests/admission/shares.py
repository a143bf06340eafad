"""A lane without trio: events on a heap, the real order and room, and a witness of law 4's bound.

The witness keeps, for each pair of flows of a level, how much more engine time the one has received than the other
since the other began to wait, each divided by its share; that difference is what law 4 bounds.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Set
from itertools import count

import attrs

from embedkit.admission.fair_order import PROBE_SHARE, FairOrder
from embedkit.admission.room import Room
from embedkit.admission.waiting import Priority

Flow = Hashable


@attrs.define(eq=False)
class Item:
    """What waits: a class, a tenant, a weight, and how long it will take."""

    priority: Priority = "batch"
    tenant: str | None = None
    weight: int = 1
    seconds: float = 1.0
    offered_at: float = 0.0
    dispatched_at: float | None = None
    charged: float = 0.0


@attrs.define
class Witness:
    """Engine time received, flow by flow, and the worst that ever happened to whoever waited."""

    share_of: Callable[[Flow], float]
    received: dict[Flow, float] = attrs.field(factory=lambda: defaultdict(float))
    rate: dict[Flow, int] = attrs.field(factory=lambda: defaultdict(int))
    # Most engine time of a flow's tickets that were out together: what they took or were charged, whichever is more.
    most_out: dict[Flow, float] = attrs.field(factory=lambda: defaultdict(float))
    low: dict[tuple[Flow, Flow], float] = attrs.field(factory=dict)
    worst: dict[tuple[Flow, Flow], float] = attrs.field(factory=lambda: defaultdict(float))
    waiting: set[Flow] = attrs.field(factory=set)
    at: float = 0.0

    def advance(self, now: float) -> None:
        for flow, rate in self.rate.items():
            self.received[flow] += rate * (now - self.at)
        self.at = now
        self.look()

    def difference(self, served: Flow, waits: Flow) -> float:
        return self.received[served] / self.share_of(served) - self.received[waits] / self.share_of(waits)

    def look(self) -> None:
        for waits in self.waiting:
            for served in list(self.received):
                if served != waits:
                    found = self.difference(served, waits)
                    low = self.low.get((served, waits), math.inf)
                    self.low[served, waits] = min(low, found)
                    self.worst[served, waits] = max(self.worst[served, waits], found - min(low, found))

    def set_waiting(self, now_waiting: Set[Flow], known: Set[Flow]) -> None:
        for flow in known:
            self.received[flow] += 0.0
        for gone in self.waiting - now_waiting:
            for pair in [pair for pair in self.low if pair[1] == gone]:
                del self.low[pair]
        self.waiting = set(now_waiting)
        self.look()


class World:
    """A lane as a list of events."""

    def __init__(self, capacity: int, reserve: int, order: FairOrder[Item], shares: dict[Flow, float]) -> None:
        self.order = order
        self.room = Room(capacity, reserve)
        self.now = 0.0
        self.events: list[tuple[float, int, Callable[[], object]]] = []
        self.numbers = count()
        self.queued: dict[Item, None] = {}
        self.out: dict[Item, None] = {}
        self.known: set[Flow] = set()
        self.dispatched: list[Item] = []
        classes = {"interactive": 1.0, "batch": shares.get("batch", 1.0), "probe": PROBE_SHARE}
        self.classes = Witness(lambda flow: classes[str(flow)])
        self.tenants = Witness(lambda flow: shares.get(flow, 1.0))
        self.known_tenants: set[Flow] = set()
        # The witness costs time in proportion to the flows there ever were.
        self.is_watched = True
        # Classes that were passed over while the ceiling held them.
        self.passed: set[Flow] = set()

    def at(self, when: float, event: Callable[[], object]) -> None:
        heapq.heappush(self.events, (when, next(self.numbers), event))

    def run(self, until: float = math.inf) -> None:
        while self.events and self.events[0][0] <= until:
            when, _, event = heapq.heappop(self.events)
            self.now = when
            if self.is_watched:
                self.classes.advance(when)
                self.tenants.advance(when)
            event()
            self.take()
            if self.is_watched:
                self.witness()

    def offer(self, *items: Item) -> None:
        for item in items:
            self._offer(item)

    def _offer(self, item: Item) -> None:
        item.offered_at = self.now
        self.order.add(item)
        self.queued[item] = None
        self.known.add(item.priority)
        self.known_tenants.add((item.priority, item.tenant))

    def withdraw(self, item: Item) -> None:
        if item in self.queued:
            del self.queued[item]
            self.order.remove(item)

    def take(self) -> None:
        while (item := self.order.choose(self.room)) is not None:
            self._note_passed(item)
            before = self._account(item.priority)
            self.order.commit(item)
            self.room.enter(item)
            del self.queued[item]
            self.out[item] = None
            self.dispatched.append(item)
            item.dispatched_at = self.now
            item.charged = self._account(item.priority) - before
            self._rate(item, item.weight)
            self.at(self.now + item.seconds, lambda item=item: self.settle(item))  # type: ignore[misc]

    def _note_passed(self, item: Item) -> None:
        """A person passes batch work that other batch work holds back: that does not wait for its turn then.

        What it is owed for that it gets later, on top of all else: so it is no witness any more as one who is served.
        """
        if item.priority != "interactive":
            return
        held = any(self.room.held_by_ceiling(other) for other in self.queued if other.priority != "interactive")
        if held:
            self.passed |= {"batch", "probe"}
            self.classes.set_waiting({flow for flow in self.classes.waiting if flow == "interactive"}, set(self.known))

    def settle(self, item: Item) -> None:
        del self.out[item]
        self._rate(item, -item.weight)
        self.room.leave(item)
        self.order.settle(item, item.seconds, is_sample=True)

    def _account(self, priority: str) -> float:
        """Of a class, in engine time."""
        return next(one.account * one.share for one in self.order.accounts() if one.flow == priority)

    def _rate(self, item: Item, by: int) -> None:
        self.classes.rate[item.priority] += by
        self.tenants.rate[item.priority, item.tenant] += by
        for witness, flow in ((self.classes, item.priority), (self.tenants, (item.priority, item.tenant))):
            total = sum(
                max(other.weight * other.seconds, other.charged)
                for other in self.out
                if flow in (other.priority, (other.priority, other.tenant))
            )
            witness.most_out[flow] = max(witness.most_out[flow], total / witness.share_of(flow))

    def witness(self) -> None:
        """Who waits now."""
        self.classes.set_waiting({item.priority for item in self.queued}, set(self.known))
        self.tenants.set_waiting({(item.priority, item.tenant) for item in self.queued}, set(self.known_tenants))
