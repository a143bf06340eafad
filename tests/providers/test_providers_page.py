"""The settings on the page about providers work: each embeds, on an engine that speaks its language."""

from __future__ import annotations

import re
import tomllib
from importlib.util import find_spec
from pathlib import Path

import attrs
import pytest

from embedkit.engine import open_engine
from embedkit.settings import Settings
from embedkit.settings.structure import settings_from
from embedkit.testing.scripted_engine import ScriptedEngine, open_scripted_engine

PAGE = (Path(__file__).parents[2] / "docs" / "providers.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.M | re.S)


def read(example: str) -> Settings:
    settings = settings_from(tomllib.loads(example))
    assert isinstance(settings, Settings), settings
    return settings


def here(settings: Settings, scripted: ScriptedEngine) -> Settings:
    """``settings`` with the scripted engine in the place of each real one."""
    urls = {"ollama": scripted.base_url, "openai-compatible": scripted.openai_url, "gemini": scripted.gemini_url}
    moved = {
        name: attrs.evolve(described, base_url=urls[described.kind]) for name, described in settings.providers.items()
    }
    return attrs.evolve(settings, providers=moved)


KEYS = dict.fromkeys(re.findall(r"\b[A-Z]+(?:_[A-Z]+)*_KEY\b", PAGE), "a-key")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: str(re.findall(r'kind = "(.*)"', text)))
async def test_an_example_embeds(example: str) -> None:
    described = read(example)
    if described.provider().kind == "local" and find_spec("wordllama") is None:
        pytest.skip("the embedded model is not installed")
    model = described.provider().model or "none"
    async with (
        open_scripted_engine(models=(model,), dimension=described.provider().dimensions or 8) as scripted,
        open_engine(here(described, scripted), environ=KEYS) as engine,
    ):
        bought = await engine.embed(["one", "two"])
        asked = await engine.embed(["three"], purpose="query")
    assert bought.vectors.shape[0] == 2
    assert asked.vectors.shape[0] == 1
    assert described.batch_for() >= 1


ENGINES = (
    "llama.cpp vLLM TEI Infinity LM·Studio LiteLLM OpenRouter Azure·OpenAI NVIDIA·NIM Mistral Voyage Jina Ollama Gemini"
)


@pytest.mark.parametrize("engine", ENGINES.replace(" ", "\n").replace("·", " ").splitlines())
def test_an_engine_has_an_example_and_says_how_it_was_tried(engine: str) -> None:
    section = re.search(rf"^## {re.escape(engine)}\n(.*?)^## ", PAGE, re.M | re.S)
    assert section is not None
    assert "```toml" in section[1]
    tried = PAGE[PAGE.index("## What was run against the real thing") :]
    assert engine.removeprefix("NVIDIA ") in tried


def test_every_kind_that_embeds_has_an_example() -> None:
    kinds = {read(example).provider().kind for example in EXAMPLES}
    assert kinds == {"local", "openai-compatible", "ollama", "gemini"}
