"""The HTTP room over real loopback sockets: each way in which a request can end, and that the next one works."""

from __future__ import annotations

import errno
import gc
import json
import logging
import os
import random
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import trio

from embedkit.errors import (
    ConnectionRefused,
    ProviderError,
    ProviderFailure,
    ResponseInvalid,
    TransportClosed,
    UsageError,
)
from embedkit.providers.exchange import Exchange
from embedkit.providers.http import HttpEndpoint, open_exchange
from embedkit.testing.engine_rules import (
    Behaviour,
    Rule,
    always,
    close_after_reply,
    cut_after_headers,
    cut_before_reply,
    cut_mid_body,
    hold,
    nth,
    reset,
    stall_after_headers,
    stall_before_reply,
    stall_mid_body,
    status,
)
from embedkit.testing.scripted_engine import ScriptedEngine, open_scripted_engine

BODY = json.dumps({"model": "scripted", "input": ["hello"]}).encode()
KEY = "sk-do-not-show-me"


def endpoint(engine: ScriptedEngine) -> HttpEndpoint:
    return HttpEndpoint(engine.openai_url, headers=(("Authorization", f"Bearer {KEY}"),))


async def ask(exchange: Exchange) -> int:
    reply = await exchange.send("POST", "/embeddings", BODY)
    assert len(json.loads(reply.body)["data"]) == 1
    return reply.status


@asynccontextmanager
async def raw_server(answer: bytes, *, chunks: int = 1) -> AsyncGenerator[str]:
    """A server that answers every request with the same bytes and closes."""

    async def handle(stream: trio.SocketStream) -> None:
        try:
            await stream.receive_some(65536)
            for _ in range(chunks):
                await stream.send_all(answer)
        except trio.BrokenResourceError:
            pass

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, handle, listeners)
        yield f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


async def test_one_connection_serves_all_requests_of_a_slot() -> None:
    async with open_scripted_engine() as engine, open_exchange(endpoint(engine)) as exchange:
        for _ in range(3):
            assert await ask(exchange) == 200
        assert engine.log.connections == 1
    assert engine.log.open_connections == 0


async def test_any_status_is_a_reply() -> None:
    rules = [Rule(always, status(429, "later", {"Retry-After": "3"}))]
    async with open_scripted_engine(rules=rules) as engine, open_exchange(endpoint(engine)) as exchange:
        reply = await exchange.send("POST", "/embeddings", BODY)
        assert (reply.status, reply.headers["retry-after"]) == (429, "3")


async def test_a_redirect_is_not_followed() -> None:
    rules = [Rule(always, status(307, headers={"Location": "/v1/models"}))]
    async with open_scripted_engine(rules=rules) as engine, open_exchange(endpoint(engine)) as exchange:
        assert (await exchange.send("POST", "/embeddings", BODY)).status == 307
        assert engine.log.listings == 0


async def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with open_exchange(HttpEndpoint(f"http://127.0.0.1:{port}")) as exchange:
        for _ in range(2):
            with pytest.raises(ConnectionRefused, match=rf"^engine 127\.0\.0\.1:{port}: nobody listens there"):
                await exchange.send("POST", "/embeddings", BODY)


@pytest.mark.parametrize("broken", [reset(), cut_before_reply(), cut_after_headers(), cut_mid_body()])
async def test_a_connection_that_breaks_is_transport_and_the_next_request_works(broken: Behaviour) -> None:
    rules = [Rule(nth(1, 3), broken)]
    async with open_scripted_engine(rules=rules) as engine, open_exchange(endpoint(engine)) as exchange:
        for _ in range(2):
            with pytest.raises(TransportClosed, match="broke before the end") as caught:
                await ask(exchange)
            assert not isinstance(caught.value, httpx.HTTPError)
            assert await ask(exchange) == 200


async def test_bytes_that_are_no_http_are_transport() -> None:
    async with raw_server(b"220 mail.example ESMTP\r\n") as url, open_exchange(HttpEndpoint(url)) as exchange:
        with pytest.raises(TransportClosed):
            await exchange.send("GET", "/models")


async def test_a_connection_closed_while_idle_costs_nothing() -> None:
    rules = [Rule(always, close_after_reply())]
    async with open_scripted_engine(rules=rules) as engine, open_exchange(endpoint(engine)) as exchange:
        for count in range(1, 4):
            assert await ask(exchange) == 200
            await engine.wait_until(lambda log: log.open_connections == 0)
            assert engine.log.requests == count
        assert engine.log.connections == 3


async def test_a_restarted_server_is_found_again() -> None:
    async with open_scripted_engine() as engine, open_exchange(endpoint(engine)) as exchange:
        assert await ask(exchange) == 200
        await engine.kill()
        with pytest.raises(ConnectionRefused):
            await ask(exchange)
        await engine.start()
        assert await ask(exchange) == 200


