"""neomjs/neo#17062: an engine of four slots, two pollers every 15 s, and one batch ticket that never gets its turn.

Right: a batch ticket waits at most for the engine time that its class has itself just taken, plus ``lead`` and a
service, and completes.
"""

from __future__ import annotations

import trio
from replay_lane import openai_lane
from trio.testing import MockClock

from embedkit import Ledger, Ticket
from embedkit.activity.rows import TicketRow
from embedkit.testing.engine_rules import Rule, containing, delay
from embedkit.testing.scripted_engine import open_scripted_engine

POLL_EVERY = 15.0
POLL_TAKES = 10.0
BATCH_TAKES = 183.0
LEAD = 30.0


async def test_the_batch_ticket_completes_while_the_pollers_go_on(autojump_clock: MockClock) -> None:
    ledger = Ledger()
    polls: list[Ticket] = []
    rules = [Rule(containing("poll"), delay(POLL_TAKES)), Rule(containing("chunk"), delay(BATCH_TAKES))]
    async with (
        open_scripted_engine(slots=4, split=True, rules=rules) as engine,
        openai_lane(engine, capacity=4, ledger=ledger) as lane,
        trio.open_nursery() as nursery,
    ):

        async def poller(first: float) -> None:
            await trio.sleep(first)
            while True:
                polls.append(Ticket(priority="interactive", weight=2, inputs=2))
                nursery.start_soon(lane.run, lambda connection: connection.embed(["poll", "poll"]), polls[-1])
                await trio.sleep(POLL_EVERY)

        nursery.start_soon(poller, 0.0)
        nursery.start_soon(poller, 1.0)
        await trio.sleep(2.0)
        for _ in range(5):
            ticket = Ticket(priority="batch", weight=4, inputs=4)
            await lane.run(lambda connection: connection.embed(["chunk"] * 4), ticket)
        nursery.cancel_scope.cancel()

    polls_taken = [row for row in ledger.settled_rows() if row.priority == "interactive" and row.dispatched_at]
    batches = [row for row in ledger.settled_rows() if row.priority == "batch"]
    assert len(batches) == 5
    for number, row in enumerate(batches):
        waited = range_of(row)
        people = sum(2 * POLL_TAKES for poll in polls_taken if waited[0] < range_of(poll)[1] <= waited[1])
        its_own = 4 * BATCH_TAKES if number else 0.0
        assert people <= its_own + LEAD + 4 * POLL_TAKES
        assert row.clocks.provider_time >= BATCH_TAKES
    assert len(polls) > 50


def range_of(row: TicketRow) -> tuple[float, float]:
    """When it was offered, and when it was dispatched."""
    assert row.dispatched_at is not None
    return row.enqueued_at, row.dispatched_at
