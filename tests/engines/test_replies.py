"""Engines that nobody could run here: their replies, from documentation and public reports, over a real socket."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import numpy as np
import pytest
import trio
from replies import ENGINES, VECTORS, Refused, Scripted, body_of

from embedkit.errors import ProviderError
from embedkit.providers.openai_compatible import OpenAICompatibleProvider
from embedkit.testing.engine_http import RequestReader, response_head


@asynccontextmanager
async def speaking(engine: Scripted, refused: Refused | None = None) -> AsyncGenerator[OpenAICompatibleProvider]:
    """A server that answers as ``engine`` does; embeddings with ``refused``, where one is given."""

    async def handle(stream: trio.SocketStream) -> None:
        reader = RequestReader()
        async for data in stream:
            reader.feed(bytes(data))
            while (request := reader.next()) is not None:
                status, headers, body = 200, {}, body_of(engine.answer)
                if request.method == "GET":
                    status, body = (404, b"{}") if engine.models is None else (200, body_of(engine.models))
                elif refused is not None:
                    status, headers, body = refused.status, dict(refused.headers), body_of(refused.body)
                await stream.send_all(response_head(status, list(headers.items()), len(body)) + body)

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, handle, [listener])
        url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/v1"
        yield OpenAICompatibleProvider("here", url, "m")
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("name", ENGINES)
async def test_its_answer_is_read(name: str) -> None:
    async with speaking(ENGINES[name]) as provider:
        assert (await provider.preflight()).model == "m"
        async with provider.connect() as connection:
            for _ in range(2):
                np.testing.assert_array_equal(await connection.embed(["one", "two"]), VECTORS)


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        pytest.param(name, refused, id=f"{name} {refused.status} {refused.code}")
        for name, engine in ENGINES.items()
        for refused in engine.refusals
    ],
)
async def test_its_refusals_are_what_they_are(name: str, refused: Refused) -> None:
    async with speaking(ENGINES[name], refused) as provider, provider.connect() as connection:
        with pytest.raises(ProviderError) as caught:
            await connection.embed(["one", "two"])
    error = caught.value
    assert (type(error), error.code, error.retry_after) == (refused.kind, refused.code, refused.retry_after)
