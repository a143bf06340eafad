"""RooCodeInc/Roo-Code#6650: a 429 at batch 7 of 20, then the process restarts.

Right: the next sync resumes at batch 7 and repeats no input.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from one_repository import numbered, one_repository, sync

from embedkit.testing.engine_rules import Rule, busy
from embedkit.testing.scripted_engine import open_scripted_engine


@pytest.mark.parametrize("kind", ["openai-compatible", "ollama"])
async def test_it_resumes_where_it_was_and_repeats_nothing(kind: str, tmp_path: Path) -> None:
    # Without a hint a batch is not tried again inside its ticket; a second one may be queued behind it.
    is_limited = True
    rules = [Rule(lambda request: is_limited and request.number >= 7, busy())]
    async with open_scripted_engine(rules=rules) as engine:
        settings = one_repository(tmp_path, engine, numbered(100), kind=kind, batch=5)
        limited = await sync(settings)
        assert (limited.outcome, limited.code) == ("deferred", "KB_VECTOR_EMBED_PROVIDER_BUSY")
        assert limited.embedded == 30
        before = engine.log.requests

        is_limited = False
        resumed = await sync(settings)  # an engine of its own, as a new process has
        assert (resumed.outcome, resumed.embedded) == ("complete", 70)
        records = engine.log.records
    refused = records[6]
    assert refused.outcome == "refused"
    assert records[before].hashes == refused.hashes
    bought = [hash_ for record in records if record.outcome == "answered" for hash_ in record.hashes]
    assert len(bought) == len(set(bought)) == 100
