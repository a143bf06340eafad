"""cocoindex-io/cocoindex PR 2394: 2,334 chunks, and every request times out.

Right: one clock a request; a timeout ends the work; the total time is one timeout, not a tree of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from one_repository import one_repository, sync
from trio.testing import MockClock

from embedkit.testing.engine_rules import Rule, always, stall_mid_body
from embedkit.testing.scripted_engine import open_scripted_engine

CHUNKS = 2_334
TIMEOUT = 300.0


@pytest.mark.parametrize("kind", ["openai-compatible", "ollama"])
async def test_the_whole_run_takes_one_timeout(kind: str, tmp_path: Path, mock_clock: MockClock) -> None:
    sections = [f"# Part {number}\n\n{f'word{number} ' * 110}\n" for number in range(CHUNKS)]
    texts = {f"{start:04}.md": "\n".join(sections[start : start + 100]) for start in range(0, CHUNKS, 100)}
    async with open_scripted_engine(slots=4, rules=[Rule(always, stall_mid_body())]) as engine:
        settings = one_repository(tmp_path, engine, texts, kind=kind, batch=5, capacity=1, timeout=TIMEOUT)
        reports = []

        async def run() -> None:
            reports.append(await sync(settings))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await engine.wait_for_requests(1)
            mock_clock.jump(TIMEOUT)  # once: whatever waits for more would wait for ever
        (report,) = reports
        assert engine.log.requests == 1
    assert (report.outcome, report.code) == ("deferred", "KB_VECTOR_EMBED_PROVIDER_TIMEOUT")
    assert (report.provider_calls, report.embedded, report.outstanding) == (1, 0, len(texts))
    assert report.clocks.provider_time == pytest.approx(TIMEOUT)
    assert report.elapsed == pytest.approx(TIMEOUT)
