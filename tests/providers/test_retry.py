"""The retry table, row by row."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import embedkit.providers as providers_room
from embedkit.admission.policy import NoRetry, Retry
from embedkit.errors import (
    ConnectionRefused,
    ContentRefused,
    ModelChanged,
    ModelNotResident,
    ProviderAuthError,
    ProviderBusy,
    ProviderError,
    ProviderFailure,
    ProviderTimeout,
    ProviderUnavailable,
    QuotaExhausted,
    ResponseInvalid,
    TransportClosed,
)
from embedkit.providers.retry import RetryTable, ollama_policy, openai_compatible_policy


def delays(
    policy: Retry,
    error: ProviderError,
    priority: str = "batch",
    *,
    has_deadline: bool = False,
) -> list[float]:
    """The delays of a ticket that fails the same way each time, until its failure is final."""
    waited: list[float] = []
    while True:
        delay = policy.next_delay(
            error, len(waited) + 1, priority=priority, spent=sum(waited), has_deadline=has_deadline
        )
        if delay is None:
            return waited
        waited.append(delay)


OPENAI = openai_compatible_policy(draw=lambda: 1.0)
OLLAMA = ollama_policy(draw=lambda: 1.0)


@pytest.mark.parametrize("priority", ["interactive", "batch"])
@pytest.mark.parametrize("policy", [OPENAI, OLLAMA])
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ModelNotResident("x"), [0.5, 0.5, 0.5]),
        (ConnectionRefused("x"), [1.0]),
        (TransportClosed("x"), [1.0]),
        (ProviderUnavailable("x"), [1.0]),
        (QuotaExhausted("x"), []),
        (ModelChanged("x"), []),
        (ResponseInvalid("x"), [0.0]),
        (ContentRefused("x"), []),
        (ContentRefused("x", code="INPUT_TRUNCATED"), []),
        (ProviderAuthError("x"), []),
        (ProviderFailure("x", status=500), []),
    ],
)
def test_the_rows_that_depend_on_nothing_else(
    policy: RetryTable, error: ProviderError, expected: list[float], priority: str
) -> None:
    assert delays(policy, error, priority) == expected


@pytest.mark.parametrize("policy", [OPENAI, OLLAMA])
def test_contention_without_a_hint(policy: RetryTable) -> None:
    busy = ProviderBusy("x", status=503)
    assert delays(policy, busy, "interactive") == [1.0, 1.0]
    assert delays(policy, busy, "interactive", has_deadline=True) == []
    assert delays(policy, busy, "batch") == []


def test_contention_without_a_hint_is_fully_jittered() -> None:
    draws = iter([0.25, 0.75])
    policy = openai_compatible_policy(draw=lambda: next(draws))
    assert delays(policy, ProviderBusy("x"), "interactive") == [0.25, 0.75]


def test_a_hint_is_waited_as_given_at_most_ten_times() -> None:
    busy = ProviderBusy("x", status=429, retry_after=7.0)
    assert delays(OPENAI, busy, "batch") == [7.0] * 10
    assert delays(OPENAI, busy, "interactive") == [7.0, 7.0]


def test_a_hint_over_the_cap_is_clamped_or_given_up_and_never_shortened_otherwise() -> None:
    busy = ProviderBusy("x", status=429, retry_after=90.0)
    assert delays(OPENAI, busy) == [30.0] * 10
    assert delays(openai_compatible_policy(over_cap="give-up"), busy) == []
    assert delays(openai_compatible_policy(max_retry_after=120.0), busy) == [90.0] * 6


def test_six_hundred_seconds_of_waiting_are_the_end() -> None:
    busy = ProviderBusy("x", status=429, retry_after=20.0)
    assert OPENAI.next_delay(busy, 1, priority="batch", spent=580.0, has_deadline=False) == 20.0
    assert OPENAI.next_delay(busy, 1, priority="batch", spent=580.1, has_deadline=False) is None


def test_a_timeout_is_retried_for_people_on_openai_compatible_engines_only() -> None:
    timeout = ProviderTimeout("x")
    assert delays(OPENAI, timeout, "interactive") == [1.0, 1.0]
    assert delays(OPENAI, timeout, "interactive", has_deadline=True) == []
    assert delays(OPENAI, timeout, "batch") == []
    assert delays(OLLAMA, timeout, "interactive") == []
    assert delays(OLLAMA, timeout, "batch") == []


def test_the_attempts_of_a_person_have_a_limit_of_their_own() -> None:
    assert OPENAI.attempt_limit("interactive", has_deadline=False) == 15.0
    assert OPENAI.attempt_limit("interactive", has_deadline=True) is None
    assert OPENAI.attempt_limit("batch", has_deadline=False) is None
    assert OLLAMA.attempt_limit("interactive", has_deadline=False) is None


@pytest.mark.parametrize("error", [ModelNotResident("x"), ProviderBusy("x", retry_after=1.0), TransportClosed("x")])
def test_a_probe_reports_what_it_saw(error: ProviderError) -> None:
    assert delays(OPENAI, error, "probe") == []


def test_no_retry_is_no_retry() -> None:
    assert delays(NoRetry(), ModelNotResident("x"), "interactive") == []
    assert NoRetry().attempt_limit("interactive", has_deadline=False) is None


def test_ac_1_no_timeout_code_is_spelled_in_this_room() -> None:
    codes = {"PROVIDER_TIMEOUT", "OPENAI_COMPATIBLE_REQUEST_TIMEOUT", "ETIMEDOUT", "ESOCKETTIMEDOUT"}
    for file in Path(providers_room.__path__[0]).glob("**/*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            assert not (isinstance(node, ast.Constant) and node.value in codes), f"{file}:{node.lineno}"
