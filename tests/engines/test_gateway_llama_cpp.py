"""The gateway before a real llama.cpp: the official client gets what the engine gives, to the byte."""

from __future__ import annotations

from pathlib import Path

import openai
import orjson
import pytest
import trio
from llama_server import LlamaServer

from embedkit.engine import open_engine
from embedkit.gateway.serving import open_gateway
from embedkit.providers.http import HttpEndpoint
from embedkit.providers.relay import Relay
from embedkit.settings import EmbeddingSettings, GatewaySettings, Place, ProviderSettings, Settings, StoreSettings


async def ask(url: str, path: str, document: dict[str, object]) -> tuple[int, bytes]:
    relay = Relay(HttpEndpoint(url))
    head = await relay.ask("POST", path, orjson.dumps(document))
    body = b""
    while piece := await relay.receive():
        body += piece
    await relay.aclose()
    return head.status, body


async def test_a_real_engine_behind_the_gateway(llama: LlamaServer) -> None:
    settings = Settings(
        providers={
            "box": ProviderSettings(kind="openai-compatible", base_url=llama.openai_url, model="tiny", capacity=4)
        },
        embedding=EmbeddingSettings(provider="box"),
        store=StoreSettings(path=Path("/nonexistent/never-opened.sqlite3")),
        gateway=GatewaySettings(listen=(Place("127.0.0.1", 0),)),
    )

    def through_the_client(url: str) -> None:
        with openai.OpenAI(base_url=url, api_key="unused", max_retries=0) as client:
            reply = client.embeddings.create(model="tiny", input=["one", "two"])
            assert len(reply.data) == 2
            assert reply.data[0].embedding != reply.data[1].embedding
            with pytest.raises(openai.APIStatusError) as caught:
                client.embeddings.create(model="tiny", input=[])
            assert caught.value.status_code in (400, 500)

    async with open_engine(settings) as engine, open_gateway(engine) as gateway:
        documents: tuple[dict[str, object], ...] = ({"model": "tiny", "input": ["one", "two"]}, {"model": "tiny"})
        for document in documents:
            straight = await ask(llama.openai_url, "/embeddings", document)
            assert await ask(f"{gateway.url}/v1", "/embeddings", document) == straight
        await trio.to_thread.run_sync(through_the_client, f"{gateway.url}/v1")
        totals = engine.lane("box").statistics().totals
        assert totals.offered == totals.accounted
        assert (totals.queued, totals.in_flight) == (0, 0)
