"""Orders to compare ours with: first come first served, strict priority, and counting overtakes.

The last is what embedkit's own lanes had before they shared engine time: interactive, then batch, then probe, but a
batch head is overtaken at most ``max_overtakes`` times, and by nobody once it has been head for ``max_age`` seconds;
tenants take turns by deficit round robin. Dispatches are counted as if they were alike, which is what is wrong with it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from embedkit.admission.order import Order
from embedkit.admission.room import Room
from embedkit.admission.waiting import CLASSES, Waiting

T = TypeVar("T", bound=Waiting)

Queue = OrderedDict[T, None]


def _first(queue: Queue[T]) -> T | None:
    return next(iter(queue), None)


class _Tenant(Generic[T]):
    """One tenant's batch tickets, and what the round robin owes it."""

    __slots__ = ("deficit", "queue")

    def __init__(self) -> None:
        self.queue: Queue[T] = OrderedDict()
        self.deficit = 0


class FirstComeFirstServed(Order[T]):
    """One queue, whatever waits in it."""

    def __init__(self) -> None:
        self._queue: Queue[T] = OrderedDict()

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[T]:
        return iter(self._queue)

    def add(self, ticket: T) -> None:
        """Last."""
        self._queue[ticket] = None

    def remove(self, ticket: T) -> None:
        """Those behind it move up."""
        del self._queue[ticket]

    def choose(self, room: Room) -> T | None:
        """The first, if it fits."""
        first = _first(self._queue)
        return first if first is not None and room.fits(first) else None

    def commit(self, ticket: T) -> None:
        """It is gone."""
        del self._queue[ticket]

    def settle(self, ticket: T, seconds: float, *, is_sample: bool) -> None:
        """Nothing is learned."""


class StrictPriority(Order[T]):
    """People before batch before probes, always."""

    def __init__(self) -> None:
        self._queues: dict[str, Queue[T]] = {priority: OrderedDict() for priority in CLASSES}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def __iter__(self) -> Iterator[T]:
        for queue in self._queues.values():
            yield from queue

    def add(self, ticket: T) -> None:
        """Last of its class."""
        self._queues[ticket.priority][ticket] = None

    def remove(self, ticket: T) -> None:
        """Those behind it move up."""
        del self._queues[ticket.priority][ticket]

    def choose(self, room: Room) -> T | None:
        """The first of the first class that has one, if it fits."""
        first = next((queue for queue in self._queues.values() if queue), None)
        ticket = None if first is None else _first(first)
        return ticket if ticket is not None and room.fits(ticket) else None

    def commit(self, ticket: T) -> None:
        """It is gone."""
        self.remove(ticket)

    def settle(self, ticket: T, seconds: float, *, is_sample: bool) -> None:
        """Nothing is learned."""


