from __future__ import annotations

import math

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedkit.probing.rules import (
    BUSY_BEHIND_BATCH,
    FLOOR_SECONDS,
    NEVER,
    NEVER_ASKED,
    OVER_BUDGET,
    REAL_WORK,
    STALE,
    BusyBehindBatch,
    Decision,
    Finding,
    Join,
    OverBudget,
    ProbeResult,
    ProbeState,
    Reuse,
    Send,
    decide,
    engine_key,
    find,
    next_result,
)
from embedkit.settings import ProbeSettings, ProviderSettings

RULES = ProbeSettings()
NOW = 10_000.0
RICH = 4_000  # dispatches that pay for any number of probes here


def well(age: float) -> ProbeResult:
    return ProbeResult(True, None, NOW - age, 0)


def failed(age: float, failures: int = 1) -> ProbeResult:
    return ProbeResult(False, "KB_X", NOW - age, failures)


def decided(state: ProbeState, asked_at: float = NOW, rules: ProbeSettings = RULES) -> Decision:
    return decide(state, rules, NOW, asked_at)


def test_of_an_engine_that_nobody_ever_asked_nothing_is_known_and_one_probe_is_sent() -> None:
    assert find(ProbeState(), RULES, NOW) == Finding("unknown", NEVER_ASKED)
    assert decided(ProbeState()) == Send()


@pytest.mark.parametrize(("age", "fresh"), [(0.0, True), (59.9, True), (60.0, False)])
def test_a_healthy_probe_is_reused_for_a_minute(age: float, fresh: bool) -> None:
    state = ProbeState(result=well(age), dispatches=RICH)
    assert decided(state) == (Reuse(find(state, RULES, NOW)) if fresh else Send())
    assert find(state, RULES, NOW).word == "healthy"


@pytest.mark.parametrize(
    ("failures", "window"), [(1, 30.0), (2, 60.0), (3, 120.0), (5, 480.0), (6, 600.0), (7, 600.0), (10_000, 600.0)]
)
def test_a_failing_probe_is_reused_for_a_window_that_doubles_up_to_its_cap(failures: int, window: float) -> None:
    within = ProbeState(result=failed(window - 0.1, failures), dispatches=RICH)
    after = ProbeState(result=failed(window, failures), dispatches=RICH)
    assert decided(within) == Reuse(find(within, RULES, NOW))
    assert find(within, RULES, NOW).word == "degraded"
    assert decided(after) == Send()


def test_the_streak_of_failures_is_ended_by_a_probe_or_by_real_work() -> None:
    once = next_result(ProbeState(), "KB_X", NOW)
    twice = next_result(ProbeState(result=once), "KB_X", NOW + 1)
    assert (once.failures, twice.failures) == (1, 2)
    assert next_result(ProbeState(result=twice), None, NOW + 2).failures == 0
    assert next_result(ProbeState(result=twice, success_at=NOW + 2), "KB_X", NOW + 3).failures == 1


def test_a_success_of_real_work_is_a_healthy_probe_even_after_a_failed_one() -> None:
    state = ProbeState(result=failed(20.0), success_at=NOW - 10)
    assert decided(state) == Reuse(Finding("healthy", REAL_WORK, 10.0))


def test_a_failed_probe_stands_against_older_real_work() -> None:
    state = ProbeState(result=failed(10.0), success_at=NOW - 20, busy_until=NOW + 100)
    assert decided(state) == Reuse(Finding("degraded", "KB_X", 10.0))


@pytest.mark.parametrize(
    ("age", "slowest", "busy"),
    [(59.0, 0.0, True), (61.0, 0.0, False), (365.0, 183.0, True), (366.0, 183.0, False), (61.0, 31.0, True)],
)
def test_busy_behind_batch_while_what_is_known_is_younger_than_a_minute_or_twice_the_p95(
    age: float, slowest: float, busy: bool
) -> None:
    state = ProbeState(success_at=NOW - age, slowest=slowest, busy_until=NOW + 1, dispatches=RICH)
    assert decided(state) == (BusyBehindBatch(Finding("healthy", BUSY_BEHIND_BATCH, age)) if busy else Send())


def test_a_batch_call_older_than_its_timeout_excuses_nothing() -> None:
    state = ProbeState(result=well(100.0), slowest=100.0, busy_until=NOW, dispatches=RICH)
    assert decided(state) == Send()


def test_a_healthy_probe_counts_behind_a_batch_as_real_work_does() -> None:
    assert isinstance(decided(ProbeState(result=well(59.0), busy_until=math.inf)), BusyBehindBatch)


@pytest.mark.parametrize(
    ("calls", "dispatches", "sends"), [(0, 3, False), (0, 4, True), (1, 7, False), (1, 8, True), (9, 40, True)]
)
def test_probes_are_one_in_four_of_real_dispatches(calls: int, dispatches: int, sends: bool) -> None:
    state = ProbeState(calls=calls, dispatches=dispatches, called_at=NOW - FLOOR_SECONDS + 1)
    assert decided(state) == (Send() if sends else OverBudget(Finding("unknown", OVER_BUDGET)))


