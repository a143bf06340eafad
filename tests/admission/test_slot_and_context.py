"""What a slot must not take along: a caller's context variables, or a cut that comes late; and a nursery that ended."""

from __future__ import annotations

import contextvars
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from embedkit.activity.ledger import Ledger
from embedkit.activity.rows import TicketRow
from embedkit.admission.budget_lane import BudgetLane
from embedkit.admission.capacity_lane import CapacityLane
from embedkit.admission.ticket import Ticket
from embedkit.errors import LaneClosed, ProviderBusy
from embedkit.providers.retry import openai_compatible_policy

whose = contextvars.ContextVar("whose", default="the engine's")


@asynccontextmanager
async def connect() -> AsyncGenerator[None]:
    yield None


async def test_a_callers_context_variables_do_not_reach_providers() -> None:
    seen: list[str] = []

    async def call(_: None) -> None:
        seen.append(whose.get())
        await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        lane = CapacityLane("here", nursery=nursery, connect=connect, capacity=1, ledger=Ledger())
        token = whose.set("the first caller's")
        await lane.run(call, Ticket())
        whose.reset(token)
        await lane.run(call, Ticket())
        lane.close()
    assert seen == ["the engine's", "the engine's"]


class Canceller:
    """A listener that does what it must not: it cancels a caller in the middle of a lane's step."""

    def __init__(self, outcome: str) -> None:
        self.outcome = outcome
        self.scope: trio.CancelScope | None = None

    def changed(self, row: TicketRow) -> None:
        ended = self.outcome == "ended" and row.attempts and row.attempts[-1].ended_at is not None
        if self.scope is not None and (row.outcome == self.outcome or ended):
            scope, self.scope = self.scope, None
            scope.cancel()


@pytest.mark.parametrize("when", ["in-flight", "ended"])
async def test_a_late_cut_does_not_hit_the_next_ticket(when: str, autojump_clock: MockClock) -> None:
    ledger, canceller = Ledger(), Canceller(when)
    ledger.attach(canceller)

    async def call(_: None) -> str:
        await trio.sleep(1.0)
        return "answer"

    async with trio.open_nursery() as nursery:
        lane = BudgetLane("here", nursery=nursery, connect=connect, capacity=1, ledger=ledger)
        with trio.CancelScope() as canceller.scope:
            await lane.run(call, Ticket(timeout=5.0))
        assert await lane.run(call, Ticket(timeout=5.0)) == "answer"
        lane.close()
    totals = lane.statistics().totals
    assert totals.offered == totals.accounted == 2
    assert totals.failed == 0


async def test_a_lane_whose_nursery_has_ended_refuses_every_offer() -> None:
    ledger = Ledger()
    async with trio.open_nursery() as nursery:
        lane = CapacityLane("here", nursery=nursery, connect=connect, capacity=1, ledger=ledger)

    async def call(_: None) -> None:
        raise AssertionError("nobody can make it")

    with pytest.raises(LaneClosed, match="its nursery has ended"):
        await lane.run(call, Ticket())
    for _ in range(2):
        with pytest.raises(LaneClosed, match="is closed"):
            await lane.run(call, Ticket())
    totals = lane.statistics().totals
    assert (totals.offered, totals.shed, totals.queued) == (1, 1, 0)
    assert [row.outcome for row in ledger.settled_rows()] == ["shed"]  # caller and ledger hear the same
    await lane.drained()


async def test_a_hint_of_a_final_failure_holds_the_lane_back_too(autojump_clock: MockClock) -> None:
    async def busy(_: None) -> None:
        await trio.lowlevel.checkpoint()
        raise ProviderBusy("come back later", retry_after=20.0)

    async def call(_: None) -> float:
        await trio.lowlevel.checkpoint()
        return trio.current_time()

    async with trio.open_nursery() as nursery:
        lane = BudgetLane(
            "here", nursery=nursery, connect=connect, capacity=1, ledger=Ledger(), retry=openai_compatible_policy()
        )
        began_at = trio.current_time()
        with pytest.raises(ProviderBusy):  # with a deadline, an interactive ticket is not tried again
            await lane.run(busy, Ticket(deadline_at=began_at + 60.0))
        assert trio.current_time() == began_at
        ticket = Ticket()
        assert await lane.run(call, ticket) == began_at + 20.0
        assert (ticket.clocks.queue_wait, ticket.clocks.retry_wait) == (20.0, 0.0)
        await wait_all_tasks_blocked()
        lane.close()


async def test_a_slot_that_retires_holds_nobody_up_while_its_connection_closes(autojump_clock: MockClock) -> None:
    @asynccontextmanager
    async def slow_to_close() -> AsyncGenerator[None]:
        yield None
        await trio.sleep(5.0)

    async def call(_: None) -> float:
        await trio.sleep(1.0)
        return trio.current_time()

    async def long_call(_: None) -> None:
        await trio.sleep(100.0)

    capacity = 2
    async with trio.open_nursery() as nursery:
        lane = CapacityLane("here", nursery=nursery, connect=slow_to_close, capacity=lambda: capacity, ledger=Ledger())
        async with trio.open_nursery() as callers:
            for _ in range(2):
                callers.start_soon(lane.run, call, Ticket())
        assert lane.statistics().slots == 2
        capacity = 1
        lane.refresh()  # one of the two begins to close
        nursery.start_soon(lane.run, long_call, Ticket())
        await wait_all_tasks_blocked()
        capacity = 2
        lane.refresh()
        # It fits, and nobody is idle. The slot that closes its connection has left: another is opened at once.
        assert await lane.run(call, Ticket()) == 1.0 + 1.0
        lane.close()
