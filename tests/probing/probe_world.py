"""A broker on a lane whose engine is a function of the test, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from embedkit.activity.ledger import Ledger
from embedkit.activity.process import Process
from embedkit.admission.capacity_lane import CapacityLane
from embedkit.admission.lane import Lane
from embedkit.admission.ticket import Ids, Ticket
from embedkit.admission.waiting import Priority
from embedkit.database import Database
from embedkit.errors import UsageError
from embedkit.probing.broker import ProbeBroker
from embedkit.probing.call import Target
from embedkit.settings import ProbeSettings

# Any dimension will do.
GOOD = [[0.5, 0.25]]
# The wall clock of these worlds, less trio's.
EPOCH = 1_700_000_000.0


def wall_clock() -> float:
    return EPOCH + trio.current_time()


@attrs.define(eq=False)
class World:
    """One process: a lane, a ledger, a broker.

    Attributes:
        probes: How often the engine was probed.
        script: What it does with a probe; gives vectors.
        dimension: What vectors must have.
        refuses: Whether no call to it can be made at all.
    """

    lane: Lane[None]
    broker: ProbeBroker
    nursery: trio.Nursery
    script: Callable[[], Awaitable[Any]]
    probes: int = 0
    dimension: int | None = None
    refuses: bool = False
    prepared: int = 0

    async def call(self, connection: None) -> Any:
        self.probes += 1
        return await self.script()

    async def prepare(self) -> int | None:
        await trio.lowlevel.checkpoint()
        self.prepared += 1
        if self.refuses:
            raise UsageError("the engine does not have the model")
        return self.dimension

    async def work(self, seconds: float = 0.0, priority: Priority = "batch", error: Exception | None = None) -> None:
        """One call of real work."""

        async def call(connection: None) -> None:
            await trio.sleep(seconds)
            if error is not None:
                raise error

        await self.lane.run(call, Ticket(priority=priority, ids=Ids(stage="ingestion")))

    async def works(self, count: int) -> None:
        """So many calls of real work."""
        for _ in range(count):
            await self.work()


async def answers_at_once() -> Any:
    await trio.lowlevel.checkpoint()
    return GOOD


class Gate:
    """An engine that answers when it is told to."""

    def __init__(self) -> None:
        self.opened = trio.Event()

    async def __call__(self) -> Any:
        await self.opened.wait()
        return GOOD


@asynccontextmanager
async def open_world(
    script: Callable[[], Awaitable[Any]] = answers_at_once,
    *,
    rules: ProbeSettings | None = None,
    database: Database | None = None,
    capacity: int = 1,
    process: Process | None = None,
    timeout: float | None = None,
) -> AsyncGenerator[World]:
    ledger = Ledger(wall_clock=wall_clock)
    async with trio.open_nursery() as nursery:
        lane: Lane[None] = CapacityLane(
            "box", nursery=nursery, connect=_nothing, capacity=capacity, ledger=ledger, provider="box"
        )
        broker = ProbeBroker(nursery, rules or ProbeSettings(), wall_clock=wall_clock, process=process)
        world = World(lane, broker, nursery, script)
        broker.watch(Target("box", "engine", lane, world.call, world.prepare, timeout))
        ledger.attach(broker)
        if database is not None:
            await broker.share(database)
        yield world
        assert ledger.statistics().listener_failures == 0
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def _nothing() -> AsyncGenerator[None]:
    yield None
