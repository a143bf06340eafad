"""The scripted engine itself: its slots, its queue, what it does when a client leaves, and its in-memory twin."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import httpx
import pytest
import trio

from embedkit.errors import ProviderBusy, ResponseInvalid, TransportClosed
from embedkit.providers.http_provider import HttpProvider
from embedkit.providers.ollama import OllamaProvider
from embedkit.providers.openai_compatible import OpenAICompatibleProvider
from embedkit.testing.engine_answers import vector_of
from embedkit.testing.engine_log import hash_of
from embedkit.testing.engine_memory import MemoryEngine, open_memory_engine
from embedkit.testing.engine_rules import (
    Rule,
    always,
    busy,
    containing,
    cut_mid_body,
    delay,
    hold,
    nth,
    short,
    stall_mid_body,
)
from embedkit.testing.scripted_engine import ScriptedEngine, open_scripted_engine

Engine = ScriptedEngine | MemoryEngine


@pytest.fixture(params=["sockets", "memory"])
def open_engine(request: pytest.FixtureRequest) -> Any:
    return open_scripted_engine if request.param == "sockets" else open_memory_engine


def provider_of(engine: Engine, kind: str = "ollama") -> HttpProvider:
    if isinstance(engine, MemoryEngine):
        if kind == "ollama":
            return OllamaProvider("m", "http://memory", "scripted", open_exchange=engine.open_exchange)
        return OpenAICompatibleProvider("m", "http://memory", "scripted", open_exchange=engine.open_exchange)
    if kind == "ollama":
        return OllamaProvider("s", engine.base_url, "scripted")
    return OpenAICompatibleProvider("s", engine.openai_url, "scripted")


async def embed(engine: Engine, *texts: str, kind: str = "ollama") -> None:
    async with provider_of(engine, kind).connect() as connection:
        await connection.embed(texts)


@asynccontextmanager
async def calls() -> AsyncGenerator[trio.Nursery]:
    with trio.fail_after(10_000):
        async with trio.open_nursery() as nursery:
            yield nursery


def test_vectors_are_unit_length_and_depend_on_the_text_alone() -> None:
    one, two = vector_of("one", 64), vector_of("two", 64)
    assert math.hypot(*one) == pytest.approx(1.0)
    assert one == vector_of("one", 64)
    assert sum(a * b for a, b in zip(one, two, strict=True)) < 0.5


async def test_a_slot_works_on_one_request_at_a_time_first_come_first_served(
    open_engine: Any, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_engine(slots=1, service=10.0) as engine:
        async with calls() as nursery:
            for count in range(1, 4):
                nursery.start_soon(embed, engine, f"text {count}")
                await engine.wait_for_requests(count)
            assert engine.queued == 2
        ends = [record.ended_at - engine.log.records[0].arrived_at for record in engine.log.records]
        assert ends == pytest.approx([10.0, 20.0, 30.0])
        assert [record.outcome for record in engine.log.records] == ["answered"] * 3
        assert engine.log.busy_seconds == pytest.approx(30.0)
        assert engine.log.most_queued == 2
        assert engine.log.records[1].hashes == (hash_of("text 2"),)


async def test_split_work_takes_a_slot_for_each_input(open_engine: Any, autojump_clock: trio.testing.MockClock) -> None:
    async with open_engine(slots=4, service=1.0, split=True) as engine:
        began_at = trio.current_time()
        await embed(engine, *"abcdef", kind="openai")
        assert trio.current_time() - began_at == pytest.approx(2.0)
        assert engine.log.busy_seconds == pytest.approx(6.0)
        assert engine.log.inputs_computed == 6


async def test_service_can_depend_on_the_request_and_a_rule_can_add_to_it(
    open_engine: Any, autojump_clock: trio.testing.MockClock
) -> None:
    rules = [Rule(containing("slow"), delay(100.0))]
    async with open_engine(service=lambda request: len(request.texts), rules=rules) as engine:
        await embed(engine, "a", "slow")
        assert trio.current_time() == pytest.approx(102.0)


async def test_a_client_that_leaves_stops_the_work(open_engine: Any, autojump_clock: trio.testing.MockClock) -> None:
    async with open_engine(service=60.0, on_leave="stop") as engine:
        with trio.move_on_after(1.0):
            await embed(engine, "one", "two")
        await engine.wait_until(lambda log: log.records[0].client_left)
        began_at = trio.current_time()
        await embed(engine, "three")
        assert trio.current_time() - began_at == pytest.approx(60.0)
        assert engine.log.records[0].outcome == "stopped"
        assert (engine.log.inputs_computed, engine.log.inputs_unwanted) == (1, 0)


async def test_an_engine_that_runs_on_keeps_its_slot(open_engine: Any, autojump_clock: trio.testing.MockClock) -> None:
    async with open_engine(service=60.0, on_leave="run-on") as engine:
        with trio.move_on_after(1.0):
            await embed(engine, "one", "two")
        await engine.wait_until(lambda log: log.records[0].client_left)
        await embed(engine, "three")
        assert trio.current_time() == pytest.approx(120.0)
        assert engine.log.records[0].outcome == "computed"
        assert (engine.log.inputs_computed, engine.log.inputs_unwanted) == (3, 2)


async def test_a_client_that_leaves_the_engine_s_queue_is_never_started(
    open_engine: Any, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_engine(service=60.0) as engine, calls() as nursery:
        nursery.start_soon(embed, engine, "one")
        await engine.wait_for_requests(1)
        with trio.move_on_after(1.0):
            await embed(engine, "two")
        await engine.wait_until(lambda log: log.records[1].client_left)
        assert engine.queued == 0
        assert engine.log.records[1].started_at is None


async def test_a_held_request_goes_on_when_the_test_says_so(open_engine: Any) -> None:
    released = trio.Event()
    async with open_engine(slots=2, rules=[Rule(nth(1), hold(released))]) as engine, calls() as nursery:
        nursery.start_soon(embed, engine, "first")
        await engine.wait_for_requests(1)
        await embed(engine, "second")
        assert [record.outcome for record in engine.log.records] == ["computing", "answered"]
        released.set()
        await engine.wait_until(lambda log: log.records[0].outcome == "answered")


async def test_a_rule_holds_as_often_as_it_says(open_engine: Any) -> None:
    async with open_engine(rules=[Rule(always, busy(retry_after="2"), times=1)]) as engine:
        with pytest.raises(ProviderBusy) as caught:
            await embed(engine, "one")
        assert caught.value.retry_after == 2.0
        await embed(engine, "one")
        assert [record.outcome for record in engine.log.records] == ["refused", "answered"]
        assert engine.log.inputs_computed == 1


async def test_what_goes_wrong_on_the_wire_goes_wrong_in_memory_too(
    open_engine: Any, autojump_clock: trio.testing.MockClock
) -> None:
    rules = [Rule(nth(1), cut_mid_body()), Rule(nth(2), short()), Rule(nth(3), stall_mid_body())]
    async with open_engine(rules=rules) as engine:
        with pytest.raises(TransportClosed):
            await embed(engine, "one")
        with pytest.raises(ResponseInvalid):
            await embed(engine, "one")
        with trio.move_on_after(10) as scope:
            await embed(engine, "one")
        assert scope.cancelled_caught
        await engine.wait_until(lambda log: log.records[2].client_left)
        assert engine.log.records[0].outcome == "broken"


async def test_both_answer_the_preflight(open_engine: Any) -> None:
    async with open_engine() as engine:
        for kind in ("ollama", "openai-compatible"):
            assert (await provider_of(engine, kind).preflight()).verdict == "listed"
        assert engine.log.listings == 2


async def test_a_killed_engine_drops_its_work_and_its_connections() -> None:
    rules = [Rule(nth(1), hold(trio.Event()))]
    async with open_scripted_engine(rules=rules) as engine:
        async with calls() as nursery:

            @nursery.start_soon
            async def _cut_off() -> None:
                with pytest.raises(TransportClosed):
                    await embed(engine, "one")

            await engine.wait_for_requests(1)
            address = engine.base_url
            await engine.kill()
        assert engine.log.open_connections == 0
        await engine.start()
        assert engine.base_url == address
        await embed(engine, "two")


async def test_a_connection_that_speaks_no_http_harms_nobody() -> None:
    async with open_scripted_engine() as engine:
        host, port = engine.base_url.removeprefix("http://").split(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            await stream.send_all(b"hello\r\n\r\n")
            assert await stream.receive_some() == b""
        await embed(engine, "one")


def _ask(engine: ScriptedEngine, method: str, path: str, **more: Any) -> AbstractAsyncContextManager[Any]:
    @asynccontextmanager
    async def asked() -> AsyncGenerator[httpx.Response]:
        async with httpx.AsyncClient(trust_env=False) as client:
            yield await client.request(method, engine.base_url + path, **more)

    return asked()


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/health", b"", 200),
        ("GET", "/v1/nothing", b"", 404),
        ("POST", "/v1/models", b"", 404),
        ("POST", "/v1/embeddings", b"{", 400),
        ("POST", "/v1/embeddings", b"[]", 400),
        ("POST", "/v1/embeddings", b'{"input": []}', 400),
        ("POST", "/v1/embeddings", b'{"input": [1]}', 400),
        ("POST", "/v1/embeddings", b'{"input": "one"}', 200),
        ("POST", "/api/embed", b'{"model": "other", "input": "one"}', 404),
        ("POST", "/api/embed", b'{"model": "scripted:latest", "input": "one"}', 200),
    ],
)
async def test_other_requests(method: str, path: str, body: bytes, status: int) -> None:
    async with open_scripted_engine() as engine, _ask(engine, method, path, content=body) as reply:
        assert reply.status_code == status
        assert isinstance(reply.json(), dict)


async def test_an_engine_in_a_process_of_its_own_ends_with_its_standard_input() -> None:
    command = [sys.executable, "-m", "embedkit.testing.engine_process", "--dimension", "16"]
    async with trio.open_nursery() as nursery:
        process = await nursery.start(partial(trio.run_process, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        url = (await process.stdout.receive_some()).decode().strip()
        async with OllamaProvider("p", url, "scripted").connect() as connection:
            assert (await connection.embed(["one"])).shape == (1, 16)
        await process.stdin.aclose()
        assert await process.wait() == 0
