"""The official clients as witnesses: what the scripted engine speaks is OpenAI's, Ollama's and Gemini's language."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from embedkit.testing.engine_answers import vector_of
from embedkit.testing.engine_rules import Rule, always, busy, nth, status
from embedkit.testing.scripted_engine import ScriptedEngine, open_scripted_engine

TEXTS = ["alpha", "beta"]
RIGHT = [pytest.approx(list(vector_of(text, 8)), abs=1e-6) for text in TEXTS]


@pytest.fixture
def openai() -> Any:
    return pytest.importorskip("openai")


@pytest.fixture
def ollama() -> Any:
    return pytest.importorskip("ollama")


def openai_client(openai: Any, engine: ScriptedEngine) -> Any:
    return openai.AsyncOpenAI(base_url=engine.openai_url, api_key="sk-1", max_retries=0)


async def test_openai_reads_our_embeddings_and_models(openai: Any) -> None:
    async with open_scripted_engine(api_key="sk-1") as engine, openai_client(openai, engine) as client:
        for encoding in ({}, {"encoding_format": "float"}, {"encoding_format": "base64"}):
            reply = await client.embeddings.create(model="scripted", input=TEXTS, **encoding)
            assert reply.model == "scripted"
            assert reply.usage.total_tokens == 2
            if encoding.get("encoding_format") != "base64":
                assert [item.embedding for item in reply.data] == RIGHT
            assert [item.index for item in reply.data] == [0, 1]
        assert [model.id async for model in client.models.list()] == ["scripted"]


async def test_openai_reads_our_refusals(openai: Any) -> None:
    rules = [
        Rule(nth(1), busy(retry_after="7")),
        Rule(nth(2), status(500, "broken")),
        Rule(always, status(400, "bad")),
    ]
    async with open_scripted_engine(rules=rules) as engine, openai_client(openai, engine) as client:
        with pytest.raises(openai.RateLimitError) as limited:
            await client.embeddings.create(model="scripted", input="one")
        assert limited.value.response.headers["retry-after"] == "7"
        with pytest.raises(openai.InternalServerError, match="broken"):
            await client.embeddings.create(model="scripted", input="one")
        with pytest.raises(openai.BadRequestError, match="bad"):
            await client.embeddings.create(model="scripted", input="one")


async def test_ollama_reads_our_embeddings_and_models(ollama: Any) -> None:
    async with open_scripted_engine() as engine:
        client = ollama.AsyncClient(host=engine.base_url)
        reply = await client.embed(model="scripted", input=TEXTS, truncate=False, options={"num_ctx": 512})
        assert [list(row) for row in reply.embeddings] == RIGHT
        assert reply.model == "scripted"
        listed = await client.list()
        assert [model.model for model in listed.models] == ["scripted:latest"]
        await client._client.aclose()


async def test_ollama_reads_our_refusals(ollama: Any) -> None:
    async with open_scripted_engine() as engine:
        client = ollama.AsyncClient(host=engine.base_url)
        with pytest.raises(ollama.ResponseError, match="try pulling it first") as refused:
            await client.embed(model="other", input="one")
        assert refused.value.status_code == 404
        await client._client.aclose()


async def test_google_genai_reads_our_embeddings_and_refusals() -> None:
    genai = pytest.importorskip("google.genai")
    rules = [Rule(nth(2), status(429, "quota"))]
    async with open_scripted_engine(api_key="g-1", models=("scripted",), rules=rules) as engine:
        options = genai.types.HttpOptions(base_url=engine.base_url, api_version="v1beta")

        def ask() -> tuple[Any, int, list[str]]:
            # Its asynchronous client is for asyncio alone, so the synchronous one runs in a thread.
            with genai.Client(api_key="g-1", http_options=options) as client:
                reply = client.models.embed_content(model="scripted", contents=TEXTS)
                with pytest.raises(genai.errors.ClientError) as refused:
                    client.models.embed_content(model="scripted", contents=TEXTS)
                return reply, refused.value.code, [model.name for model in client.models.list()]

        reply, code, listed = await trio.to_thread.run_sync(ask)
        assert [item.values for item in reply.embeddings] == RIGHT
        assert code == 429
        assert listed == ["models/scripted"]
