"""How much of a lane is in use, and does a ticket fit. Pure arithmetic, in units of weight."""

from __future__ import annotations

import attrs

from embedkit.admission.waiting import Waiting
from embedkit.errors import UsageError


def checked_capacity(lane: str, value: object) -> int:
    """``value``, if a lane can have it.

    Raises:
        UsageError: It is no positive whole number.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"lane {lane}: capacity must be a positive whole number, not {value!r}")
    return value


@attrs.define
class Room:
    """What is in flight, against what may be.

    Attributes:
        capacity: Units that may be in flight at once.
        reserve: Units that batch and probe work leave free for people.
        tickets: Tickets in flight.
        weight: Units in flight.
        patient: Units of them that belong to batch and probe work.
    """

    capacity: int
    reserve: int = 0
    tickets: int = 0
    weight: int = 0
    patient: int = 0

    @property
    def ceiling(self) -> int:
        """Units that batch and probe work may use together."""
        return max(self.capacity - self.reserve, 1)

    def fits(self, ticket: Waiting) -> bool:
        """Whether ``ticket`` may be dispatched now. One wider than the lane fits an idle lane, and only that."""
        if self.tickets == 0:
            return True
        if self.weight + ticket.weight > self.capacity:
            return False
        return ticket.priority == "interactive" or self.patient + ticket.weight <= self.ceiling

    def held_by_ceiling(self, ticket: Waiting) -> bool:
        """Whether other batch work holds ``ticket`` back, not people: then room it cannot use is free for others.

        A ticket wider than the ceiling waits for an idle lane; if it gave way meanwhile it would wait for ever.
        """
        if ticket.priority == "interactive" or self.tickets == 0 or ticket.weight > self.ceiling:
            return False
        return self.patient + ticket.weight > self.ceiling

    def enter(self, ticket: Waiting) -> None:
        """``ticket`` is dispatched."""
        self.tickets += 1
        self.weight += ticket.weight
        if ticket.priority != "interactive":
            self.patient += ticket.weight

    def leave(self, ticket: Waiting) -> None:
        """``ticket`` is settled."""
        self.tickets -= 1
        self.weight -= ticket.weight
        if ticket.priority != "interactive":
            self.patient -= ticket.weight
