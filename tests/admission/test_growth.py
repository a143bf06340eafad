"""F-5: what an offer, a take and a withdrawal cost does not grow with what waits."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import attrs
import pytest
import trio

from embedkit import BudgetLane, Circuit, Ledger, ProviderCircuitOpen, ProviderTimeout, Ticket
from embedkit.admission.fair_order import FairOrder
from embedkit.admission.room import Room
from embedkit.testing import wait_until_queued

FEW, MANY = 1_000, 100_000
ROUNDS = 150


@attrs.define(eq=False)
class Item:
    priority: Literal["interactive", "batch", "probe"] = "batch"
    weight: int = 1
    tenant: str | None = None
    offered_at: float = 0.0


class Filled:
    """An order with ``count`` tickets, over tenants; a ticket in three has been taken before, so accounts differ."""

    def __init__(self, count: int, *, tenants: int) -> None:
        self.room = Room(10**9)
        self.order: FairOrder[Item] = FairOrder()
        self.items = [Item(tenant=str(number % tenants), weight=1 + number % 3) for number in range(count)]
        for item in self.items:
            self.order.add(item)
        self.taken: set[Item] = set()
        self.out: list[Item] = []
        for _ in range(count // 3):
            self.take()
        self.leavers = (item for item in reversed(self.items) if item not in self.taken)

    def offer(self) -> None:
        self.order.add(Item(tenant="0"))

    def take(self) -> None:
        chosen = self.order.choose(self.room)
        assert chosen is not None
        self.order.commit(chosen)
        self.taken.add(chosen)
        self.out.append(chosen)

    def settle(self) -> None:
        item = self.out.pop()
        self.order.settle(item, 1.0 + item.weight, is_sample=True)

    def withdraw(self) -> None:
        self.order.remove(next(self.leavers))


OPERATIONS = ("offer", "take", "settle", "withdraw")
SHAPES: dict[str, Callable[[int], Filled]] = {
    "a tenant a ticket": lambda count: Filled(count, tenants=count),
    "ten tickets a tenant": lambda count: Filled(count, tenants=count // 10),
    "one tenant": lambda count: Filled(count, tenants=1),
}


def _calls(operation: Callable[[], Any], then: Callable[[Any], object] = id, rounds: int = ROUNDS) -> int:
    """How many functions, ours and the interpreter's, so many operations call."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        for _ in range(rounds):
            then(operation())
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
    for name in OPERATIONS:
        seconds = _seconds(getattr(many, name)) / _seconds(getattr(few, name))
        assert seconds <= 8.0, f"{name}: {seconds:.1f} times the seconds"  # linear growth would be 100


@asynccontextmanager
async def _connect() -> AsyncGenerator[None]:
    yield


async def _hang(_: None) -> None:
    await trio.sleep_forever()


async def _withdrawal_and_trip(count: int) -> tuple[int, int]:
    """Calls that one withdrawal from among ``count`` tickets takes, and those that a trip takes for each."""
    circuit = Circuit()
    async with trio.open_nursery() as engine, trio.open_nursery() as callers:
        lane = BudgetLane("here", nursery=engine, connect=_connect, capacity=1, ledger=Ledger(), max_queued=count // 2)

        async def ask(scope: trio.CancelScope) -> None:
            with scope:
                try:
                    await lane.run(_hang, Ticket("batch", circuit=circuit))
                except ProviderCircuitOpen:
                    return

        scopes = [trio.CancelScope() for _ in range(count)]
        for scope in scopes:
            callers.start_soon(ask, scope)
        await wait_until_queued(lane, count - 1)
        withdrawn = _calls(iter(scopes[count // 3 : count // 3 + ROUNDS]).__next__, lambda scope: scope.cancel())
        before = lane.statistics().totals.queued
        tripped = _calls(lambda: None, lambda _: circuit.trip(ProviderTimeout("late")), rounds=1)
        assert lane.statistics().totals.shed == before
        callers.cancel_scope.cancel()
        engine.cancel_scope.cancel()
    return withdrawn // ROUNDS, tripped // before


async def test_f_5_withdrawal_and_trip_in_a_lane_of_10000() -> None:
    few, many = await _withdrawal_and_trip(500), await _withdrawal_and_trip(10_000)
    assert many[0] <= few[0] * 1.1
    assert many[1] <= few[1] * 1.1
