"""What a lane costs, beside trio's own: ``python -m benchmarks.admission``.

Every figure is a ratio within one run. Of a call, the price in instructions is held to a bound (``instructions``); its
time is told, too, from rounds of ours and of the baseline that take turns, and without a bound: it moves with the
machine.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
import tracemalloc
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise

import attrs
import trio
import trio.testing

from benchmarks import instructions
from benchmarks.measure import Figure, report
from embedkit.activity.ledger import Ledger
from embedkit.admission.capacity_lane import CapacityLane
from embedkit.admission.circuit import Circuit
from embedkit.admission.fair_order import FairOrder
from embedkit.admission.room import Room
from embedkit.admission.ticket import Ticket
from embedkit.admission.waiting import Priority
from embedkit.errors import ProviderTimeout

OPERATIONS = ("offer", "withdrawal", "take", "settlement")
CALLS = 4_000
ROUNDS = 9
Timed = Callable[[], Awaitable[float]]


@asynccontextmanager
async def _connect() -> AsyncGenerator[None]:
    yield None


async def _never_ends(_: None) -> None:
    await trio.sleep_forever()


async def _one_checkpoint(_: None) -> None:
    await trio.lowlevel.checkpoint()


def _lane(nursery: trio.Nursery, capacity: int, *, max_queued: int = 1024) -> CapacityLane[None]:
    return CapacityLane(
        "bench", nursery=nursery, connect=_connect, capacity=capacity, ledger=Ledger(), max_queued=max_queued
    )


async def _in_turn(callers: int, calls: int, call: Callable[[], Awaitable[None]]) -> float:
    """Seconds that ``callers`` take for ``calls`` calls between them."""

    async def caller() -> None:
        for _ in range(calls // callers):
            await call()

    began = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for _ in range(callers):
            nursery.start_soon(caller)
    return time.perf_counter() - began


async def through_limiter(callers: int, capacity: int, *, calls: int = CALLS) -> float:
    """The baseline: the same call under ``async with CapacityLimiter``."""
    limiter = trio.CapacityLimiter(capacity)

    async def call() -> None:
        async with limiter:
            await _one_checkpoint(None)

    return await _in_turn(callers, calls, call)


async def through_lane(callers: int, capacity: int, timeout: float | None = None, *, calls: int = CALLS) -> float:
    """The same call through a lane, ledger on."""
    async with trio.open_nursery() as nursery:
        lane = _lane(nursery, capacity)

        async def call() -> None:
            await lane.run(_one_checkpoint, Ticket(timeout=timeout))

        await call()
        seconds = await _in_turn(callers, calls, call)
        lane.close()
    return seconds


def ratio(ours: Timed, baseline: Timed, rounds: int = ROUNDS) -> float:
    """Median of ours over median of the baseline's, in turns."""
    pairs = [(trio.run(ours), trio.run(baseline)) for _ in range(rounds)]
    return statistics.median(a for a, _ in pairs) / statistics.median(b for _, b in pairs)


# -- growth ----------------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class _Item:
    """What waits, without a ticket's cancel scope: a million of those would be measured as memory."""

    priority: Priority
    tenant: str
    weight: int = 1
    offered_at: float = 0.0


