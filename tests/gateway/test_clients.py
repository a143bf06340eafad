"""The official clients, unchanged, sync and async, whole and streaming: what they get is what the engine gave."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import ollama
import openai
import pytest
import trio
from gateways import House, open_house

from embedkit.testing.engine_answers import vector_of

ENGINES = ("openai-compatible", "ollama")
QUESTION: Any = [{"role": "user", "content": "name three colours of the sea"}]
SAID = "scripted was asked: name three colours of the sea"


async def in_a_thread(call: Any) -> Any:
    return await trio.to_thread.run_sync(call)


def openai_client(house: House) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{house.gateway.url}/v1", api_key="unused", max_retries=0)


@pytest.mark.parametrize("kind", ENGINES)
async def test_openai_sync(kind: str) -> None:
    def ask(client: openai.OpenAI) -> None:
        reply = client.embeddings.create(model="scripted", input=["a", "b"])
        for item, text in zip(reply.data, "ab", strict=True):
            assert item.embedding == pytest.approx(vector_of(text, 8))
        chat = client.chat.completions.create(model="scripted", messages=QUESTION)
        assert chat.choices[0].message.content == SAID
        pieces = list(client.chat.completions.create(model="scripted", messages=QUESTION, stream=True))
        assert "".join(piece.choices[0].delta.content or "" for piece in pieces).strip() == SAID
        assert [model.id for model in client.models.list()] == ["scripted", "box"]
        assert client.models.retrieve("box").owned_by == "box"
        with pytest.raises(openai.NotFoundError, match="not served here"):
            client.embeddings.create(model="other", input="a")

    async with open_house(kind) as house:
        with openai_client(house) as client:
            await in_a_thread(lambda: ask(client))
        house.check_balanced()
        assert house.totals.succeeded == 3


@pytest.mark.parametrize("kind", ENGINES)
async def test_openai_async(kind: str) -> None:
    async def ask(url: str) -> None:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client:
            reply = await client.embeddings.create(model="scripted", input=["a"])
            assert len(reply.data) == 1
            stream = await client.chat.completions.create(model="scripted", messages=QUESTION, stream=True)
            said = [piece.choices[0].delta.content or "" async for piece in stream]
            assert "".join(said).strip() == SAID

    async with open_house(kind) as house:
        await in_a_thread(lambda: asyncio.run(ask(house.gateway.url)))
        house.check_balanced()


async def test_ollama_sync() -> None:
    def ask(client: ollama.Client) -> None:
        assert len(client.embed(model="scripted", input=["a", "b"]).embeddings) == 2
        assert client.chat(model="scripted", messages=QUESTION).message.content == SAID
        pieces = list(client.chat(model="scripted", messages=QUESTION, stream=True))
        assert "".join(piece.message.content or "" for piece in pieces).strip() == SAID
        assert [model.model for model in client.list().models] == ["scripted", "box"]
        with pytest.raises(ollama.ResponseError, match="not served here"):
            client.embed(model="other", input="a")

    async with open_house("ollama") as house:
        client = ollama.Client(host=house.gateway.url)
        await in_a_thread(lambda: ask(client))
        client._client.close()
        house.check_balanced()
        assert house.totals.succeeded == 3


async def test_ollama_async() -> None:
    async def ask(url: str) -> None:
        client = ollama.AsyncClient(host=url)
        assert len((await client.embed(model="scripted:latest", input="a")).embeddings) == 1
        stream = await client.chat(model="scripted", messages=QUESTION, stream=True)
        assert "".join([piece.message.content or "" async for piece in stream]).strip() == SAID
        await client._client.aclose()

    async with open_house("ollama") as house:
        await in_a_thread(lambda: asyncio.run(ask(house.gateway.url)))
        house.check_balanced()


async def test_an_answer_is_byte_for_byte_the_engines() -> None:
    async with open_house() as house, httpx.AsyncClient(base_url=house.scripted.base_url, trust_env=False) as straight:
        for path, body in (
            ("/v1/embeddings", house.body("a", "b", encoding_format="base64")),
            ("/v1/chat/completions", {"model": "scripted", "messages": QUESTION}),
            ("/v1/chat/completions", {"model": "scripted", "messages": QUESTION, "stream": True}),
            ("/v1/embeddings", {"model": "scripted", "input": 3}),
            ("/v1/embeddings", {"model": "scripted"}),
        ):
            theirs = await straight.post(path, json=body)
            ours = await house.client.post(path, json=body)
            assert (ours.status_code, ours.content) == (theirs.status_code, theirs.content)
            assert ours.headers["content-type"] == theirs.headers["content-type"]


@pytest.mark.parametrize("base64", ["gives", "ignores"])
async def test_an_ollama_client_has_embeddings_of_any_engine(base64: Any) -> None:
    def ask(client: ollama.Client) -> None:
        found = client.embed(model="box", input=["a", "b"], truncate=False, keep_alive="5m")
        assert found.model == "box"
        for vector, text in zip(found.embeddings, "ab", strict=True):
            assert vector == pytest.approx(vector_of(text, 8))
        assert client.embeddings(model="scripted", prompt="a").embedding == pytest.approx(vector_of("a", 8))
        assert [model.model for model in client.list().models] == ["scripted", "box"]
        with pytest.raises(ollama.ResponseError, match="options"):
            client.embed(model="box", input="a", options={"num_ctx": 1})

    async with open_house(base64=base64) as house:
        client = ollama.Client(host=house.gateway.url)
        await in_a_thread(lambda: ask(client))
        client._client.close()
        house.check_balanced()


async def test_an_ollama_client_is_told_which_dialect_a_model_speaks() -> None:
    async with open_house() as house:
        reply = await house.client.post("/api/chat", json={"model": "scripted", "messages": QUESTION})
        assert reply.status_code == 400
        assert reply.json() == {
            "error": "the model 'scripted' speaks OpenAI's dialect; ask it at /v1/chat/completions",
            "code": "other_dialect",
        }
        assert house.scripted.log.requests == 0
