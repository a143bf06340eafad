"""Our two kinds of lane, as the law suite and our sharper tests make them."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio
from trio.testing import MockClock

from embedkit import BudgetLane, CapacityLane, Circuit, Lane, Ledger
from embedkit.activity.rows import TicketRow
from embedkit.testing import Settlement
from embedkit.testing.books import ENDINGS, accounted
from embedkit.testing.stage import Stage
from embedkit.testing.trace import Trace

KINDS: dict[Settlement, type[Lane[None]]] = {"provider": CapacityLane, "queue": BudgetLane}
SETTLEMENTS: tuple[Settlement, ...] = ("provider", "queue")


@asynccontextmanager
async def connect() -> AsyncGenerator[None]:
    yield


def maker(settlement: Settlement) -> Callable[..., Lane[None]]:
    """Makes the lane of ours whose kind declares ``settlement``."""

    def make_lane(nursery: trio.Nursery, **options: Any) -> Lane[None]:
        return KINDS[settlement]("here", nursery=nursery, connect=connect, **{"ledger": Ledger(), **options})

    return make_lane


@attrs.define(eq=False)
class House:
    """A stage whose lane is ours, with its ledger."""

    stage: Stage
    lane: Lane[None]
    ledger: Ledger
    # Tickets shed by a circuit that was open already: they have a row, and never touched the lane.
    shed_at_the_door: int = 0

    @property
    def endings(self) -> dict[str, int]:
        """How tickets ended, so far; words that did not happen are left out."""
        totals = self.lane.statistics().totals
        return {word: count for word in ENDINGS if (count := getattr(totals, word))}

    def rows(self) -> list[TicketRow]:
        return list(self.ledger.settled_rows())

    def row(self, number: int = -1) -> TicketRow:
        return self.rows()[number]

    def check(self) -> None:
        """Law 6, and that ledger and statistics tell the same story."""
        totals = self.lane.statistics().totals
        assert totals.offered == accounted(totals)
        assert Counter(row.outcome for row in self.rows()) == Counter(self.endings) + Counter(
            shed=self.shed_at_the_door
        )
        assert Counter(row.outcome for row in self.ledger.open_rows()) == Counter(
            {"queued": totals.queued, "in-flight": totals.in_flight}
        )

    def check_over(self, *circuits: Circuit) -> None:
        """Everything has ended, and no circuit knows of anything that has not."""
        totals = self.lane.statistics().totals
        assert (totals.queued, totals.in_flight) == (0, 0)
        assert self.ledger.open_rows() == ()
        for circuit in circuits:
            before = circuit.shed
            circuit.trip(Exception("afterwards"))
            assert circuit.shed == before
        self.check()


@asynccontextmanager
async def open_house(settlement: Settlement, clock: MockClock, **options: Any) -> AsyncGenerator[House]:
    """A lane of ours, whose engine is a task of its own, as in a service."""
    ledger = Ledger()
    options = {"capacity": 1, "ledger": ledger, **options}

    async def host(task_status: trio.TaskStatus[tuple[trio.Nursery, Lane[None]]]) -> None:
        async with trio.open_nursery() as engine:
            task_status.started((engine, maker(settlement)(engine, **options)))
            await trio.sleep_forever()

    async with trio.open_nursery() as root, trio.open_nursery() as callers:
        engine, lane = await root.start(host)
        house = House(Stage(lane, settlement, callers, engine, clock, Trace()), lane, ledger)
        yield house
        house.check()
        root.cancel_scope.cancel()
