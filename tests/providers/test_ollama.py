"""The Ollama provider on a scripted engine over real sockets."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from embedkit.errors import (
    ContentRefused,
    ModelNotResident,
    ProviderBusy,
    ProviderError,
    ResponseInvalid,
    TransportClosed,
    UsageError,
)
from embedkit.providers.ollama import OllamaProvider
from embedkit.providers.provider import Connection, Provider
from embedkit.testing.engine_answers import vector_of
from embedkit.testing.engine_rules import (
    Behaviour,
    Rule,
    busy,
    cut_mid_body,
    empty_data,
    half_json,
    html,
    long,
    nan,
    noted_in,
    nth,
    null,
    reset,
    short,
    status,
    wrong_dimension,
)
from embedkit.testing.engine_wire import EngineRequest
from embedkit.testing.scripted_engine import ScriptedEngine, open_scripted_engine

TEXTS = ["alpha", " ", "gamma rays"]
RIGHT = np.array([vector_of(text, 8) for text in TEXTS], dtype=np.float32)


@asynccontextmanager
async def connected(engine: ScriptedEngine, **options: Any) -> AsyncGenerator[Connection]:
    async with OllamaProvider("here", engine.base_url, "scripted", **options).connect() as connection:
        yield connection


def test_it_is_a_provider_whose_batch_is_one_request() -> None:
    provider = OllamaProvider("here", "http://host:11434", "m")
    as_protocol: Provider = provider
    assert (as_protocol.kind, provider.weight(32), provider.space_options) == ("ollama", 1, {})


async def test_a_batch_is_one_request_of_this_shape() -> None:
    requests: list[EngineRequest] = []
    async with open_scripted_engine(rules=[noted_in(requests)]) as engine:
        async with connected(engine) as connection:
            np.testing.assert_array_equal(await connection.embed(TEXTS), RIGHT)
        async with connected(
            engine, num_ctx=2048, keep_alive="10m", options={"num_thread": 4}, dimensions=8
        ) as connection:
            await connection.embed(["one"])
    plain, full = requests
    assert plain.document == {"model": "scripted", "input": TEXTS, "truncate": False}
    assert full.document == {
        "model": "scripted",
        "input": ["one"],
        "truncate": False,
        "options": {"num_thread": 4, "num_ctx": 2048},
        "keep_alive": "10m",
        "dimensions": 8,
    }


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        (short(), ResponseInvalid),
        (long(), ResponseInvalid),
        (empty_data(), ResponseInvalid),
        (nan(), ResponseInvalid),
        (null(), ResponseInvalid),
        (wrong_dimension(2), ResponseInvalid),
        (html(), ResponseInvalid),
        (half_json(), ResponseInvalid),
        (Behaviour(body=b'{"error": "model was unloaded"}'), ModelNotResident),
        (Behaviour(body=b'{"error": "the input length exceeds the context length"}'), ContentRefused),
        (status(500, "failed to encode response: json: unsupported value: NaN"), ContentRefused),
        (busy(code=503), ProviderBusy),
        (cut_mid_body(), TransportClosed),
        (reset(), TransportClosed),
    ],
)
async def test_one_error_a_cause_and_the_next_request_works(broken: Behaviour, kind: type[ProviderError]) -> None:
    async with (
        open_scripted_engine(rules=[Rule(nth(1), broken)]) as engine,
        connected(engine) as connection,
    ):
        with pytest.raises(ProviderError) as caught:
            await connection.embed(TEXTS)
        assert type(caught.value) is kind
        np.testing.assert_array_equal(await connection.embed(TEXTS), RIGHT)


async def test_a_model_that_is_not_there() -> None:
    async with open_scripted_engine(models=("other",)) as engine, connected(engine) as connection:
        with pytest.raises(ModelNotResident, match="try pulling it first"):
            await connection.embed(TEXTS)


async def test_preflight() -> None:
    async with open_scripted_engine(models=("nomic-embed-text", "mxbai:large")) as engine:
        for model in ("nomic-embed-text", "nomic-embed-text:latest", "mxbai:large"):
            assert (await OllamaProvider("here", engine.base_url, model).preflight()).verdict == "listed"
        for model in ("mxbai", "nomic-embed-text:v1"):
            with pytest.raises(UsageError, match="it has 'mxbai:large', 'nomic-embed-text:latest'"):
                await OllamaProvider("here", engine.base_url, model).preflight()


async def test_preflight_of_an_engine_without_any_model_is_a_refusal() -> None:
    async with open_scripted_engine(models=()) as engine:
        with pytest.raises(UsageError, match="does not have the model 'm'; it has none"):
            await OllamaProvider("here", engine.base_url, "m").preflight()
