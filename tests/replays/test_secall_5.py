"""hang-in/seCall#5: one text makes the engine answer 500 about NaN, and nothing is indexed any more.

Right: a control proves the engine healthy, that one chunk is fenced, and the rest is stored.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from one_repository import numbered, one_repository, sync

from embedkit.knowledge.indexing.bisecting import CONTROL
from embedkit.testing.engine_rules import Rule, always, containing, noted_in, status
from embedkit.testing.engine_wire import EngineRequest
from embedkit.testing.scripted_engine import open_scripted_engine

NAN = status(500, "failed to encode response: json: unsupported value: NaN")


@pytest.mark.parametrize("kind", ["openai-compatible", "ollama"])
async def test_that_chunk_is_fenced_and_the_rest_is_stored(kind: str, tmp_path: Path) -> None:
    requests: list[EngineRequest] = []
    texts = numbered(9) | {"bad.txt": "this one is poison\n"}
    async with open_scripted_engine(rules=[noted_in(requests), Rule(containing("poison"), NAN)]) as engine:
        settings = one_repository(tmp_path, engine, texts, kind=kind, batch=5)
        first = await sync(settings)
        asked = len(requests)
        again = await sync(settings)

    assert (first.outcome, first.code, first.fenced, first.outstanding) == ("complete", None, 1, 0)
    assert (first.embedded, first.chunks) == (9, 9)
    alone = [request.number for request in requests if len(request.texts) == 1 and "poison" in request.texts[0]]
    controls = [request.number for request in requests if request.texts == (CONTROL,)]
    assert len(controls) == 2
    assert controls[0] < alone[-1] < controls[1]
    assert (again.outcome, again.fenced, again.provider_calls) == ("complete", 1, 0)
    assert len(requests) == asked


@pytest.mark.parametrize("kind", ["openai-compatible", "ollama"])
async def test_an_engine_that_says_it_of_everything_is_broken_and_fences_nothing(kind: str, tmp_path: Path) -> None:
    async with open_scripted_engine(rules=[Rule(always, NAN)]) as engine:
        settings = one_repository(tmp_path, engine, numbered(4), kind=kind, batch=4)
        report = await sync(settings)
        assert engine.log.requests == 2
    assert (report.outcome, report.code, report.fenced) == ("failed", "KB_VECTOR_EMBED_INPUT_REFUSED", 0)
    assert (report.embedded, report.outstanding) == (0, 4)
