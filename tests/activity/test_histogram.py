from __future__ import annotations

from math import ceil, inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedkit.activity.histogram import Histogram

durations = st.lists(st.floats(1e-5, 1e7) | st.just(0.0), min_size=1, max_size=60)


def filled(values: list[float]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    return histogram


@given(durations, st.floats(0.0, 1.0))
def test_a_quantile_is_within_a_thirty_second_of_the_exact_one(values: list[float], q: float) -> None:
    exact = sorted(values)[max(ceil(q * len(values)), 1) - 1]
    assert filled(values).quantile(q) == pytest.approx(exact, rel=1 / 32, abs=0.0)


@given(durations)
def test_count_mean_and_longest_are_exact(values: list[float]) -> None:
    histogram = filled(values)
    assert histogram.count == len(values)
    assert histogram.longest == max(values)
    assert histogram.mean == pytest.approx(sum(values) / len(values))


@given(durations)
def test_quantiles_ascend_and_end_at_the_longest(values: list[float]) -> None:
    histogram = filled(values)
    steps = [histogram.quantile(q / 10) or 0.0 for q in range(11)]
    assert steps == sorted(steps)
    assert steps[-1] <= histogram.longest


def test_zeros_are_measured_zeros() -> None:
    assert filled([0.0, 0.0, 5.0]).quantile(0.5) == 0.0
    assert Histogram().quantile(0.5) is None
    assert Histogram().mean is None


@pytest.mark.parametrize("odd", [nan, inf, -inf, -1.0, 1e300, 5e-324])
def test_no_number_breaks_it(odd: float) -> None:
    histogram = filled([1.0, odd])
    assert histogram.count == 2
    assert 0.0 <= (histogram.mean or 0.0) < inf
    assert histogram.quantile(1.0) == pytest.approx(histogram.longest, rel=1 / 32)


def test_many_durations_take_bounded_room() -> None:
    histogram = filled([1.001**exponent for exponent in range(-14_000, 14_000)])
    assert histogram.count == 28_000
    assert len(histogram._fresh) == 0
    assert len(histogram._buckets) == len(Histogram()._buckets) < 1_000


def test_what_was_sorted_in_and_what_is_fresh_are_one() -> None:
    """Durations are put into their buckets a few hundred at a time: nobody who asks in between may see it."""
    histogram = Histogram()
    for number in range(1, 1_001):
        histogram.add(float(number))
        if number % 77 == 0:
            assert histogram.count == number
            assert histogram.longest == number
            assert histogram.quantile(0.5) == pytest.approx(number / 2, rel=1 / 31)
    assert histogram.mean == pytest.approx(500.5)
