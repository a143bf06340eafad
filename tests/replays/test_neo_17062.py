"""neomjs/neo#17062: an engine of four slots, two pollers every 15 s, and one batch ticket that never gets its turn.

Right: the batch ticket is overtaken at most as often as the bound says, and completes.
"""

from __future__ import annotations

import trio
from replay_lane import openai_lane
from trio.testing import MockClock

from embedkit.admission.ticket import Ticket
from embedkit.testing.engine_rules import Rule, containing, delay
from embedkit.testing.scripted_engine import open_scripted_engine

POLL_EVERY = 15.0
POLL_TAKES = 10.0
BATCH_TAKES = 183.0


async def test_the_batch_ticket_completes_while_the_pollers_go_on(autojump_clock: MockClock) -> None:
    polls: list[Ticket] = []
    batches: list[Ticket] = []
    rules = [Rule(containing("poll"), delay(POLL_TAKES)), Rule(containing("chunk"), delay(BATCH_TAKES))]
    async with (
        open_scripted_engine(slots=4, split=True, rules=rules) as engine,
        openai_lane(engine, capacity=4) as lane,
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
            batches.append(Ticket(priority="batch", weight=4, inputs=4))
            await lane.run(lambda connection: connection.embed(["chunk"] * 4), batches[-1])
        nursery.cancel_scope.cancel()

    for ticket in batches:
        overtook = [
            poll for poll in polls if poll.attempts and ticket.offered_at < poll.dispatched_at <= ticket.dispatched_at
        ]
        assert len(overtook) <= 1  # max_overtakes
        # At most the calls that were out, the one that overtook it, and no more.
        assert ticket.clocks.queue_wait <= 3 * POLL_TAKES
        assert ticket.clocks.provider_time >= BATCH_TAKES
    assert len(polls) > 50