async def test_a_server_killed_under_a_request_is_transport() -> None:
    rules = [Rule(always, hold(trio.Event()))]
    async with (
        open_scripted_engine(rules=rules) as engine,
        open_exchange(endpoint(engine)) as exchange,
        trio.open_nursery() as nursery,
    ):

        async def expect_transport() -> None:
            with pytest.raises(TransportClosed):
                await ask(exchange)

        nursery.start_soon(expect_transport)
        await engine.wait_for_requests(1)
        await engine.kill()


@pytest.mark.parametrize("said", [b"Content-Length: 1000000\r\n", b"Transfer-Encoding: chunked\r\n", b""])
async def test_a_reply_over_the_bound_is_refused_without_being_kept(said: bytes) -> None:
    part = b"x" * 50_000
    body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for _ in range(20)) if b"chunked" in said else part * 20
    answer = b"HTTP/1.1 200 OK\r\n" + said + b"\r\n" + body
    async with raw_server(answer) as url, open_exchange(HttpEndpoint(url, max_response_bytes=100_000)) as exchange:
        for _ in range(2):
            with pytest.raises(ResponseInvalid, match="larger than 100000 bytes"):
                await exchange.send("GET", "/models")
    gc.collect()  # a generator left half-way would warn here, and warnings are errors


async def test_a_reply_of_exactly_the_bound_is_read() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1000
    async with raw_server(answer) as url, open_exchange(HttpEndpoint(url, max_response_bytes=1000)) as exchange:
        assert len((await exchange.send("GET", "/models")).body) == 1000


async def test_an_encoding_that_was_not_asked_for_is_refused() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\nxx"
    async with raw_server(answer) as url, open_exchange(HttpEndpoint(url)) as exchange:
        with pytest.raises(ResponseInvalid, match="encoded as 'br'"):
            await exchange.send("GET", "/models")


@pytest.mark.parametrize("stalled", [stall_before_reply(), stall_after_headers(), stall_mid_body()])
async def test_a_deadline_holds_to_the_last_byte(stalled: Behaviour, autojump_clock: trio.testing.MockClock) -> None:
    rules = [Rule(nth(1), stalled)]
    async with open_scripted_engine(rules=rules) as engine, open_exchange(endpoint(engine)) as exchange:
        began_at = trio.current_time()
        with trio.move_on_after(300) as scope:
            await ask(exchange)
        assert scope.cancelled_caught
        assert trio.current_time() - began_at == pytest.approx(300)
        assert await ask(exchange) == 200
        await engine.wait_until(lambda log: log.records[0].client_left)


@pytest.mark.parametrize("reused", [False, True])
async def test_cancelled_at_any_await_the_next_request_works_at_once(reused: bool) -> None:
    """The cancellation matrix: cancelled at the first checkpoint, the second, ... until the request is whole.

    Several times each, since trio shuffles who runs first in a step.
    """
    async with open_scripted_engine() as engine:
        for checkpoints in range(100):
            outcomes = [await _next_after_cancelled(engine, checkpoints, reused=reused) for _ in range(8)]
            if not any(outcomes):
                break
        else:
            pytest.fail("100 checkpoints were not enough to end a request")
        await engine.wait_until(lambda log: log.open_connections == 0)


async def _next_after_cancelled(engine: ScriptedEngine, checkpoints: int, *, reused: bool) -> bool:
    async with open_exchange(endpoint(engine)) as exchange:
        if reused:
            await ask(exchange)
        was_cancelled = await _cancelled_after(checkpoints, exchange)
        with trio.fail_after(5):
            assert await ask(exchange) == 200
    return was_cancelled


async def _cancelled_after(checkpoints: int, exchange: Exchange) -> bool:
    """Run a request beside a task that cancels it after so many scheduling steps; whether it was cancelled."""
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def _count() -> None:
                for _ in range(checkpoints):
                    await trio.lowlevel.checkpoint()
                scope.cancel()

            await ask(exchange)
            nursery.cancel_scope.cancel()
    return scope.cancelled_caught


async def test_a_storm_of_cancelled_requests_leaves_nothing_behind() -> None:
    draw = random.Random(1093)
    async with open_scripted_engine(slots=4) as engine:
        place = endpoint(engine)
        open_before = _descriptors()
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(_storm, place, draw.randrange(2**32))
        await engine.wait_until(lambda log: log.open_connections == 0)
        assert _descriptors() == open_before


async def _storm(place: HttpEndpoint, seed: int) -> None:
    draw = random.Random(seed)
    async with open_exchange(place) as exchange:
        for _ in range(100):
            await _cancelled_after(draw.randrange(40), exchange)
        with trio.fail_after(5):
            assert await ask(exchange) == 200


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 0


