"""The model that a reply names: a change of it during a run is refused; another way of writing it is not a change."""

from __future__ import annotations

import json

import pytest

from embedkit.errors import ModelChanged
from embedkit.providers.identity import mean_the_same
from embedkit.providers.ollama import OllamaProvider
from embedkit.providers.openai_compatible import OpenAICompatibleProvider
from embedkit.testing.engine_rules import Behaviour, Rule, nth
from embedkit.testing.scripted_engine import open_scripted_engine


def naming(model: object) -> Behaviour:
    """The right answer, under another model's name."""

    def rewrite(body: bytes) -> bytes:
        return json.dumps({**json.loads(body), "model": model}).encode()

    return Behaviour(rewrite=rewrite)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("bge-m3", "BAAI/bge-m3"),
        ("bge-m3", "openai/BAAI/bge-m3"),
        ("nomic-embed-text", "nomic-embed-text:latest"),
        ("all-minilm", "/models/all-MiniLM.gguf"),
        ("all-minilm", "C:\\models\\all-minilm.gguf"),
        ("nomic-embed-text-v1.5", "text-embedding-nomic-embed-text-v1.5"),
        ("models/gemini-embedding-001", "gemini-embedding-001"),
    ],
)
def test_names_that_mean_the_same(one: str, other: str) -> None:
    assert mean_the_same(one, other)
    assert mean_the_same(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("text-embedding-3-small", "text-embedding-3-large"),
        ("e5-small", "e5-small-v2"),
        ("voyage-3", "voyage-3.5"),
        ("bge-m3:567m", "bge-m3:latest"),
        ("m", ""),
    ],
)
def test_names_that_do_not(one: str, other: str) -> None:
    assert not mean_the_same(one, other)


@pytest.mark.parametrize("kind", ["openai", "ollama"])
async def test_a_change_during_a_run_is_refused_by_name_and_nothing_is_kept(kind: str) -> None:
    async with open_scripted_engine(rules=[Rule(nth(2), naming("other"))]) as engine:
        provider: OpenAICompatibleProvider | OllamaProvider
        if kind == "openai":
            provider = OpenAICompatibleProvider("here", engine.openai_url, "scripted")
        else:
            provider = OllamaProvider("here", engine.base_url, "scripted")
        async with provider.connect() as connection:
            await connection.embed(["one"])
            with pytest.raises(ModelChanged, match="answered with the model 'other', and before with 'scripted'"):
                await connection.embed(["one"])
            assert (await connection.embed(["one"])).shape == (1, 8)


@pytest.mark.parametrize("said", ["maker/scripted", "scripted.gguf", "", None, 7, ["x"]])
async def test_another_way_of_writing_it_and_silence_are_no_change(said: object) -> None:
    async with open_scripted_engine(rules=[Rule(nth(2), naming(said))]) as engine:
        provider = OpenAICompatibleProvider("here", engine.openai_url, "scripted")
        async with provider.connect() as connection:
            for _ in range(3):
                assert (await connection.embed(["one"])).shape == (1, 8)


async def test_a_deployment_may_answer_with_the_model_behind_it() -> None:
    rules = [Rule(nth(1, 2), naming("text-embedding-3-small")), Rule(nth(3), naming("text-embedding-3-large"))]
    async with open_scripted_engine(rules=rules) as engine:
        provider = OpenAICompatibleProvider("here", engine.openai_url, "my-deployment")
        async with provider.connect() as connection:
            for _ in range(2):
                await connection.embed(["one"])
            with pytest.raises(ModelChanged):
                await connection.embed(["one"])


async def test_a_key_in_a_model_s_name_is_not_shown() -> None:
    rules = [Rule(nth(2), naming("m-k9-secret-k9")), Rule(nth(3), naming("a\x1b[31m" + "b" * 500))]
    async with open_scripted_engine(rules=rules) as engine:
        provider = OpenAICompatibleProvider("here", engine.openai_url, "scripted", api_key="k9-secret-k9")
        async with provider.connect() as connection:
            await connection.embed(["one"])
            for _ in range(2):
                with pytest.raises(ModelChanged, match="one whose name is not shown") as caught:
                    await connection.embed(["one"])
                assert "k9-secret" not in str(caught.value)
