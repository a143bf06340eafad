"""gcsproxy#15: a refusal arrives packed, although nobody asked for it, and its hint was lost.

Status and headers decide first; gzip and deflate are read, within a bound.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio

from embedkit.errors import ContentRefused, ProviderBusy, ProviderError, ResponseInvalid
from embedkit.providers.openai_compatible import OpenAICompatibleProvider

WORDS = json.dumps({"error": {"message": "This model's maximum context length is 512 tokens"}}).encode()
GOOD = json.dumps({"data": [{"index": 0, "embedding": [1.0, 2.0]}]}).encode()


def raw_deflate(plain: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(plain) + packer.flush()


@asynccontextmanager
async def answering(status: int, encoding: str, body: bytes) -> AsyncGenerator[OpenAICompatibleProvider]:
    head = (
        f"HTTP/1.1 {status} X\r\nContent-Encoding: {encoding}\r\nRetry-After: 7\r\nContent-Length: {len(body)}\r\n\r\n"
    )

    async def handle(stream: trio.SocketStream) -> None:
        async for _ in stream:
            await stream.send_all(head.encode() + body)

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, handle, [listener])
        url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/v1"
        yield OpenAICompatibleProvider("here", url, "m")
        nursery.cancel_scope.cancel()


async def failure(provider: OpenAICompatibleProvider) -> ProviderError:
    async with provider.connect() as connection:
        with pytest.raises(ProviderError) as caught:
            await connection.embed(["one"])
    return caught.value


@pytest.mark.parametrize(
    "encoding", ["gzip", "x-gzip", "GZIP", "deflate", "", "utf-8", "identity", "br", "gzip, br", "x"]
)
@pytest.mark.parametrize(
    "body", [b"", b"\x00\xff", gzip.compress(WORDS, mtime=0)[:20], WORDS], ids=["none", "noise", "cut", "plain"]
)
async def test_a_hint_is_read_whatever_the_body_is(encoding: str, body: bytes) -> None:
    async with answering(429, encoding, body) as provider:
        error = await failure(provider)
    assert type(error) is ProviderBusy
    assert (error.status, error.retry_after) == (429, 7.0)


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(WORDS, mtime=0)),
        ("deflate", zlib.compress(WORDS)),
        ("deflate", raw_deflate(WORDS)),
        ("utf-8", WORDS),
        ("", WORDS),
    ],
)
async def test_what_a_packed_refusal_says_is_read(encoding: str, body: bytes) -> None:
    async with answering(400, encoding, body) as provider:
        error = await failure(provider)
    assert type(error) is ContentRefused
    assert error.code == "INPUT_TRUNCATED"


@pytest.mark.parametrize(
    ("encoding", "body"), [("gzip", gzip.compress(GOOD, mtime=0)), ("deflate", raw_deflate(GOOD)), ("utf-8", GOOD)]
)
async def test_a_packed_answer_is_an_answer(encoding: str, body: bytes) -> None:
    async with answering(200, encoding, body) as provider, provider.connect() as connection:
        for _ in range(2):
            assert (await connection.embed(["one"])).tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("encoding", "body", "reason"),
    [
        ("br", GOOD, "is encoded as 'br', which was not asked for"),
        ("sk-secret", GOOD, "is encoded as something unknown"),
        ("gzip", GOOD, "says that it is packed, and is not"),
        ("gzip", gzip.compress(GOOD, mtime=0)[:-9], "is packed, and cut short"),
        ("gzip", gzip.compress(b"[" * 50_000_000, mtime=0), "is larger than 1048576 bytes once it is unpacked"),
    ],
)
async def test_an_answer_that_cannot_be_unpacked_is_no_answer(encoding: str, body: bytes, reason: str) -> None:
    async with answering(200, encoding, body) as provider:
        error = await failure(provider)
    assert type(error) is ResponseInvalid
    assert reason in str(error)
    assert "sk-secret" not in str(error)
