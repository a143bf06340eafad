"""Flowise#5583: a quota that waiting does not bring back was deferred for ever, as if a rate were exceeded."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from embedkit.errors import ProviderAuthError, ProviderBusy, QuotaExhausted
from embedkit.providers.exchange import Reply
from embedkit.providers.failures import Asked, failure_of

ASKED = Asked("far:443", ["one text", "and another"], datetime(2026, 3, 1, tzinfo=UTC))
RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "12s"}
SPENT = "You exceeded your current quota, please check your plan and billing details."


def failed(status: int, error: Any, headers: dict[str, str] | None = None) -> Any:
    return failure_of(Reply(status, headers or {}, json.dumps({"error": error}).encode()), ASKED)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (429, {"message": SPENT, "type": "insufficient_quota", "code": "insufficient_quota"}),
        (429, {"message": "no", "code": "insufficient_quota"}),
        (429, {"message": "Your account balance is 0"}),
        (429, {"message": "Insufficient balance"}),
        (403, {"message": "Sorry, your account balance is insufficient"}),
        (402, {"message": "This request requires more credits"}),
        (402, {"message": "anything"}),
        (400, {"message": "Access denied, please make sure your account is in good standing.", "code": "Arrearage"}),
        (429, {"message": "Quota exceeded for metric: x, limit: 0", "status": "RESOURCE_EXHAUSTED"}),
    ],
)
def test_what_waiting_does_not_bring_back_is_a_quota(status: int, error: Any) -> None:
    failure = failed(status, error)
    assert type(failure) is QuotaExhausted
    assert failure.durable_code == "KB_VECTOR_EMBED_QUOTA"
    assert not failure.deferrable
    assert not failure.retryable
    assert not failure.isolable
    assert "waiting does not bring it back" in str(failure)


def test_it_says_so_even_where_a_header_gives_a_hint() -> None:
    failure = failed(429, {"message": SPENT, "code": "insufficient_quota"}, {"retry-after": "20"})
    assert type(failure) is QuotaExhausted
    assert "exceeded your current quota" in str(failure)


@pytest.mark.parametrize(
    ("error", "headers"),
    [
        ({"message": "Rate limit reached for requests", "code": "rate_limit_exceeded"}, {}),
        ({"message": SPENT, "status": "RESOURCE_EXHAUSTED", "details": [RETRY_INFO]}, {}),
        ({"message": SPENT, "status": "RESOURCE_EXHAUSTED"}, {}),  # Google's words for a rate as well
        ({"message": SPENT}, {"retry-after": "20"}),
        ({"message": "You have not yet added your payment method, and have reduced rate limits"}, {}),
    ],
)
def test_a_rate_is_no_quota(error: Any, headers: dict[str, str]) -> None:
    assert type(failed(429, error, headers)) is ProviderBusy


def test_a_key_that_is_refused_is_no_quota() -> None:
    assert type(failed(401, {"message": "Incorrect API key provided"})) is ProviderAuthError
