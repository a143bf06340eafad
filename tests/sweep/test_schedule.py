from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedkit.sweep.schedule import JITTER_SHARE, backoff, batch_ceiling, is_due, jitter

NAMES = st.text(max_size=8)


@pytest.mark.parametrize(("due_at", "due"), [(None, True), (99.0, True), (100.0, True), (100.1, False)])
def test_what_is_due(due_at: float | None, due: bool) -> None:
    assert is_due(due_at, 100.0) == due


@given(NAMES, NAMES, st.floats(0.0, 1e6))
def test_jitter_is_always_the_same_for_a_repository_and_at_most_a_fifth(
    tenant: str, repository: str, base: float
) -> None:
    drawn = jitter(tenant, repository, base)
    assert drawn == jitter(tenant, repository, base)
    assert 0.0 <= drawn <= JITTER_SHARE * base


def test_jitter_spreads_repositories() -> None:
    drawn = [jitter("acme", f"repository-{number}", 1800.0) for number in range(200)]
    assert len(set(drawn)) == 200
    assert min(drawn) < 36.0
    assert max(drawn) > 324.0


@pytest.mark.parametrize(
    ("streak", "seconds"), [(0, 1800.0), (1, 3600.0), (2, 7200.0), (3, 7200.0), (63, 7200.0), (10**6, 7200.0)]
)
def test_backoff_doubles_up_to_its_cap(streak: int, seconds: float) -> None:
    assert backoff(1800.0, 0.0, streak, 7200.0) == seconds


@given(st.floats(0.001, 1e6), st.floats(0.0, 1e5), st.integers(0, 5000), st.floats(0.001, 1e7))
def test_backoff_is_never_over_its_cap_and_never_shrinks(base: float, extra: float, streak: int, cap: float) -> None:
    assert backoff(base, extra, streak, cap) <= backoff(base, extra, streak + 1, cap) <= cap


CEILINGS = st.none() | st.integers(1, 64)


@given(CEILINGS, st.none() | st.integers(1, 64), st.booleans(), st.integers(1, 64))
def test_the_ceiling_halves_what_timed_out_doubles_after_a_clean_sweep_and_is_else_held(
    held: int | None, timed_out: int | None, clean: bool, batch: int
) -> None:
    after = batch_ceiling(held, timed_out=timed_out, clean=clean, batch=batch)
    if timed_out is not None:
        assert after == max(timed_out // 2, 1)
    elif held is None or not clean:
        assert after == held
    else:
        assert after == (2 * held if 2 * held < batch else None)


@given(st.integers(1, 1000))
def test_a_ceiling_comes_down_to_one_and_goes_up_to_none(batch: int) -> None:
    ceiling: int | None = batch
    for _ in range(batch.bit_length()):
        assert ceiling is not None
        ceiling = batch_ceiling(ceiling, timed_out=ceiling, clean=False, batch=batch)
    assert ceiling == 1
    for _ in range(batch.bit_length() + 1):
        ceiling = batch_ceiling(ceiling, timed_out=None, clean=True, batch=batch)
    assert ceiling is None
