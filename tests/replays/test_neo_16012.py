"""neomjs/neo#16012: an engine of one slot that goes on computing after its client left; every request times out.

Right: the engine's own queue never exceeds the lane's capacity, and no timeout is tried again in its cycle.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from one_repository import numbered, one_repository, sync
from trio.testing import MockClock

from embedkit.testing.scripted_engine import open_scripted_engine


@pytest.fixture
def patient_clock() -> MockClock:
    return MockClock(autojump_threshold=0.05)


@pytest.mark.parametrize("kind", ["openai-compatible", "ollama"])
async def test_a_cycle_sends_it_one_request_and_the_engine_queues_none(
    kind: str, tmp_path: Path, patient_clock: MockClock
) -> None:
    async with open_scripted_engine(slots=1, service=600.0, on_leave="run-on") as engine:
        settings = one_repository(tmp_path, engine, numbered(12), kind=kind, batch=1, timeout=60.0)
        for cycle in range(1, 4):
            report = await sync(settings)
            assert report.code == "KB_VECTOR_EMBED_PROVIDER_TIMEOUT"
            assert (report.outcome, report.provider_calls, report.outstanding) == ("deferred", 1, 12)
            assert engine.log.requests == cycle
            await trio.sleep(1_800.0)  # until it is due again, the engine has worked off what it was left with
            assert engine.queued == 0
        assert engine.log.most_queued <= 1
