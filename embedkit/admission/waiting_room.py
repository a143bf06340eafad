"""Where offered tickets wait: a bounded number of each class in the order, the rest outside its door. Pure.

Both are *queued*: a caller that waits for room is shed, withdrawn and counted as any other. The bound keeps the order
(and what it decides between tenants) to a size somebody can reason about; it is for each class, so that people do not
wait behind a batch for room.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

from embedkit.admission.order import Order
from embedkit.admission.room import Room
from embedkit.admission.waiting import Waiting

T = TypeVar("T", bound=Waiting)


class WaitingRoom(Generic[T]):
    """An order with a door for each class.

    Args:
        order: Decides who is next among those inside; ask it.
        max_queued: How many of one class may be inside.
    """

    def __init__(self, order: Order[T], max_queued: int) -> None:
        self.order = order
        self.max_queued = max_queued
        self._inside = {"interactive": 0, "batch": 0, "probe": 0}
        self._outside: dict[str, OrderedDict[T, None]] = {
            "interactive": OrderedDict(),
            "batch": OrderedDict(),
            "probe": OrderedDict(),
        }

    def __len__(self) -> int:
        return len(self.order) + sum(map(len, self._outside.values()))

    def __iter__(self) -> Iterator[T]:
        yield from self.order
        for door in self._outside.values():
            yield from door

    def is_full(self, priority: str) -> bool:
        """Whether the next ticket of this class would wait for room."""
        return self._inside[priority] >= self.max_queued

    def add(self, ticket: T, now: float) -> None:
        """``ticket`` waits: inside if there is room, else outside, in order."""
        if self.is_full(ticket.priority):
            self._outside[ticket.priority][ticket] = None
        else:
            self._inside[ticket.priority] += 1
            self.order.add(ticket, now)

    def remove(self, ticket: T, now: float) -> None:
        """``ticket`` left without being dispatched."""
        door = self._outside[ticket.priority]
        if ticket in door:
            del door[ticket]
        else:
            self.order.remove(ticket, now)
            self._left(ticket, now)

    def commit(self, ticket: T, now: float, room: Room) -> None:
        """``ticket`` is dispatched; see ``Order.commit``."""
        self.order.commit(ticket, now, room)
        self._left(ticket, now)

    def _left(self, ticket: T, now: float) -> None:
        door = self._outside[ticket.priority]
        if door:
            follower, _ = door.popitem(last=False)
            self.order.add(follower, now)
        else:
            self._inside[ticket.priority] -= 1
