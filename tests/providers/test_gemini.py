"""The Gemini provider on a scripted engine over real sockets."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from embedkit.errors import (
    ContentRefused,
    ModelNotResident,
    ProviderAuthError,
    ProviderBusy,
    ProviderError,
    ResponseInvalid,
    UsageError,
)
from embedkit.providers.gemini import GeminiProvider
from embedkit.providers.provider import Connection, Provider
from embedkit.testing.engine_answers import vector_of
from embedkit.testing.engine_rules import (
    Behaviour,
    Rule,
    always,
    busy,
    nan,
    noted_in,
    nth,
    short,
    status,
    wrong_dimension,
)
from embedkit.testing.engine_wire import EngineRequest
from embedkit.testing.scripted_engine import ScriptedEngine, open_scripted_engine

TEXTS = ["alpha", "", "gamma rays"]
RIGHT = np.array([vector_of(text, 8) for text in TEXTS], dtype=np.float32)


@asynccontextmanager
async def connected(engine: ScriptedEngine, **options: Any) -> AsyncGenerator[Connection]:
    provider = GeminiProvider("far", "scripted", "g-key", base_url=engine.gemini_url, **options)
    async with provider.connect() as connection:
        yield connection


def quota(delay: object, code: int = 429) -> Behaviour:
    details = [
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure"},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay},
    ]
    error = {"code": code, "message": "quota", "status": "RESOURCE_EXHAUSTED", "details": details}
    return Behaviour(status=code, body=json.dumps({"error": error}).encode(), computes=False)


async def test_one_content_a_text_in_one_request_with_the_key_in_a_header() -> None:
    requests: list[EngineRequest] = []
    async with open_scripted_engine(api_key="g-key", rules=[noted_in(requests)]) as engine:
        async with connected(engine) as connection:
            np.testing.assert_array_equal(await connection.embed(TEXTS), RIGHT)
        async with connected(engine, dimensions=8, task_type="RETRIEVAL_QUERY") as connection:
            await connection.embed(["one"])
    plain, full = requests
    assert plain.document == {
        "requests": [{"model": "models/scripted", "content": {"parts": [{"text": text}]}} for text in TEXTS]
    }
    assert plain.headers["x-goog-api-key"] == "g-key"
    assert full.document == {
        "requests": [
            {
                "model": "models/scripted",
                "content": {"parts": [{"text": "one"}]},
                "outputDimensionality": 8,
                "taskType": "RETRIEVAL_QUERY",
            }
        ]
    }


def test_what_decides_its_space() -> None:
    provider: Provider = GeminiProvider("far", "models/m", "k", dimensions=256, task_type="CLUSTERING")
    assert (provider.kind, provider.model) == ("gemini", "m")
    assert provider.space_options == {"dimensions": "256", "task_type": "CLUSTERING"}


async def test_a_batch_of_more_than_a_hundred_is_refused_unsent() -> None:
    async with open_scripted_engine() as engine, connected(engine) as connection:
        assert (await connection.embed(["x"] * 100)).shape == (100, 8)
        with pytest.raises(UsageError, match="101 texts in one batch; Gemini takes 100"):
            await connection.embed(["x"] * 101)
        assert engine.log.requests == 1


async def test_a_fused_vector_is_refused() -> None:
    fused = Behaviour(reshape=lambda items: items[:1])
    async with open_scripted_engine(rules=[Rule(always, fused)]) as engine, connected(engine) as connection:
        with pytest.raises(ResponseInvalid, match="1 vectors for 3 inputs"):
            await connection.embed(TEXTS)


@pytest.mark.parametrize(
    ("delay", "hint"),
    [("34s", 34.0), ("34.074824224s", 34.074824224), ("0s", 0.0), ("-1s", None), ("soon", None), (5, None)],
)
@pytest.mark.parametrize("code", [429, 503])
async def test_retry_info_in_the_body_is_a_hint(delay: object, hint: float | None, code: int) -> None:
    rules = [Rule(always, quota(delay, code))]
    async with open_scripted_engine(rules=rules) as engine, connected(engine) as connection:
        with pytest.raises(ProviderBusy) as caught:
            await connection.embed(["one"])
        assert caught.value.retry_after == hint


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        (short(), ResponseInvalid),
        (nan(), ResponseInvalid),
        (wrong_dimension(3, 1), ResponseInvalid),
        (busy(retry_after="1"), ProviderBusy),
        (status(400, "API key not valid. Please pass a valid API key."), ProviderAuthError),
        (status(400, "The input token count exceeds the maximum number of tokens"), ContentRefused),
        (status(400, "requests[1].content: contents is not specified"), ContentRefused),
        (status(404, "models/scripted is not found for API version v1beta"), ModelNotResident),
    ],
)
async def test_one_error_a_cause(broken: Behaviour, kind: type[ProviderError]) -> None:
    rules = [Rule(nth(1), broken)]
    async with open_scripted_engine(rules=rules) as engine, connected(engine) as connection:
        with pytest.raises(ProviderError) as caught:
            await connection.embed(TEXTS)
        assert type(caught.value) is kind
        np.testing.assert_array_equal(await connection.embed(TEXTS), RIGHT)


async def test_preflight() -> None:
    async with open_scripted_engine(models=("gemini-embedding-001",)) as engine:
        there = GeminiProvider("far", "gemini-embedding-001", "k", base_url=engine.gemini_url)
        assert (await there.preflight()).verdict == "listed"
        with pytest.raises(UsageError, match="does not have the model 'other'"):
            await GeminiProvider("far", "other", "k", base_url=engine.gemini_url).preflight()


def test_the_key_is_shown_nowhere() -> None:
    assert "hidden" not in repr(GeminiProvider("far", "m", "hidden-key"))
