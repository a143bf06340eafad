"""What an order of a lane must do. Pure.

An order is the one part of a lane that others may write: first come first served, strict priority, a policy of their
own. The lane asks it who is next, and tells it what became of whom. ``fair_order`` is ours.
"""

from __future__ import annotations

import abc
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, TypeVar

import attrs

from embedkit.admission.room import Room
from embedkit.admission.waiting import Priority, Waiting


@attrs.frozen
class Account:
    """A flow's account, as it is shown.

    Attributes:
        flow: The class, or the tenant.
        account: Seconds of engine time charged, divided by ``share``; only differences mean anything.
        share: Relative to the other flows of its level.
        offset: Added to the account when classes are compared; 0 for tenants.
        queued: Tickets of it that wait.
        within: The class that a tenant competes in; ``None`` where the flow is a class.
    """

    flow: str | None
    account: float
    share: float
    offset: float
    queued: int
    within: Priority | None = None


T = TypeVar("T", bound=Waiting)


class Order(abc.ABC, Generic[T]):
    """Who is next: the index of one lane's waiting tickets.

    Five methods, and what a collection has. None of them may block or call back into the lane. One that raises ends the
    lane: what is queued is shed.
    """

    @abc.abstractmethod
    def __len__(self) -> int:
        """How many wait."""

    @abc.abstractmethod
    def __iter__(self) -> Iterator[T]:
        """All that wait."""

    @abc.abstractmethod
    def add(self, ticket: T) -> None:
        """``ticket`` waits from now on."""

    @abc.abstractmethod
    def remove(self, ticket: T) -> None:
        """``ticket`` left without being dispatched."""

    @abc.abstractmethod
    def choose(self, room: Room) -> T | None:
        """The ticket to dispatch next, or ``None`` if there is none or the one whose turn it is does not fit.

        A look costs nothing: it may be asked any number of times before ``commit``.
        """

    @abc.abstractmethod
    def commit(self, ticket: T) -> None:
        """``ticket``, just chosen, is dispatched."""

    @abc.abstractmethod
    def settle(self, ticket: T, seconds: float, *, is_sample: bool) -> None:
        """``ticket``, committed before, has settled.

        Args:
            ticket: Which.
            seconds: From its dispatch to its settlement.
            is_sample: Whether that says how long such work takes; a call that was cut off does not.
        """

    def queued(self, priority: Priority, tenant: str | None) -> int:
        """How many of a tenant's tickets wait in a class."""
        return self.census().get((priority, tenant), 0)

    def census(self) -> Mapping[tuple[Priority, str | None], int]:
        """How many wait, by class and tenant."""
        return Counter((ticket.priority, ticket.tenant) for ticket in self)

    def oldest(self) -> float | None:
        """When the ticket that has waited longest was offered; ``None`` if none waits."""
        return min((ticket.offered_at for ticket in self), default=None)

    def accounts(self) -> Sequence[Account]:
        """Each class's account, where the order keeps one; the class that is next is first."""
        return ()

    def furthest_behind(self, count: int) -> Sequence[Account]:
        """The tenants that have been served least among those that wait, where the order keeps accounts.

        The first of a class is next in it.
        """
        return ()

    def held_by_ceiling(self, room: Room) -> Sequence[Priority]:
        """The classes that wait and that only the batch ceiling holds back: people may use room that these may not."""
        return ()
