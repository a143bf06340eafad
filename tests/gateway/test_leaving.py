"""Laws 1, 2 and 6 through the door: who leaves while queued, while dispatched, in the middle of a stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx
import orjson
import pytest
import trio
from gateways import ANY, House, open_house, wait_until
from streaming_engine import StreamingEngine, open_streaming_engine

from embedkit.engine import Engine, open_engine
from embedkit.gateway.serving import Gateway, open_gateway
from embedkit.settings import EmbeddingSettings, GatewaySettings, ProviderSettings, Settings, StoreSettings
from embedkit.testing.engine_rules import Rule, hold, nth


def request_bytes(path: str, document: dict[str, Any], **headers: str) -> bytes:
    body = orjson.dumps(document)
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{more}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def asks(house: House, text: str, **headers: str) -> trio.SocketStream:
    """A client that has sent its request."""
    stream = await trio.open_tcp_stream("127.0.0.1", house.gateway.port)
    await stream.send_all(request_bytes("/v1/embeddings", house.body(text), **headers))
    return stream


async def test_who_leaves_while_queued_was_never_sent() -> None:
    released = trio.Event()
    async with open_house(rules=[Rule(nth(1), hold(released))]) as house:
        first = await asks(house, "first")
        await house.scripted.wait_for_requests(1)
        waiting = [await asks(house, f"waits {number}") for number in range(5)]
        await wait_until(lambda: house.totals.queued == 5)
        await waiting[2].aclose()
        await waiting[0].aclose()
        await wait_until(lambda: house.totals.withdrawn == 2)
        assert house.totals.queued == 3
        released.set()
        for stream in (first, waiting[1], waiting[3], waiting[4]):
            assert b"200 OK" in await stream.receive_some(65536)
            await stream.aclose()
        assert house.scripted.log.requests == 4
        assert house.totals.succeeded == 4
        await house.settled()


async def test_who_left_is_not_sent_though_its_slot_was_free_in_the_same_step() -> None:
    """The engine answers and a waiting client leaves before the gateway runs again: it must not be sent."""
    released = trio.Event()
    async with open_house(rules=[Rule(nth(1), hold(released))]) as house:
        first, second = await asks(house, "first"), await asks(house, "second")
        await wait_until(lambda: house.totals.queued == 1)
        # No checkpoint in between: both are there when the gateway's tasks run next.
        second.socket.close()
        released.set()
        assert b"200 OK" in await first.receive_some(65536)
        await wait_until(lambda: house.totals.offered == house.totals.accounted and not house.totals.in_flight)
        assert house.scripted.log.requests == 1
        await first.aclose()
        await house.settled()


async def test_a_dispatched_call_is_aborted_on_a_budget_lane() -> None:
    async with open_house(rules=[Rule(nth(1), hold(trio.Event()))]) as house:
        stream = await asks(house, "first")
        await house.scripted.wait_for_requests(1)
        await stream.aclose()
        await house.scripted.wait_until(lambda log: log.records[0].client_left)
        await wait_until(lambda: house.totals.aborted == 1)
        assert (await house.embed("good")).status_code == 200
        await house.settled()


async def test_a_dispatched_call_is_detached_on_a_capacity_lane() -> None:
    released = trio.Event()
    async with open_house("ollama", rules=[Rule(nth(1), hold(released))]) as house:
        stream = await asks(house, "first")
        await house.scripted.wait_for_requests(1)
        await stream.aclose()
        next_one = await asks(house, "next")
        await wait_until(lambda: house.totals.queued == 1)
        # The engine computes on, and so its slot is taken.
        assert house.totals.in_flight == 1
        assert house.scripted.log.requests == 1
        released.set()
        assert b"200 OK" in await next_one.receive_some(65536)
        await next_one.aclose()
        assert not house.scripted.log.records[0].client_left
        assert house.totals.succeeded == 2
        await house.settled()


@attrs.frozen
class StreamingHouse:
    """A gateway before an engine whose stream a test writes."""

    gateway: Gateway
    engine: Engine
    streaming: StreamingEngine

    @property
    def totals(self) -> Any:
        return self.engine.lane("box").statistics().totals

    async def ask(self, **headers: str) -> trio.SocketStream:
        stream = await trio.open_tcp_stream("127.0.0.1", self.gateway.port)
        document = {"model": "m", "stream": True, "messages": []}
        await stream.send_all(request_bytes("/v1/chat/completions", document, **headers))
        return stream


@asynccontextmanager
async def open_streams(
    kind: str = "openai-compatible", *, timeout: float = 30.0, **gateway: Any
) -> AsyncGenerator[StreamingHouse]:
    async with open_streaming_engine() as streaming:
        base = streaming.url if kind == "ollama" else f"{streaming.url}/v1"
        settings = Settings(
            providers={"box": ProviderSettings(kind=kind, base_url=base, model="m", timeout=timeout)},  # type: ignore[arg-type]
            embedding=EmbeddingSettings(provider="box"),
            store=StoreSettings(path=Path("/nonexistent/never-opened.sqlite3")),
            gateway=GatewaySettings(listen=ANY, **gateway),
        )
        async with open_engine(settings) as engine, open_gateway(engine) as opened:
            yield StreamingHouse(opened, engine, streaming)


async def read_until(stream: trio.SocketStream, ending: bytes) -> bytes:
    found = b""
    with trio.fail_after(10):
        while not found.endswith(ending):
            data = await stream.receive_some(65536)
            assert data, found
            found += data
    return found


async def test_a_piece_goes_out_as_it_comes_and_the_slot_is_held_to_the_last() -> None:
    async with open_streams() as house, await house.ask() as client:
        call = await house.streaming.call(0)
        await call.send.send(b"data: one\n\n")
        first = await read_until(client, b"data: one\n\n\r\n")
        assert b"X-Embedkit-Ticket" in first.title()
        assert b"queue-wait" in first
        assert b"provider-time" not in first
        assert house.totals.in_flight == 1
        await call.send.send(b"data: two\n\n")
        await read_until(client, b"data: two\n\n\r\n")
        assert house.totals.in_flight == 1
        await call.send.aclose()
        await read_until(client, b"0\r\n\r\n")
        assert house.totals.succeeded == 1


@pytest.mark.parametrize("kind", ["openai-compatible", "ollama"])
async def test_who_leaves_in_the_middle_of_a_stream(kind: str) -> None:
    async with open_streams(kind) as house:
        client = await house.ask()
        call = await house.streaming.call(0)
        await call.send.send(b"data: one\n\n")
        await read_until(client, b"data: one\n\n\r\n")
        await client.aclose()
        if kind == "ollama":
            # The engine computes on: its slot is taken until its answer has ended, which goes nowhere.
            await wait_until(lambda: not list(house.gateway.shared.journal.here()))
            await call.send.send(b"data: two\n\n")
            assert house.totals.in_flight == 1
            await call.send.aclose()
            await wait_until(lambda: house.totals.succeeded == 1)
            assert not call.has_left.is_set()
        else:
            with trio.fail_after(10):
                await call.has_left.wait()
            await wait_until(lambda: house.totals.aborted == 1)
        assert house.totals.in_flight == 0


async def test_the_engine_is_read_no_faster_than_the_client_reads() -> None:
    async with open_streams() as house, await house.ask() as client:
        call = await house.streaming.call(0)
        piece = b"x" * 65536
        for _ in range(1000):
            call.send.send_nowait(piece)
        before = -1
        while call.sent != before:
            before = call.sent
            await trio.sleep(0.1)
        # What sockets hold, and nothing that the gateway would have kept.
        assert 0 < call.sent < 30 * 2**20
        assert house.totals.in_flight == 1
        await call.send.aclose()
        read = 0
        with trio.fail_after(20):
            while read < 1000 * len(piece):
                read += len(await client.receive_some(1 << 20))
        await wait_until(lambda: house.totals.succeeded == 1)


async def test_a_client_that_stops_reading_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    async with open_streams(write_stall=0.2) as house:
        async with await house.ask():
            call = await house.streaming.call(0)
            for _ in range(1000):
                call.send.send_nowait(b"x" * 65536)
            with trio.fail_after(10):
                await call.has_left.wait()
            await wait_until(lambda: house.totals.aborted == 1)
        assert "did not read for 0.2 s" in caplog.text


async def test_a_stream_that_breaks_off_breaks_off_for_its_client() -> None:
    async with open_streams() as house:
        async with await house.ask() as client:
            call = await house.streaming.call(0)
            await call.send.send(b"data: one\n\n")
            await read_until(client, b"data: one\n\n\r\n")
            call.break_off()
            with trio.fail_after(10):
                assert await client.receive_some(65536) == b""
        assert house.totals.failed == 1
        assert len(house.streaming.calls) == 1  # no attempt follows a byte of the answer


async def test_the_idle_limit_of_a_stream_is_for_each_event() -> None:
    async with open_streams(timeout=0.3) as house:
        async with await house.ask() as client:
            call = await house.streaming.call(0)
            for _ in range(4):
                await trio.sleep(0.15)
                await call.send.send(b"data: more\n\n")
            found = b""
            with trio.fail_after(10):
                async for data in client:  # until it breaks off: then the engine was silent for longer
                    found += data
            assert found.count(b"data: more") == 4
            assert not found.endswith(b"0\r\n\r\n")
        assert house.totals.failed == 1
        (entry,) = house.gateway.shared.journal.last()
        assert entry.code == "KB_VECTOR_EMBED_PROVIDER_TIMEOUT"


async def test_a_client_that_floods_what_it_sends_ahead_is_let_go() -> None:
    async with open_streams(max_header=4096) as house, await house.ask() as client:
        await house.streaming.call(0)
        await client.send_all(b"x" * 5000)
        with trio.fail_after(10):
            assert await client.receive_some(65536) == b""
        await wait_until(lambda: house.totals.aborted == 1)


async def test_pipelined_requests_are_answered_in_their_order() -> None:
    async with open_house(slots=1) as house:
        async with await asks(house, "first") as client:
            await client.send_all(request_bytes("/v1/embeddings", house.body("second")))
            await client.send_all(request_bytes("/nothing", {}))
            found = b""
            with trio.fail_after(10):
                while found.count(b"HTTP/1.1 ") < 3:
                    found += await client.receive_some(65536)
            assert [part[:3] for part in found.split(b"HTTP/1.1 ")[1:]] == [b"200", b"200", b"404"]
        house.check_balanced()


async def test_a_client_closes_as_httpx_does() -> None:
    async with open_house(rules=[Rule(nth(1), hold(trio.Event()))]) as house:
        with pytest.raises(httpx.ReadTimeout):
            await house.client.post("/v1/embeddings", json=house.body("late"), timeout=0.2)
        await wait_until(lambda: house.totals.aborted == 1)
        house.check_balanced()
