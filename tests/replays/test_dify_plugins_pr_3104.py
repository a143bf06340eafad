"""dify-official-plugins PR 3104: Ollama behind a proxy that wants a bearer; the key was accepted and never sent."""

from __future__ import annotations

from pathlib import Path

import pytest
from one_repository import one_repository

from embedkit.engine import open_engine
from embedkit.errors import SettingsError
from embedkit.settings import ProviderSettings
from embedkit.testing.engine_rules import noted_in
from embedkit.testing.engine_wire import EngineRequest
from embedkit.testing.scripted_engine import open_scripted_engine


async def test_the_key_is_sent(tmp_path: Path) -> None:
    seen: list[EngineRequest] = []
    async with open_scripted_engine(rules=[noted_in(seen)], api_key="sk-1234") as scripted:
        settings = one_repository(tmp_path, scripted, {}, api_key_env="BOX_KEY")
        async with open_engine(settings, environ={"BOX_KEY": "sk-1234"}) as engine:
            assert len((await engine.embed(["one"])).vectors) == 1
    assert [request.headers["authorization"] for request in seen] == ["Bearer sk-1234"]


@pytest.mark.parametrize("environ", [{}, {"BOX_KEY": ""}, {"BOX_KEY": "  "}])
async def test_a_key_that_is_unset_is_said_before_anything_is_sent(environ: dict[str, str], tmp_path: Path) -> None:
    async with open_scripted_engine() as scripted:
        settings = one_repository(tmp_path, scripted, {}, api_key_env="BOX_KEY")
        async with open_engine(settings, environ=environ) as engine:
            with pytest.raises(SettingsError, match='the environment variable "BOX_KEY" is not set'):
                await engine.embed(["one"])
        assert scripted.log.connections == 0


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("local", "api_key_env", "BOX_KEY"),
        ("local", "headers", {"x-team": "search"}),
        ("local", "num_ctx", 512),
        ("openai-compatible", "num_ctx", 512),
        ("openai-compatible", "keep_alive", "5m"),
        ("openai-compatible", "options", {"num_batch": 4}),
        ("gemini", "options", {"num_batch": 4}),
        ("codex", "proxy", "http://proxy:3128"),
    ],
)
def test_a_key_that_would_not_be_sent_is_refused(kind: str, name: str, value: object) -> None:
    needed = {"openai-compatible": {"base_url": "http://h/v1", "model": "m"}, "gemini": {"model": "m"}}.get(kind, {})
    with pytest.raises(SettingsError, match=rf"providers\.<name>\.{name}: .* has no use: "):
        ProviderSettings(kind=kind, **needed, **{name: value})  # type: ignore[arg-type]
