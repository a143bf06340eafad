"""A hint is seconds or an HTTP date; everything else is none."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedkit.providers.retry_after import retry_after_seconds

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("7", 7.0),
        ("007", 7.0),
        (" 7\t", 7.0),
        ("86400", 86400.0),
        ("Sun, 01 Mar 2026 12:00:30 GMT", 30.0),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0.0),
        ("Sunday, 01-Mar-26 12:01:00 GMT", 60.0),
        ("Sun Mar  1 12:00:05 2026", 5.0),
    ],
)
def test_a_hint(value: str, seconds: float) -> None:
    assert retry_after_seconds(value, NOW) == seconds


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "   ",
        "-1",
        "+5",
        "1.5",
        "1e3",
        "0x10",
        "5s",
        "5, 6",
        "1 000",
        "\u0663",
        "\uff15",
        "\u00b2",
        "9" * 400,
        "9" * 5000,
        "99999999999",
        "soon",
        "in 5 seconds",
        "nan",
        "inf",
        "Mon, 5 minutes",
        "2026-03-01T12:00:30Z",
        "Sun, 01 Mar 2026 12:00:30 CET",
        "Sun, 31 Feb 2026 12:00:30 GMT",
        "Sun, 01 Mar 2026 25:00:30 GMT",
    ],
)
def test_no_hint(value: str | None) -> None:
    assert retry_after_seconds(value, NOW) is None


@given(st.text())
def test_any_text_is_a_hint_that_is_not_negative_or_none(text: str) -> None:
    hint = retry_after_seconds(text, NOW)
    assert hint is None or 0 <= hint < 10**10
