"""litellm#13643: a gateway's list of models is not complete, or names patterns; the sync ended with exit 2 unasked."""

from __future__ import annotations

from pathlib import Path

import pytest
from one_repository import one_repository

from embedkit.engine import open_engine
from embedkit.errors import UsageError
from embedkit.providers.identity import identify
from embedkit.testing.scripted_engine import open_scripted_engine


@pytest.mark.parametrize("listed", [["*"], ["openai/*", "gpt-4o"], ["text-*"]])
def test_a_pattern_is_no_list(listed: list[str]) -> None:
    identity = identify("m", listed, peer="h:1", empty_is_refusal=False)
    assert identity.verdict == "unknown"
    assert "patterns" in identity.detail


def test_a_model_that_is_listed_beside_patterns_is_listed() -> None:
    assert identify("m", ["*", "m"], peer="h:1", empty_is_refusal=False).verdict == "listed"


def test_the_refusal_says_what_to_do_where_the_list_is_not_complete() -> None:
    with pytest.raises(UsageError, match=r"it has 'other': .*; if its list is not complete, set preflight = false$"):
        identify("m", ["other"], peer="h:1", empty_is_refusal=False)


@pytest.mark.parametrize("kind", ["openai-compatible", "ollama"])
async def test_without_preflight_the_engine_is_not_asked(kind: str, tmp_path: Path) -> None:
    async with open_scripted_engine(models=("scripted", "other")) as scripted:
        settings = one_repository(tmp_path, scripted, {}, kind=kind, preflight=False)
        async with open_engine(settings) as engine:
            assert len((await engine.embed(["one"])).vectors) == 1
        assert scripted.log.listings == 0


async def test_with_a_list_of_patterns_work_proceeds(tmp_path: Path) -> None:
    async with open_scripted_engine(models=("*",)) as scripted:
        settings = one_repository(tmp_path, scripted, {}, kind="openai-compatible")
        async with open_engine(settings) as engine:
            assert len((await engine.embed(["one"])).vectors) == 1