def test_one_probe_each_ten_minutes_needs_no_real_work() -> None:
    assert decided(ProbeState(calls=6, called_at=NOW - FLOOR_SECONDS)) == Send()


@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
def test_the_share_is_the_settings(share: float) -> None:
    state = ProbeState(calls=0, dispatches=10, called_at=NOW - 1)
    assert isinstance(decided(state, rules=ProbeSettings(share=share)), Send if share else OverBudget)


def test_over_budget_what_is_known_is_said_with_its_age() -> None:
    assert decided(ProbeState(result=well(300.0), called_at=NOW - 300)) == OverBudget(
        Finding("healthy", OVER_BUDGET, 300.0)
    )
    assert decided(ProbeState(result=failed(300.0), called_at=NOW - 300)) == OverBudget(
        Finding("degraded", "KB_X", 300.0)
    )


def test_what_is_older_than_the_budget_can_explain_is_not_known_any_more() -> None:
    assert find(ProbeState(result=well(599.0)), RULES, NOW).word == "healthy"
    assert find(ProbeState(result=well(600.0)), RULES, NOW) == Finding("unknown", STALE, 600.0)
    assert find(ProbeState(result=failed(600.0)), RULES, NOW) == Finding("unknown", STALE, 600.0)


def test_somebody_elses_flight_is_joined_until_its_time_is_over() -> None:
    assert decided(ProbeState(flight_until=NOW + 1)) == Join()
    assert decided(ProbeState(flight_until=NOW)) == Send()


def test_an_answer_that_came_after_the_question_is_its_answer_however_short_freshness_is() -> None:
    rules = ProbeSettings(fresh=0.0, failing=0.0, failing_cap=0.0)
    for result in (well(1.0), failed(1.0)):
        state = ProbeState(result=result, dispatches=RICH)
        assert isinstance(decided(state, asked_at=NOW - 2, rules=rules), Reuse)
        assert decided(state, asked_at=NOW, rules=rules) == Send()


def test_instants_of_a_clock_that_was_set_back_say_nothing() -> None:
    ahead = ProbeState(result=well(-3600.0), success_at=NOW + 3600, called_at=NOW + 3600, busy_until=NOW + 9999)
    assert find(ahead, RULES, NOW) == Finding("unknown", NEVER_ASKED)
    # A little is forgiven.
    assert find(ProbeState(result=well(-1.0)), RULES, NOW) == Finding("healthy", None, 0.0)


def test_an_engine_is_the_same_whatever_it_is_called_and_its_address_is_not_shown() -> None:
    described = ProviderSettings(kind="openai-compatible", base_url="http://box:8080/v1", model="all-minilm")
    assert engine_key(described) == engine_key(attrs.evolve(described, capacity=4, timeout=3.0))
    assert engine_key(described) != engine_key(attrs.evolve(described, base_url="http://box:8081/v1"))
    assert engine_key(described) != engine_key(attrs.evolve(described, model="other"))
    assert "box" not in engine_key(described)


ages = st.floats(0.0, 4000.0)
states = st.builds(
    ProbeState,
    result=st.none() | st.builds(well, ages) | st.builds(failed, ages, st.integers(1, 12)),
    success_at=st.just(NEVER) | st.builds(lambda age: NOW - age, ages),
    slowest=st.floats(0.0, 600.0),
    busy_until=st.just(NEVER) | st.builds(lambda time: NOW + time, st.floats(-100.0, 100.0)),
    dispatches=st.integers(0, 100),
    calls=st.integers(0, 30),
    called_at=st.just(NEVER) | st.builds(lambda age: NOW - age, ages),
    flight_until=st.just(NEVER) | st.builds(lambda time: NOW + time, st.floats(-100.0, 100.0)),
)


@given(states)
def test_nothing_is_sent_beyond_the_budget_or_beside_a_flight(state: ProbeState) -> None:
    if decided(state) == Send():
        assert state.calls + 1 <= state.dispatches / 4 or NOW - state.called_at >= FLOOR_SECONDS
        assert state.flight_until <= NOW


@given(states)
def test_every_decision_that_sends_nothing_gives_a_finding_and_none_says_unhealthy(state: ProbeState) -> None:
    decision = decided(state)
    if not isinstance(decision, Send | Join):
        assert decision.finding.word in {"healthy", "degraded", "unknown"}
        assert (decision.finding.age is None) == (state.result is None and state.success_at == NEVER)
        assert decision.finding.reason is not None or decision.finding.word == "healthy"


@given(states, st.floats(0.0, 100.0))
def test_what_is_reused_is_never_older_than_what_is_found_without_asking(state: ProbeState, wait: float) -> None:
    decision = decide(state, RULES, NOW, NOW - wait)
    if isinstance(decision, Reuse | BusyBehindBatch):
        assert decision.finding == find(state, RULES, NOW)
        assert decision.finding.word != "unknown"
