from __future__ import annotations

from functools import cache

import attrs
import pytest

from benchmarks.production_day import (
    AFTER,
    BATCH_SERVICE,
    BEFORE,
    DAY,
    POLL_EVERY,
    POLLERS,
    PROBE_SERVICE,
    PRODUCTION,
    DayReport,
    Policy,
    run_day,
    table,
)

ONE_SLOT = attrs.evolve(AFTER, name="after, one slot", capacity=1)
BROKER_ALONE = attrs.evolve(BEFORE, name="the broker alone", brokered=True)
SHARES_ALONE = attrs.evolve(BEFORE, name="fair shares alone", order=None)

# Days are kept: whoever needs the same one is to find it, and so is played by the same worker.
day = cache(run_day)
pytestmark = pytest.mark.xdist_group("production day")


def test_p_1_before_the_batch_starves() -> None:
    before = day(BEFORE)
    assert before.polls == POLLERS * DAY / POLL_EVERY
    assert before.batch_calls <= 1  # the one that came before anybody had asked
    assert before.batch_wait_max > DAY - BATCH_SERVICE - POLLERS * PROBE_SERVICE
    assert before.probe_calls > 100 * before.batch_calls
    assert before.answered < before.polls / 2


@pytest.mark.parametrize("policy", [AFTER, ONE_SLOT], ids=lambda policy: policy.name)
def test_p_1_after_the_batch_goes_on_all_day_and_probes_are_few(policy: Policy) -> None:
    after = day(policy)
    assert after.polls == POLLERS * DAY / POLL_EVERY
    assert after.batch_calls >= DAY / (BATCH_SERVICE + policy.lead + PROBE_SERVICE)
    assert after.longest_silence <= BATCH_SERVICE + policy.lead + PROBE_SERVICE
    assert after.batch_wait_max <= policy.lead + PROBE_SERVICE
    assert 1 <= after.probe_calls <= after.batch_calls / 4


def test_p_1_after_every_health_check_is_answered_and_at_once_but_for_the_first() -> None:
    after = day(AFTER)
    assert after.answered == after.polls
    assert after.healthy == after.polls
    assert after.poll_wait < 0.1


def test_the_broker_alone_ends_the_starving() -> None:
    assert run_day(BROKER_ALONE, seconds=DAY / 4).batch_wait_max <= PROBE_SERVICE


def test_fair_shares_alone_end_the_starving() -> None:
    """A batch waits for what its class has itself taken, for the lead of people, and for the call that is out."""
    assert run_day(SHARES_ALONE, seconds=DAY / 4).batch_wait_max <= BATCH_SERVICE + AFTER.lead + PROBE_SERVICE


@pytest.mark.parametrize("policy", [BEFORE, AFTER], ids=lambda policy: policy.name)
def test_p_1_a_day_takes_at_most_ten_seconds(policy: Policy) -> None:
    assert day(policy).cpu_seconds <= 10.0


def test_the_table_says_what_was_asked_for_and_what_it_cost() -> None:
    before, after = _report("before", 506, 169), _report("after", 12, 400)
    lines = table(before, after).splitlines()
    assert lines[0].split() == ["before", "after"]
    assert "probe calls to the engine 506 12" in [" ".join(line.split()) for line in lines]
    assert len({len(line) for line in lines}) == 1
    assert "506 probe calls against 169 batch calls" in PRODUCTION


def _report(name: str, probe_calls: int, batch_calls: int) -> DayReport:
    policy = attrs.evolve(AFTER, name=name)
    return DayReport(policy, 1000, 1000, 1.0, 1000, probe_calls, batch_calls, 167.0, 1050.0, 183.0, 0.5, 1.0)
