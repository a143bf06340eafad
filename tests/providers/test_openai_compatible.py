"""The OpenAI-compatible provider on a scripted engine over real sockets."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
import trio

from embedkit.errors import (
    ContentRefused,
    ProviderAuthError,
    ProviderBusy,
    ProviderError,
    ProviderFailure,
    ResponseInvalid,
    TransportClosed,
    UsageError,
)
from embedkit.providers.openai_compatible import OpenAICompatibleProvider
from embedkit.providers.provider import Connection, Provider
from embedkit.testing.engine_answers import vector_of
from embedkit.testing.engine_rules import (
    Behaviour,
    Rule,
    always,
    busy,
    containing,
    cut_after_headers,
    cut_mid_body,
    duplicate_index,
    empty_data,
    error_in_200,
    half_json,
    hold,
    html,
    long,
    nan,
    noted_in,
    nth,
    null,
    reorder,
    reset,
    short,
    sparse_index,
    stall_before_reply,
    status,
    without_index,
    wrong_dimension,
)
from embedkit.testing.engine_wire import EngineRequest
from embedkit.testing.scripted_engine import ScriptedEngine, open_scripted_engine

TEXTS = ["alpha", "", "gamma rays"]
RIGHT = np.array([vector_of(text, 8) for text in TEXTS], dtype=np.float32)


@asynccontextmanager
async def connected(
    engine: ScriptedEngine, **options: Any
) -> AsyncGenerator[tuple[OpenAICompatibleProvider, Connection]]:
    provider = OpenAICompatibleProvider("here", engine.openai_url, "scripted", **options)
    async with provider.connect() as connection:
        yield provider, connection


def test_it_is_a_provider() -> None:
    provider: Provider = OpenAICompatibleProvider("here", "http://host:1/v1", "m", dimensions=64)
    assert (provider.name, provider.kind, provider.model) == ("here", "openai-compatible", "m")
    assert provider.space_options == {"dimensions": "64"}


def test_each_input_is_a_task_of_the_engine() -> None:
    assert OpenAICompatibleProvider("here", "http://host:1/v1", "m").weight(7) == 7


@pytest.mark.parametrize("base64", ["gives", "ignores", "refuses"])
async def test_vectors_arrive_whatever_the_engine_makes_of_base64(base64: Any) -> None:
    async with open_scripted_engine(base64=base64) as engine, connected(engine) as (provider, connection):
        for _ in range(2):
            np.testing.assert_array_equal(await connection.embed(TEXTS), RIGHT)
        assert provider.dimension == 8
        assert engine.log.connections == 1


async def test_a_refusal_of_base64_is_remembered_for_all_connections() -> None:
    requests: list[EngineRequest] = []
    async with open_scripted_engine(base64="refuses", rules=[noted_in(requests)]) as engine:
        provider = OpenAICompatibleProvider("here", engine.openai_url, "scripted")
        for _ in range(2):
            async with provider.connect() as connection:
                await connection.embed(TEXTS)
    assert [request.document["encoding_format"] for request in requests] == ["float", "float"]


async def test_what_is_sent() -> None:
    requests: list[EngineRequest] = []
    async with open_scripted_engine(dimension=4, rules=[noted_in(requests)]) as engine:
        async with connected(engine, api_key="sk-1", dimensions=4) as (_, connection):
            await connection.embed(["one"])
        async with connected(engine) as (_, connection):
            await connection.embed(["two", "\ud800half"])
    first, second = requests
    assert first.document == {
        "model": "scripted",
        "input": ["one"],
        "encoding_format": "base64",
        "dimensions": 4,
    }
    assert first.headers["authorization"] == "Bearer sk-1"
    assert "authorization" not in second.headers
    assert second.texts == ("two", "?half")


async def test_no_inputs_are_no_request() -> None:
    async with open_scripted_engine() as engine, connected(engine, dimension=8) as (_, connection):
        assert (await connection.embed([])).shape == (0, 8)
        assert engine.log.requests == 0


@pytest.mark.parametrize("shuffled", [reorder(), without_index()])
async def test_rows_are_placed_by_index_or_by_position(shuffled: Behaviour) -> None:
    async with open_scripted_engine(rules=[Rule(always, shuffled)]) as engine, connected(engine) as (_, connection):
        np.testing.assert_array_equal(await connection.embed(TEXTS), RIGHT)


@pytest.mark.parametrize("base64", ["gives", "ignores"])
@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        (short(), ResponseInvalid),
        (long(), ResponseInvalid),
        (duplicate_index(), ResponseInvalid),
        (sparse_index(), ResponseInvalid),
        (nan(1), ResponseInvalid),
        (null(1), ResponseInvalid),
        (wrong_dimension(5, 1), ResponseInvalid),
        (empty_data(), ResponseInvalid),
        (html(), ResponseInvalid),
        (half_json(), ResponseInvalid),
        (Behaviour(body=b""), ResponseInvalid),
        (Behaviour(status=204, body=b""), ResponseInvalid),
        (error_in_200(429), ProviderBusy),
        (busy(retry_after="3"), ProviderBusy),
        (busy(code=503), ProviderBusy),
        (cut_after_headers(), TransportClosed),
        (cut_mid_body(), TransportClosed),
        (reset(), TransportClosed),
        (status(401, "Incorrect API key provided"), ProviderAuthError),
        (status(500, "unsupported value: NaN"), ContentRefused),
        (status(302, headers={"Location": "http://elsewhere.invalid/"}), ProviderFailure),
    ],
)
async def test_one_error_a_cause_and_the_next_request_works(
    broken: Behaviour, kind: type[ProviderError], base64: Any
) -> None:
    async with (
        open_scripted_engine(rules=[Rule(nth(1), broken)], base64=base64) as engine,
        connected(engine) as (provider, connection),
    ):
        with pytest.raises(ProviderError) as caught:
            await connection.embed(TEXTS)
        assert type(caught.value) is kind
        assert str(caught.value).startswith("engine 127.0.0.1:")
        assert provider.dimension is None
        np.testing.assert_array_equal(await connection.embed(TEXTS), RIGHT)
        assert engine.log.requests == 2


async def test_the_input_at_fault_is_named() -> None:
    async with open_scripted_engine(rules=[Rule(always, nan(2))]) as engine, connected(engine) as (_, connection):
        with pytest.raises(ResponseInvalid, match="input 2") as caught:
            await connection.embed(TEXTS)
        assert caught.value.input_index == 2


async def test_the_first_good_reply_fixes_the_dimension() -> None:
    shrunk = [Rule(nth(2), Behaviour(reshape=wrong_dimension(3).reshape))]
    async with open_scripted_engine(rules=shrunk) as engine, connected(engine) as (_, connection):
        await connection.embed(["one"])
        with pytest.raises(ResponseInvalid, match="has 3 dimensions, not 8"):
            await connection.embed(["one"])
        await connection.embed(["one"])


async def test_a_given_dimension_holds_from_the_start() -> None:
    async with open_scripted_engine() as engine, connected(engine, dimension=384) as (_, connection):
        with pytest.raises(ResponseInvalid, match="has 8 dimensions, not 384"):
            await connection.embed(["one"])
    with pytest.raises(UsageError, match="dimensions is 64, and the store has 384"):
        OpenAICompatibleProvider("here", "http://host:1", "m", dimensions=64, dimension=384)


async def test_a_refused_text_stands_in_no_message() -> None:
    secret = "the launch code is 0000-1111-2222"
    rules = [Rule(containing("launch"), status(400, f"cannot embed input: {secret}"))]
    async with open_scripted_engine(rules=rules) as engine, connected(engine) as (_, connection):
        with pytest.raises(ProviderError) as caught:
            await connection.embed([secret])
        assert "launch" not in str(caught.value)


async def test_a_cancelled_call_closes_the_transport_and_the_next_one_works() -> None:
    rules = [Rule(nth(1), hold(trio.Event()))]
    async with open_scripted_engine(rules=rules) as engine, connected(engine) as (_, connection):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.embed, TEXTS)
            await engine.wait_for_requests(1)
            nursery.cancel_scope.cancel()
        await engine.wait_until(lambda log: log.records[0].client_left)
        np.testing.assert_array_equal(await connection.embed(TEXTS), RIGHT)


async def test_preflight_finds_the_model() -> None:
    async with open_scripted_engine(models=("other", "nomic:latest")) as engine:
        for model in ("other", "nomic", "nomic:latest", "other:latest"):
            provider = OpenAICompatibleProvider("here", engine.openai_url, model)
            assert (await provider.preflight()).verdict == "listed"
        assert engine.log.requests == 0
        await engine.wait_until(lambda log: log.open_connections == 0)


async def test_preflight_refuses_another_model_by_name() -> None:
    async with open_scripted_engine(models=("other",)) as engine:
        provider = OpenAICompatibleProvider("here", engine.openai_url, "wanted")
        with pytest.raises(UsageError, match="does not have the model 'wanted'; it has 'other'"):
            await provider.preflight()


async def test_preflight_of_an_engine_that_cannot_say_is_unknown() -> None:
    async with open_scripted_engine(api_key="sk-1", models=()) as engine:
        urls = [engine.openai_url, engine.base_url, "http://127.0.0.1:1/v1"]
        for url in urls:
            assert (await OpenAICompatibleProvider("here", url, "m").preflight()).verdict == "unknown"
        keyed = OpenAICompatibleProvider("here", engine.openai_url, "m", api_key="sk-1")
        assert (await keyed.preflight()).detail.endswith("lists no model")


async def test_preflight_waits_five_seconds_at_most(autojump_clock: trio.testing.MockClock) -> None:
    async with silent_server() as url:
        identity = await OpenAICompatibleProvider("here", url, "m").preflight()
        assert identity.verdict == "unknown"
        assert identity.detail.endswith("did not list its models within 5 s")
        assert trio.current_time() == pytest.approx(5.0)


@asynccontextmanager
async def silent_server() -> AsyncGenerator[str]:
    async def handle(stream: trio.SocketStream) -> None:
        while await stream.receive_some():
            pass

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, handle, listeners)
        yield f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


async def test_a_deadline_on_a_silent_engine(autojump_clock: trio.testing.MockClock) -> None:
    rules = [Rule(always, stall_before_reply())]
    async with open_scripted_engine(rules=rules) as engine, connected(engine) as (_, connection):
        with trio.move_on_after(300) as scope:
            await connection.embed(TEXTS)
        assert scope.cancelled_caught


def test_a_key_is_shown_nowhere() -> None:
    provider = OpenAICompatibleProvider("here", "http://host:1/v1", "m", api_key="sk-hidden")
    assert "hidden" not in repr(provider)
    assert repr(provider) == "<OpenAICompatibleProvider 'here' 'm' at host:1>"
