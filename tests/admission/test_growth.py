"""F-5: what an offer, a take and a withdrawal cost does not grow with what waits."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import Any, Literal

import attrs
import pytest

from embedkit.admission.order import Order
from embedkit.admission.room import Room
from embedkit.admission.waiting_room import WaitingRoom

FEW, MANY = 1_000, 100_000
ROUNDS = 300


@attrs.define(eq=False)
class Item:
    priority: Literal["interactive", "batch", "probe"] = "batch"
    weight: int = 1
    tenant: str | None = None
    offered_at: float = 0.0


class Filled:
    """A waiting room with ``count`` tickets, over tenants, inside or (half of them) before the door."""

    def __init__(self, count: int, *, tenants: int, inside: int) -> None:
        self.room = Room(10**9)
        self.waiting: WaitingRoom[Item] = WaitingRoom(Order(), inside)
        self.items = [Item(tenant=str(number % tenants), weight=1 + number % 3) for number in range(count)]
        for item in self.items:
            self.waiting.add(item, 0.0)
        self.taken: set[Item] = set()
        self.leavers = (item for item in reversed(self.items) if item not in self.taken)

    def offer(self) -> None:
        self.waiting.add(Item(tenant="0"), 1.0)

    def take(self) -> None:
        chosen = self.waiting.order.choose(1.0, self.room)
        assert chosen is not None
        self.waiting.commit(chosen, 1.0, self.room)
        self.taken.add(chosen)

    def withdraw(self) -> None:
        self.waiting.remove(next(self.leavers), 1.0)


OPERATIONS = ("offer", "take", "withdraw")
SHAPES: dict[str, Callable[[int], Filled]] = {
    "one tenant": lambda count: Filled(count, tenants=1, inside=count * 2),
    "a tenant a ticket": lambda count: Filled(count, tenants=count, inside=count * 2),
    "half of them outside": lambda count: Filled(count, tenants=7, inside=count // 2),
}


def _calls(operation: Callable[[], None]) -> int:
    """How many functions, ours and the interpreter's, ``ROUNDS`` operations call."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        for _ in range(ROUNDS):
            operation()
    finally:
        sys.setprofile(None)
    return count


def _seconds(operation: Callable[[], None]) -> float:
    """The quickest of several batches of operations: whatever else the machine does makes them slower only."""
    times = []
    gc.disable()
    try:
        for _ in range(10):
            began = time.perf_counter()
            for _ in range(ROUNDS // 10):
                operation()
            times.append(time.perf_counter() - began)
    finally:
        gc.enable()
    return min(times)


@pytest.mark.parametrize("shape", SHAPES)
def test_f_5_no_operation_grows_from_1000_to_100000(shape: str) -> None:
    few, many = SHAPES[shape](FEW), SHAPES[shape](MANY)
    for name in OPERATIONS:
        # Calls are counted to see growth in our own code, and seconds to see growth inside of one call.
        calls = _calls(getattr(many, name)) / _calls(getattr(few, name))
        assert calls <= 1.5, f"{name}: {calls:.2f} times the calls"
    few, many = SHAPES[shape](FEW), SHAPES[shape](MANY)
    for name in OPERATIONS:
        seconds = _seconds(getattr(many, name)) / _seconds(getattr(few, name))
        assert seconds <= 8.0, f"{name}: {seconds:.1f} times the seconds"  # linear growth would be 100