def order_costs(tenants: int, of_each: int, samples: int = 2_000) -> dict[str, float]:
    """Seconds of one offer, withdrawal, take and settlement in an order that holds ``of_each`` of so many tenants."""
    order: FairOrder[_Item] = FairOrder()
    room = Room(capacity=10 * samples)
    for number in range(tenants * of_each):
        order.add(_Item("batch", str(number % tenants)))
    new = [_Item("batch", str(number % tenants)) for number in range(samples)]
    gc.collect()
    gc.disable()
    try:
        marks = [time.perf_counter()]
        for item in new:
            order.add(item)
        marks.append(time.perf_counter())
        for item in new:
            order.remove(item)
        marks.append(time.perf_counter())
        taken = []
        for _ in range(min(samples, tenants * of_each // 2)):
            chosen = order.choose(room)
            assert chosen is not None
            order.commit(chosen)
            taken.append(chosen)
        marks.append(time.perf_counter())
        for item in taken:
            order.settle(item, 1.0, is_sample=True)
        marks.append(time.perf_counter())
    finally:
        gc.enable()
    counts = (samples, samples, len(taken), len(taken))
    spent = (later - earlier for earlier, later in pairwise(marks))
    return dict(zip(OPERATIONS, (seconds / count for seconds, count in zip(spent, counts, strict=True)), strict=True))


def growth(tenants: int, of_each: int, small: tuple[int, int], rounds: int = 5) -> dict[str, float]:
    """How much each cost grows from a small order of the same shape: ratios of medians."""
    runs = [(order_costs(tenants, of_each), order_costs(*small, 500)) for _ in range(rounds)]
    return {
        name: statistics.median(large[name] for large, _ in runs) / statistics.median(small[name] for _, small in runs)
        for name in OPERATIONS
    }


async def _lane_costs(queued: int, samples: int = 1_000) -> dict[str, float]:
    """Seconds of one offer (from its task's start to its parking) and one withdrawal (inside ``cancel``) in a lane."""
    async with trio.open_nursery() as engine, trio.open_nursery() as callers:
        lane = _lane(engine, 1, max_queued=2 * queued + samples)
        callers.start_soon(lane.run, _never_ends, Ticket())
        for number in range(queued):
            callers.start_soon(lane.run, _one_checkpoint, Ticket(priority="batch", tenant=f"tenant {number % 50}"))
        await trio.testing.wait_all_tasks_blocked()
        scopes = [trio.CancelScope() for _ in range(samples)]

        async def caller(scope: trio.CancelScope) -> None:
            with scope:
                await lane.run(_one_checkpoint, Ticket(priority="batch", tenant="tenant 1"))

        gc.collect()
        gc.disable()
        began = time.perf_counter()
        for scope in scopes:
            callers.start_soon(caller, scope)
        await trio.testing.wait_all_tasks_blocked()
        offered = time.perf_counter()
        for scope in scopes:
            scope.cancel()
        withdrawn = time.perf_counter()
        gc.enable()
        assert lane.statistics().totals.withdrawn == samples
        callers.cancel_scope.cancel()
        engine.cancel_scope.cancel()
    return {"offer": (offered - began) / samples, "withdrawal": (withdrawn - offered) / samples}


def lane_growth(small: int = 1_000, large: int = 100_000, rounds: int = 3) -> dict[str, float]:
    """As ``growth``, for callers of a lane."""
    runs = [(trio.run(_lane_costs, large), trio.run(_lane_costs, small)) for _ in range(rounds)]
    return {
        name: statistics.median(large[name] for large, _ in runs) / statistics.median(small[name] for _, small in runs)
        for name in ("offer", "withdrawal")
    }


# -- memory ----------------------------------------------------------------------------------------------------------


async def _memory_of(count: int, park: Callable[[], Awaitable[object]]) -> float:
    """Bytes for each of ``count`` tasks that wait in ``park``."""
    async with trio.open_nursery() as nursery:
        await trio.testing.wait_all_tasks_blocked()
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(count):
            nursery.start_soon(park)
        await trio.testing.wait_all_tasks_blocked()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        nursery.cancel_scope.cancel()
    return (after - before) / count


async def _waits_in_limiter(count: int) -> float:
    limiter = trio.CapacityLimiter(1)
    limiter.acquire_on_behalf_of_nowait(object())

    async def park() -> None:
        async with limiter:
            raise AssertionError("nobody lets it in")

    return await _memory_of(count, park)


async def _waits_in_lane(count: int) -> float:
    async with trio.open_nursery() as nursery:
        lane = _lane(nursery, 1, max_queued=count)
        nursery.start_soon(lane.run, _never_ends, Ticket())
        await trio.testing.wait_all_tasks_blocked()
        seconds = await _memory_of(count, lambda: lane.run(_one_checkpoint, Ticket()))
        nursery.cancel_scope.cancel()
    return seconds


def memory_ratio(count: int = 5_000) -> float:
    """A queued ticket, over a task parked on a limiter."""
    return trio.run(_waits_in_lane, count) / trio.run(_waits_in_limiter, count)


# -- a trip ----------------------------------------------------------------------------------------------------------


async def _cancel_parked(count: int) -> float:
    """Seconds from cancelling one scope over ``count`` parked tasks until all have ended."""
    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(trio.sleep_forever)
        await trio.testing.wait_all_tasks_blocked()
        gc.collect()
        began = time.perf_counter()
        nursery.cancel_scope.cancel()
    return time.perf_counter() - began


async def _trip_queued(count: int) -> float:
    """Seconds from the trip of a circuit with ``count`` queued tickets until all their callers have ended."""
    async with trio.open_nursery() as nursery:
        lane = _lane(nursery, 1, max_queued=count)
        circuit = Circuit()
        ended = 0

        async def caller() -> None:
            nonlocal ended
            try:
                await lane.run(_one_checkpoint, Ticket(circuit=circuit))
            except Exception:
                ended += 1

        nursery.start_soon(lane.run, _never_ends, Ticket())
        await trio.testing.wait_all_tasks_blocked()
        async with trio.open_nursery() as callers:
            for _ in range(count):
                callers.start_soon(caller)
            await trio.testing.wait_all_tasks_blocked()
            gc.collect()
            began = time.perf_counter()
            circuit.trip(ProviderTimeout("no answer"))
            assert ended == 0  # the trip returns before any of them runs
        seconds = time.perf_counter() - began
        assert ended == circuit.shed == count
        nursery.cancel_scope.cancel()
    return seconds


def figures() -> Iterator[Figure]:
    """All of them, one after the other."""
    yield from instructions.figures()
    lane, limiter = partial(through_lane, 100, 4), partial(through_limiter, 100, 4)
    uncontended = ratio(partial(through_lane, 1, 1), partial(through_limiter, 1, 1))
    yield Figure("one call, 100 callers on 4 slots / under CapacityLimiter, time", None, ratio(lane, limiter))
    limited = partial(through_lane, 100, 4, 300.0)
    yield Figure("  the same, each with a limit of 300 s", None, ratio(limited, limiter))
    yield Figure("one call, uncontended / under CapacityLimiter, time", None, uncontended)
    for name, found in lane_growth().items():
        yield Figure(f"{name} in a lane, 1,000 to 100,000 queued", 2.0, found, "at most")
    for name, found in growth(1, 1_000_000, (1, 1_000)).items():
        yield Figure(f"{name} in the order, one tenant, 1,000 to 1,000,000 tickets", 2.0, found, "at most")
    for name, found in growth(100_000, 10, (1_000, 10)).items():
        yield Figure(f"{name} in the order, ten tickets a tenant, 1,000 to 100,000 tenants", 2.0, found, "at most")
    yield Figure("memory of a queued ticket / of a task parked on a limiter", 1.3, memory_ratio(), "at most")
    trip = ratio(partial(_trip_queued, 10_000), partial(_cancel_parked, 10_000), 5)
    yield Figure("a trip with 10,000 queued / cancelling 10,000 parked tasks", 2.0, trip, "at most")


if __name__ == "__main__":
    sys.exit(report("admission", list(figures())))
