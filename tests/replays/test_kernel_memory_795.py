"""kernel-memory#795: the hint stands in ``retry-after-ms`` or ``x-ratelimit-reset-*``, and nobody read it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from embedkit.providers.exchange import Reply
from embedkit.providers.failures import Asked, failure_of
from embedkit.providers.retry_after import hint_seconds

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
EPOCH = int(NOW.timestamp())


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "0"}, 0.0),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2.0),
        ({"retry-after": "2", "x-ratelimit-reset-requests": "90s"}, 2.0),
        ({"x-ratelimit-reset-requests": "20ms"}, 0.02),
        ({"x-ratelimit-reset-requests": "1m30s"}, 90.0),
        ({"x-ratelimit-reset-tokens": "7.66s"}, 7.66),
        ({"x-ratelimit-reset-tokens": "1h0m0s"}, 3600.0),
        ({"x-ratelimit-reset": "12"}, 12.0),
        ({"ratelimit-reset": "12"}, 12.0),
        ({"x-ratelimit-reset": str(EPOCH + 30)}, 30.0),
        ({"x-ratelimit-reset": str(1000 * (EPOCH + 30))}, 30.0),
        ({"x-ratelimit-reset": str(EPOCH - 30)}, 0.0),
        ({"x-ratelimit-reset": (NOW + timedelta(seconds=5)).isoformat()}, 5.0),
        # The limit that is used up is the one that counts.
        (
            {
                "x-ratelimit-remaining-requests": "99",
                "x-ratelimit-reset-requests": "24h",
                "x-ratelimit-remaining-tokens": "0",
                "x-ratelimit-reset-tokens": "6s",
            },
            6.0,
        ),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "6s"}, 6.0),
    ],
)
def test_a_hint(headers: dict[str, str], seconds: float) -> None:
    assert hint_seconds(headers, NOW) == pytest.approx(seconds)
    refusal = failure_of(Reply(429, headers, b""), Asked("far:443", ["one"], NOW))
    assert refusal.retry_after == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value", ["", " ", "-5", "1.5", "soon", "5 seconds", "1e3", "٣", "9" * 40, "s", "m", "2026-99-99T00:00:00Z"]
)
@pytest.mark.parametrize("name", ["retry-after-ms", "retry-after", "x-ratelimit-reset-requests", "x-ratelimit-reset"])
def test_no_hint(name: str, value: str) -> None:
    assert hint_seconds({name: value}, NOW) is None


def test_headers_of_a_limit_are_no_hint_where_nothing_was_refused() -> None:
    refusal = failure_of(Reply(500, {"x-ratelimit-reset-requests": "9s"}, b""), Asked("far:443", ["one"], NOW))
    assert refusal.retry_after is None
