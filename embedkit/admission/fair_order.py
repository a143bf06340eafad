"""Who is next: fair shares of engine time, between classes and within each between tenants. Pure.

Engine time of a ticket is its weight times the seconds from its dispatch to its settlement. Law 4 shares it, and not a
count of dispatches: those are not alike. Two levels of ``fair_share`` do it.

- Between classes the one with the least *account + offset* is next. The offsets are ``-lead`` for people, 0 for batch
  work, ``+lead`` for probes: people go first until they have had ``lead`` more than their share while batch work
  waited, and so does batch work before probes. A tie goes to people, then to batch.
- Within a class the tenant with the least account is next; within a tenant, whoever came first.
- If the chosen ticket does not fit, nothing is chosen: nobody overtakes it, however small. But a class that other
  batch work holds back (the ceiling) is passed over by people, who may use room that it may not, and cannot prolong
  what it waits for. It is owed what they take. The other class under the same ceiling does not pass it: probes that
  never cease would keep a wide batch ticket out.

A ticket is charged when it is dispatched with what a unit of its class has lately taken, and the charge is corrected
when it settles. Nothing becomes due by the passing of time, so nothing here asks for the time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from embedkit.admission.fair_share import FairShare, Flow
from embedkit.admission.order import Account, Order
from embedkit.admission.room import Room
from embedkit.admission.waiting import Priority, Waiting

T = TypeVar("T", bound=Waiting)

PROBE_SHARE = 0.05
# How much the newest service counts in the moving average of a class.
_NEWEST = 0.125
# So many tenants of a class are remembered without a thought.
_FEW = 64


class _Tenant(Flow, Generic[T]):
    """One tenant's tickets of one class, in the order they came."""

    __slots__ = ("name", "tickets")

    def __init__(self, name: str | None, share: float) -> None:
        super().__init__(share)
        self.name = name
        # An ordered dict: a plain one's first key costs O(n) after many deletions at its front.
        self.tickets: OrderedDict[T, None] = OrderedDict()


class _Class(Flow, Generic[T]):
    """One class: a flow among classes, and the level of its tenants."""

    __slots__ = ("_many", "level", "name", "offset", "queued", "rank", "tenants", "unit_seconds")

    def __init__(self, name: Priority, rank: int, share: float, offset: float) -> None:
        super().__init__(share)
        self.name = name
        self.rank = rank
        self.offset = offset
        self.level: FairShare[_Tenant[T]] = FairShare()
        self.tenants: dict[str | None, _Tenant[T]] = {}
        self.queued = 0
        # As many tenants as are known before the next look for those that may be forgotten.
        self._many = _FEW
        # Seconds that a ticket of the class has lately taken; None before the first has settled.
        self.unit_seconds: float | None = None

    def first(self) -> T:
        """The ticket that is next in the class; there is one."""
        tenant = self.level.sole or self.level.least()
        assert tenant is not None
        return next(iter(tenant.tickets))

    def admit(self, name: str | None, share: float) -> _Tenant[T]:
        """A tenant that is not known, or not any more.

        When their number has doubled, those whose accounts say nothing are dropped: tenants that came once cost no
        memory, and a look over all of them is paid for by as many that came.
        """
        if len(self.tenants) >= self._many:
            self.tenants = {key: one for key, one in self.tenants.items() if not self.level.may_forget(one)}
            self._many = max(2 * len(self.tenants), _FEW)
        tenant = self.tenants[name] = _Tenant(name, share)
        return tenant


def _key(flow: _Class[T]) -> tuple[float, int]:
    return flow.account + flow.offset, flow.rank