class CountingOvertakes(Order[T]):
    """At most so many overtakes, and none of an old head.

    Args:
        clock: Tells the time, in seconds.
        max_overtakes: Interactive dispatches that one batch head may see before its own.
        max_age: Seconds after which a head sees none.
        max_passes: Batch dispatches that the first probe may see before its own.
    """

    def __init__(
        self, clock: Callable[[], float], *, max_overtakes: int = 1, max_age: float = 30.0, max_passes: int = 4
    ) -> None:
        self._clock = clock
        self.max_overtakes = max_overtakes
        self.max_age = max_age
        self.max_passes = max_passes
        self.overtakes_spent = 0
        # With what each came after: how many batch and probe tickets had been dispatched when it was added.
        self._interactive: OrderedDict[T, int] = OrderedDict()
        self._patient_dispatches = 0
        self._probes: Queue[T] = OrderedDict()
        self._tenants: OrderedDict[str | None, _Tenant[T]] = OrderedDict()
        # Whose turn of the round robin it is. A turn begins, and is paid for, when a tenant becomes first in the ring,
        # however it does: one that only moved up because another ran out of tickets must not be sent to the end unpaid.
        self._turn: _Tenant[T] | None = None
        self._quantum = 1
        self._head: T | None = None
        self._head_since = 0.0
        self._overtaken = 0
        self._probes_before_head = 0
        self._probe_since = 0.0
        self._passed = 0
        self._size = 0
        # As it was at the last look; the lane commits in the same step.
        self._room = Room(1)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        yield from self._interactive
        for tenant in self._tenants.values():
            yield from tenant.queue
        yield from self._probes

    def add(self, ticket: T) -> None:
        """``ticket`` waits from now on, last in its class (and tenant)."""
        now = self._clock()
        self._size += 1
        if ticket.priority == "interactive":
            self._interactive[ticket] = self._patient_dispatches
        elif ticket.priority == "probe":
            self._probes[ticket] = None
            if len(self._probes) == 1:
                self._new_first_probe(now)
        else:
            self._quantum = max(self._quantum, ticket.weight)
            self._tenants.setdefault(ticket.tenant, _Tenant()).queue[ticket] = None
            if self._head is None:
                self._new_head(now)

    def remove(self, ticket: T) -> None:
        """``ticket`` left without being dispatched. Those behind it keep their places; its bounds go with it."""
        now = self._clock()
        self._size -= 1
        if ticket.priority == "interactive":
            del self._interactive[ticket]
        elif ticket.priority == "probe":
            was_first = _first(self._probes) is ticket
            del self._probes[ticket]
            if was_first:
                self._new_first_probe(now)
        else:
            self._remove_batch(ticket)
            if ticket is self._head:
                self._new_head(now)

    def choose(self, room: Room) -> T | None:
        """The ticket to dispatch next, or ``None`` if there is none or the one whose turn it is does not fit."""
        if not self._size:
            return None
        self._room = room
        chosen = self._whose_turn(self._clock(), room)
        return chosen if chosen is not None and room.fits(chosen) else None

    def commit(self, ticket: T) -> None:
        """``ticket`` is dispatched: spend its bounds."""
        head, room = self._head, self._room
        if ticket.priority == "interactive" and head is not None and not room.held_by_ceiling(head):
            self._overtaken += 1
            self.overtakes_spent += 1
        elif ticket.priority == "batch":
            self._tenants[ticket.tenant].deficit -= ticket.weight
            self._passed += 1
        elif ticket.priority == "probe":
            self._probes_before_head += 1
        if ticket.priority != "interactive":
            self._patient_dispatches += 1
        self.remove(ticket)

    def settle(self, ticket: T, seconds: float, *, is_sample: bool) -> None:
        """Nothing is learned."""

    def _whose_turn(self, now: float, room: Room) -> T | None:
        person, came_after = next(iter(self._interactive.items()), (None, 0))
        if self._head is None and not self._probes:
            return person
        may_insist_by_age = came_after == self._patient_dispatches
        patient, insists = self._patient_turn(now, room, may_insist_by_age)
        if patient is None or person is None:
            return patient if person is None else person
        return patient if insists and not room.held_by_ceiling(patient) else person

    def _patient_turn(self, now: float, room: Room, by_age: bool) -> tuple[T | None, bool]:
        """Of batch and probes, whose turn it is, and whether its bound lets no person pass it any more."""
        head, probe = self._head, _first(self._probes)
        held = head is None or room.held_by_ceiling(head)
        old = now - self._head_since >= self.max_age
        insists = self._overtaken >= self.max_overtakes or (old and by_age)
        if probe is not None:
            probe_old = now - self._probe_since >= self.max_age
            may_pass_head = head is None or not self._probes_before_head
            if self._passed >= self.max_passes or (may_pass_head and (held or probe_old)):
                # The head's bound holds while a probe has its turn: a person who passed the probe would pass the head.
                bound = self._passed >= self.max_passes or (probe_old and by_age)
                return probe, bound or (insists and not held)
        return head, insists

    def _new_first_probe(self, now: float) -> None:
        self._probe_since = now
        self._passed = 0

    def _new_head(self, now: float) -> None:
        """Deficit round robin: the first tenant of the ring serves while it can pay, then goes to the ring's end."""
        self._overtaken = 0
        self._probes_before_head = 0
        self._head_since = now
        self._head = None
        while self._tenants:
            name, tenant = next(iter(self._tenants.items()))
            if tenant is not self._turn:
                self._turn = tenant
                tenant.deficit += self._quantum
            ticket = _first(tenant.queue)
            assert ticket is not None
            if tenant.deficit >= ticket.weight:
                self._head = ticket
                return
            self._tenants.move_to_end(name)
            self._turn = None

    def _remove_batch(self, ticket: T) -> None:
        tenant = self._tenants[ticket.tenant]
        del tenant.queue[ticket]
        if not tenant.queue:
            del self._tenants[ticket.tenant]  # what it was owed goes with it: credit is for those who wait
