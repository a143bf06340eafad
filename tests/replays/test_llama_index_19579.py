"""run-llama/llama_index#19579 and #22639: a document whose embedding failed once is never tried again; and where a
changed document fails, its old vectors are gone.

Right: it is tried again in the next run, and until then the old vectors are served.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from one_repository import numbered, one_repository, sync

from embedkit.engine import open_engine
from embedkit.knowledge.indexing.bisecting import CONTROL
from embedkit.settings import Settings
from embedkit.testing.engine_rules import Rule, containing, status
from embedkit.testing.scripted_engine import open_scripted_engine

# Final at once, and no input's fault: a 500 would be tried again within the ticket.
BROKEN = status(401, "not now")


def broken_once(part: str) -> list[Rule]:
    """An engine that breaks at a text, and then at the control: else it would be asked about that text again."""
    return [Rule(containing(part), BROKEN, times=1), Rule(containing(CONTROL), BROKEN, times=1)]


async def texts_found(settings: Settings, query: str) -> list[str]:
    async with open_engine(settings) as engine:
        return [hit.text for hit in await engine.search(query, tenant="acme", k=3, mode="vector")]


@pytest.mark.parametrize("kind", ["openai-compatible", "ollama"])
async def test_what_failed_once_is_tried_again_in_the_next_run(kind: str, tmp_path: Path) -> None:
    rules = broken_once("unlucky")
    async with open_scripted_engine(rules=rules) as engine:
        settings = one_repository(tmp_path, engine, {"a.txt": "an unlucky text\n"} | numbered(3), kind=kind, batch=1)
        failed = await sync(settings)
        assert (failed.outcome, failed.code) == ("failed", "KB_VECTOR_EMBED_AUTH")
        assert failed.outstanding >= 1
        again = await sync(settings)
        assert (again.outcome, again.outstanding) == ("complete", 0)
        assert "an unlucky text" in (await texts_found(settings, "an unlucky text"))[0]


@pytest.mark.parametrize("kind", ["openai-compatible", "ollama"])
async def test_a_change_that_fails_leaves_the_old_vectors_to_serve(kind: str, tmp_path: Path) -> None:
    async with open_scripted_engine(rules=broken_once("newer")) as engine:
        settings = one_repository(tmp_path, engine, {"a.txt": "the older text\n"}, kind=kind, batch=1)
        assert (await sync(settings)).outcome == "complete"
        (tmp_path / "repository" / "a.txt").write_text("the newer text\n", encoding="utf-8")
        failed = await sync(settings)
        assert (failed.outcome, failed.outstanding) == ("failed", 1)
        assert ["older" in text for text in await texts_found(settings, "the older text")] == [True]
        assert (await sync(settings)).outcome == "complete"
        assert ["newer" in text for text in await texts_found(settings, "the newer text")] == [True]