async def test_the_key_is_sent_and_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    rules = [Rule(nth(1), cut_mid_body())]
    async with open_scripted_engine(rules=rules, api_key=KEY) as engine:
        place = endpoint(engine)
        async with open_exchange(place) as exchange:
            with pytest.raises(TransportClosed) as caught:
                await ask(exchange)
            assert await ask(exchange) == 200
            shown = [repr(place), repr(exchange), caplog.text]
        error: BaseException | None = caught.value
        while error is not None:
            shown += [str(error), repr(error)]
            error = error.__cause__ or error.__context__
    assert all(KEY not in text for text in shown)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("localhost:8080", "not an http address"),
        ("ftp://host", "not an http address"),
        ("", "not an http address"),
        ("http://", "not an http address"),
        ("http://host:port", "not an address"),
        ("http://me:hunter2@host/v1", "holds credentials"),
        ("http://host/v1?key=hunter2", "has a query"),
        ("me:hunter2@host/v1", "not an http address"),
        ("host/v1?key=hunter2", "not an http address"),
        ("https:/me:hunter2@host", "not an http address"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_without_its_secrets(address: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        HttpEndpoint(address)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("value", ["Bearer a\nb", "Bearer ä", " Bearer x", "Bearer \x00"])
def test_a_key_that_no_header_can_carry_is_refused_unseen(value: str) -> None:
    with pytest.raises(UsageError, match="Authorization header") as caught:
        HttpEndpoint("http://host", headers=(("Authorization", value),))
    assert "Bearer" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        ("http://host", "host:80"),
        ("https://host/v1/", "host:443"),
        ("http://[::1]:8080", "[::1]:8080"),
    ],
)
def test_the_engine_is_named_by_host_and_port(address: str, peer: str) -> None:
    assert HttpEndpoint(address).peer == peer


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (OSError(errno.ECONNREFUSED, "x"), ConnectionRefused),
        (OSError(errno.EHOSTUNREACH, "x"), ConnectionRefused),
        (socket.gaierror(socket.EAI_NONAME, "x"), ConnectionRefused),
        (OSError(errno.ECONNRESET, "x"), TransportClosed),
        (OSError(errno.EMFILE, "x"), ProviderFailure),
    ],
)
async def test_how_opening_a_connection_can_fail(
    cause: OSError, kind: type[ProviderError], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*args: object, **kwargs: object) -> trio.SocketStream:
        await trio.lowlevel.checkpoint()
        raise OSError("all attempts to connect failed") from ExceptionGroup("attempts", [cause])

    monkeypatch.setattr(trio, "open_tcp_stream", fail)
    async with open_exchange(HttpEndpoint("http://host:1")) as exchange:
        with pytest.raises(kind, match=r"^engine host:1: "):
            await exchange.send("GET", "/models")


async def test_the_environment_s_proxy_is_used_only_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_scripted_engine() as engine, raw_server(b"HTTP/1.1 299 P\r\ncontent-length: 0\r\n\r\n") as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        async with open_exchange(HttpEndpoint(engine.openai_url)) as exchange:
            assert (await exchange.send("GET", "/models")).status == 200
        async with open_exchange(HttpEndpoint(engine.openai_url, trust_env=True)) as exchange:
            assert (await exchange.send("GET", "/models")).status == 299


@pytest.mark.parametrize(
    "address", ["127.0.0.1:{port}", "me:hunter2@127.0.0.1:{port}", "http://me:hunter2@127.0.0.1:{port}"]
)
async def test_a_proxy_may_be_named_with_and_without_a_scheme(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with raw_server(b"HTTP/1.1 299 P\r\ncontent-length: 0\r\n\r\n") as proxy:
        monkeypatch.setenv("http_proxy", address.format(port=proxy.rpartition(":")[2]))
        monkeypatch.delenv("no_proxy", raising=False)
        async with open_exchange(HttpEndpoint("http://far.invalid/v1", trust_env=True)) as exchange:
            assert (await exchange.send("GET", "/models")).status == 299


@pytest.mark.parametrize(
    "address", ["http://me:hunter2@host:port", "gopher://me:hunter2@host", "socks5://me:hunter2@host"]
)
async def test_a_proxy_that_cannot_be_used_is_refused_without_its_secrets(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", address)
    monkeypatch.delenv("no_proxy", raising=False)
    async with open_exchange(HttpEndpoint("http://far.invalid/v1", trust_env=True)) as exchange:
        with pytest.raises(UsageError, match=r"far\.invalid:80: the environment names a") as caught:
            await exchange.send("GET", "/models")
    assert "hunter2" not in str(caught.value)


async def test_a_reply_too_many_is_no_answer_to_the_next_request() -> None:
    """In the packet of the one before it: every later vector would stand on the wrong text."""
    reply = b"HTTP/1.1 200 O\r\ncontent-length: 5\r\n\r\n"
    answers = {b"one": reply + b"first" + reply + b"stray", b"two": reply + b"other"}

    async def handle(stream: trio.SocketStream) -> None:
        async for data in stream:
            await stream.send_all(answers[bytes(data)[-3:]])

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, handle, [listener])
        port = listener.socket.getsockname()[1]
        async with open_exchange(HttpEndpoint(f"http://127.0.0.1:{port}")) as exchange:
            assert (await exchange.send("POST", "/e", b"one")).body == b"first"
            with pytest.raises(TransportClosed, match="was not sent"):
                await exchange.send("POST", "/e", b"two")
            assert (await exchange.send("POST", "/e", b"two")).body == b"other"
        nursery.cancel_scope.cancel()
