from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedkit.clocks import ZERO, Clocks, attribution

# Eighths of a second: sums of them are exact.
seconds = st.integers(0, 8_000).map(lambda eighths: eighths / 8)
clocks = st.builds(Clocks, seconds, seconds, seconds)


@given(clocks, clocks, clocks)
def test_clocks_add_up_each_by_itself(a: Clocks, b: Clocks, c: Clocks) -> None:
    assert a + ZERO == a == ZERO + a
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert (a + b).queue_wait == a.queue_wait + b.queue_wait
    assert (a + b).provider_time == a.provider_time + b.provider_time
    assert (a + b).retry_wait == a.retry_wait + b.retry_wait


@pytest.mark.parametrize(
    ("queue_wait", "provider_time", "retry_wait", "expected"),
    [
        (10.0, 9.0, 0.0, "queue"),
        (9.0, 10.0, 0.0, "provider"),
        (10.0, 9.0, 2.0, "provider"),  # retries are the provider's doing
        (10.0, 9.0, 1.0, "provider"),  # a tie is not the queue's
        (0.5, 0.0, 0.0, "queue"),
        (0.0, 0.0, 0.0, "provider"),
    ],
)
def test_d1_a_failure_is_put_down_to_whoever_took_longer(
    queue_wait: float, provider_time: float, retry_wait: float, expected: str
) -> None:
    assert attribution(Clocks(queue_wait, provider_time, retry_wait)) == expected


def test_clocks_print_by_name() -> None:
    assert Clocks(1.0, 2.0, 0.5).as_json() == {"queue_wait": 1.0, "provider_time": 2.0, "retry_wait": 0.5}
