"""neomjs/neo-agent-brain#48: the caller leaves after a second, and the engine computes for a minute more.

Right: on an Ollama lane the next request is not sent before the first has ended.
"""

from __future__ import annotations

import pytest
import trio
from replay_lane import embed, ollama_lane
from trio.testing import MockClock

from embedkit.testing.scripted_engine import open_scripted_engine


async def test_the_next_request_waits_until_the_first_has_ended(autojump_clock: MockClock) -> None:
    async with (
        open_scripted_engine(slots=1, service=61.0, on_leave="run-on") as engine,
        ollama_lane(engine) as lane,
    ):
        with trio.move_on_after(1.0) as left:
            await embed(lane, ["first"], priority="interactive")
        assert left.cancelled_caught
        assert lane.statistics().tickets_in_flight == 1
        await embed(lane, ["second"], priority="interactive")
        first, second = engine.log.records
    assert first.ended_at is not None
    assert second.arrived_at >= first.ended_at
    assert second.arrived_at - first.arrived_at == pytest.approx(61.0)
    assert engine.log.most_queued <= 1
