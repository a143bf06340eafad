"""gbrain#3966, local-ai-developer-toolkit#369: what stands before the engine fails for a moment, and the repository's
backoff doubled as if it were its own fault.

Right: it is tried once more within the ticket; if that fails too, the work is deferred.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trio
from one_repository import numbered, one_repository, sync

from embedkit.errors import ModelNotResident, ProviderFailure, ProviderUnavailable
from embedkit.providers.exchange import Reply
from embedkit.providers.failures import Asked, failure_of
from embedkit.testing.engine_rules import Rule, always, nth, status
from embedkit.testing.scripted_engine import open_scripted_engine

ASKED = Asked("box:80", ["one text", "and another"], datetime(2026, 3, 1, tzinfo=UTC))


def failed(code: int, said: str) -> object:
    return type(failure_of(Reply(code, {}, json.dumps({"error": said}).encode()), ASKED))


@pytest.mark.parametrize("code", [425, 499, 500, 502, *range(520, 531), 598, 599])
def test_a_passing_failure_is_of_its_own_kind(code: int) -> None:
    assert failed(code, "nobody knows") is ProviderUnavailable


@pytest.mark.parametrize("code", [400, 405, 409, 418, 422, 424, 501, 505])
def test_what_will_not_pass_is_a_refusal(code: int) -> None:
    assert failed(code, "nobody knows") is ProviderFailure


@pytest.mark.parametrize(
    ("code", "said", "kind"),
    [
        (500, "llama runner process has terminated: exit status 2", ProviderUnavailable),
        (500, "model runner has unexpectedly stopped, this may be due to resource limitations", ProviderUnavailable),
        (400, "runner has been stopped", ProviderUnavailable),
        (400, "The model has crashed without additional information. (Exit code: 6)", ProviderUnavailable),
        (400, "No models loaded. Please load a model in the developer page", ModelNotResident),
        (404, "No models loaded", ModelNotResident),
        (400, "Model is unloaded.", ModelNotResident),
        (400, "Model unloaded", ModelNotResident),
        (500, "Model not loaded", ModelNotResident),
        (400, 'Failed to load model "m". Error: Operation canceled.', ModelNotResident),
    ],
)
def test_the_ways_of_saying_that_no_model_is_there(code: int, said: str, kind: type[Exception]) -> None:
    assert failed(code, said) is kind


def test_all_of_them_put_the_work_off() -> None:
    assert ProviderUnavailable.deferrable
    assert ProviderUnavailable.retryable
    assert ModelNotResident.deferrable


@pytest.mark.parametrize("code", [500, 502, 520, 499])
@pytest.mark.parametrize("kind", ["openai-compatible", "ollama"])
async def test_one_of_them_costs_a_second(
    code: int, kind: str, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_scripted_engine(rules=[Rule(nth(2), status(code, "nobody knows"))]) as engine:
        report = await sync(one_repository(tmp_path, engine, numbered(6), kind=kind))
    assert report.outcome == "complete"


async def test_while_it_lasts_the_work_is_deferred(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with open_scripted_engine(rules=[Rule(always, status(502, "nobody knows"))]) as engine:
        report = await sync(one_repository(tmp_path, engine, numbered(6)))
    assert (report.outcome, report.code) == ("deferred", "KB_VECTOR_EMBED_PROVIDER_UNAVAILABLE")