class FairOrder(Order[T]):
    """The order of embedkit's lanes.

    Args:
        lead: Seconds of engine time that people may be ahead of batch work, and batch work of probes.
        batch_share: The share of batch work; that of people is 1.
        shares: Of tenants, within each class; 1 for those that are not named.
    """

    def __init__(
        self, *, lead: float = 30.0, batch_share: float = 1.0, shares: Mapping[str | None, float] | None = None
    ) -> None:
        self._shares = shares or {}
        self._level: FairShare[_Class[T]] = FairShare()
        self._classes: dict[str, _Class[T]] = {
            "interactive": _Class("interactive", 0, 1.0, -lead),
            "batch": _Class("batch", 1, batch_share, 0.0),
            "probe": _Class("probe", 2, PROBE_SHARE, lead),
        }
        self._size = 0
        # What each ticket that is out was charged, and to whom.
        self._out: dict[T, tuple[_Class[T], _Tenant[T], float]] = {}

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        for of_class in self._classes.values():
            for tenant in of_class.tenants.values():
                yield from tenant.tickets

    def add(self, ticket: T) -> None:
        """``ticket`` waits from now on, last of its class and tenant."""
        of_class = self._classes[ticket.priority]
        tenant = of_class.tenants.get(ticket.tenant)
        if tenant is None:
            tenant = of_class.admit(ticket.tenant, self._shares.get(ticket.tenant, 1.0))
        tenant.tickets[ticket] = None
        self._size += 1
        of_class.queued += 1
        if not tenant.is_waiting:
            of_class.level.wait(tenant)
            if not of_class.is_waiting:
                self._level.wait(of_class)

    def remove(self, ticket: T) -> None:
        """``ticket`` left without being dispatched. Those behind it keep their places, and no account changes."""
        of_class = self._classes[ticket.priority]
        self._take_out(ticket, of_class, of_class.tenants[ticket.tenant])

    def choose(self, room: Room) -> T | None:
        """The ticket to dispatch next, or ``None`` if there is none or the one whose turn it is does not fit."""
        if not self._size:
            return None
        sole = self._level.sole
        if sole is not None:
            # Nearly always: nothing to compare, and the ceiling holds back nobody whom the room would not.
            tenant = sole.level.sole
            ticket = sole.first() if tenant is None else next(iter(tenant.tickets))
            return ticket if room.fits(ticket) else None
        is_held = False
        for of_class in sorted((one for one in self._classes.values() if one.is_waiting), key=_key):
            if is_held and of_class.name != "interactive":
                continue
            ticket = of_class.first()
            if room.held_by_ceiling(ticket):
                is_held = True
                continue
            return ticket if room.fits(ticket) else None
        return None

    def commit(self, ticket: T) -> None:
        """``ticket`` is dispatched: charge its class and its tenant."""
        of_class = self._classes[ticket.priority]
        tenant = of_class.tenants[ticket.tenant]
        cost = ticket.weight * (of_class.unit_seconds or 0.0)
        self._out[ticket] = (of_class, tenant, cost)
        # Charged before it leaves the queue: a flow with something out is not idle.
        of_class.level.begin(tenant, cost)
        self._level.begin(of_class, cost)
        self._take_out(ticket, of_class, tenant)

    def settle(self, ticket: T, seconds: float, *, is_sample: bool) -> None:
        """``ticket`` has settled: correct what it was charged."""
        of_class, tenant, charged = self._out.pop(ticket)
        beyond = ticket.weight * seconds - charged
        of_class.level.correct(tenant, beyond)
        self._level.correct(of_class, beyond)
        if is_sample:
            before = of_class.unit_seconds
            of_class.unit_seconds = seconds if before is None else before + (seconds - before) * _NEWEST

    def queued(self, priority: Priority, tenant: str | None) -> int:
        """How many of a tenant's tickets wait in a class."""
        found = self._classes[priority].tenants.get(tenant)
        return 0 if found is None else len(found.tickets)

    def census(self) -> Mapping[tuple[Priority, str | None], int]:
        """How many wait, by class and tenant. Costs O(flows)."""
        return {
            (of_class.name, name): len(tenant.tickets)
            for of_class in self._classes.values()
            for name, tenant in of_class.tenants.items()
            if tenant.tickets
        }

    def oldest(self) -> float | None:
        """When the ticket that has waited longest was offered. Costs O(flows): a tenant's first is its oldest."""
        firsts = (
            next(iter(tenant.tickets)).offered_at
            for of_class in self._classes.values()
            for tenant in of_class.tenants.values()
            if tenant.tickets
        )
        return min(firsts, default=None)

    def accounts(self) -> Sequence[Account]:
        """Each class's account; the class that is next is first."""
        return [
            Account(one.name, one.account, one.share, one.offset, one.queued)
            for one in sorted(self._classes.values(), key=lambda one: (not one.is_waiting, *_key(one)))
        ]

    def furthest_behind(self, count: int) -> Sequence[Account]:
        """The tenants that have been served least among those that wait, of each class. Costs O(flows)."""
        return [
            Account(tenant.name, tenant.account, tenant.share, 0.0, len(tenant.tickets), of_class.name)
            for of_class in self._classes.values()
            for tenant in of_class.level.behind(count)
        ]

    def held_by_ceiling(self, room: Room) -> Sequence[Priority]:
        """The classes that wait and that ``choose`` would pass over: the one that is held, and those behind it."""
        if room.ceiling >= room.capacity:
            return []  # the lane is full: there is no room that only people may use, and none to pass over
        patient = (one for one in self._classes.values() if one.is_waiting and one.name != "interactive")
        held: list[Priority] = []
        for of_class in sorted(patient, key=_key):
            if held or room.held_by_ceiling(of_class.first()):
                held.append(of_class.name)
        return held

    def _take_out(self, ticket: T, of_class: _Class[T], tenant: _Tenant[T]) -> None:
        del tenant.tickets[ticket]
        self._size -= 1
        of_class.queued -= 1
        if not tenant.tickets:
            of_class.level.rest(tenant)
            if not of_class.queued:
                self._level.rest(of_class)
