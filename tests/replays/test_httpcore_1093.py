"""encode/httpcore#1093: 20 requests on 10 connections, each cancelled after 0 to 20 ms; then nothing works
any more.

Right: the next good request succeeds at once, and nothing is stuck.
"""

from __future__ import annotations

import random

import pytest
import trio
from replay_lane import embed, ollama_lane, openai_lane

from embedkit.admission.lane import Lane
from embedkit.providers.provider import Connection
from embedkit.testing.scripted_engine import open_scripted_engine


@pytest.mark.parametrize("open_lane", [openai_lane, ollama_lane])
@pytest.mark.parametrize("service", [0.0, 0.01])
async def test_after_a_storm_of_cancels_the_next_request_succeeds_at_once(
    open_lane: type, service: float, autojump_clock: trio.testing.MockClock
) -> None:
    draw = random.Random(1093)
    async with (
        open_scripted_engine(slots=10, service=service) as engine,
        open_lane(engine, capacity=10) as lane,
    ):
        for _ in range(10):
            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(_leave_after, lane, draw.uniform(0.0, 0.02))
        began_at = trio.current_time()
        await embed(lane, ["good"], timeout=5.0)
        # A detached Ollama call keeps its slot until it ends, and there are ten slots: one service, then
        # ours.
        assert trio.current_time() - began_at <= 2 * service + 1e-6
        lane.close()
        await lane.drained()
        totals = lane.statistics().totals
        assert (totals.in_flight, totals.queued, totals.unsettled) == (0, 0, 0)
        assert totals.offered == totals.accounted
        # Its engine has at most the slots' connections left, each of them idle.
        await engine.wait_until(lambda log: log.open_connections <= 10)


async def _leave_after(lane: Lane[Connection], seconds: float) -> None:
    with trio.move_on_after(seconds):
        await embed(lane, ["unwanted"])
