"""The suite turned on others: a plain lane that keeps the laws passes, and each bad one fails what it breaks."""

from __future__ import annotations

import ast
import inspect
import time

import plain_lane
import pytest
import trio
from bad_lanes import BAD_LANES, DeafLane, GrantingLane, LimiterLane, PollingLane, ShieldingLane
from plain_lane import PlainLane, PlainQueueLane

from embedkit.testing import LawBroken, LawReport, check_lane, judge_lane


@pytest.mark.parametrize("make_lane", [PlainLane, pytest.param(PlainQueueLane, marks=pytest.mark.soak)])
def test_a_lane_that_is_not_ours_can_keep_the_laws(make_lane: type[PlainLane]) -> None:
    check_lane(make_lane, settlement=make_lane.settlement)


def test_the_lane_that_is_not_ours_is_small_and_uses_public_names_alone() -> None:
    source = inspect.getsource(plain_lane)
    imported = {node.module for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)}
    assert imported == {"typing", "embedkit", "embedkit.testing"}
    lines = [line for line in inspect.getsource(PlainLane).splitlines() if line.strip()]
    assert len(lines) <= 70


def _judge(name: str) -> LawReport:
    bad = BAD_LANES[name]
    return judge_lane(bad.make, settlement=bad.settlement, without=bad.without)


# Each takes all scenarios and all seeds; in the default run a few of them stand for the rest, which the next test holds
# to the one law that names what is wrong.
_STAND_FOR_ALL = {"limiter", "notified late"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in _STAND_FOR_ALL else pytest.mark.soak) for name in BAD_LANES]
)
def test_a_bad_lane_fails_exactly_the_laws_that_it_breaks(name: str) -> None:
    report = _judge(name)
    bad = BAD_LANES[name]
    assert (report.broken_laws, report.miswritten_laws) == (bad.breaks, bad.miswrites), str(report)


@pytest.mark.parametrize("name", BAD_LANES)
def test_the_law_that_names_what_is_wrong_finds_it_by_its_own_scenarios(name: str) -> None:
    bad = BAD_LANES[name]
    report = judge_lane(bad.make, settlement=bad.settlement, without=bad.without, laws=[bad.named], seeds=[1])
    assert bad.named in report.broken_laws | report.miswritten_laws, str(report)


def test_what_the_granting_lanes_have_in_common_is_no_fault() -> None:
    """Their heirs are broken by the one thing in which they differ from it."""
    report = judge_lane(GrantingLane, settlement="queue", laws=[1, 2, 3, 5, 6, 7])
    assert report.is_kept, str(report)


@pytest.mark.timeout(150)
@pytest.mark.parametrize("make_lane", [PollingLane, ShieldingLane, DeafLane])
def test_a_lane_that_cannot_be_ended_gets_a_verdict_all_the_same(make_lane: type[PlainLane]) -> None:
    began = time.perf_counter()
    report = judge_lane(make_lane, settlement="provider", seeds=[1], laws=[1, 2])
    assert not report.is_kept
    assert time.perf_counter() - began < 100


def test_a_lane_that_swallows_cancelled_is_named_and_the_next_one_is_judged_as_ever() -> None:
    report = judge_lane(DeafLane, settlement="provider", laws=[7])
    assert "swallow Cancelled" in str(report)
    assert "could not be played to their end" in str(report)
    check_lane(PlainLane, settlement="provider", laws=[7])


@pytest.mark.soak
def test_a_lane_that_polls_for_ever_is_told_so() -> None:
    class Restless(PollingLane):
        async def poll(self) -> None:
            for _ in range(10**9):
                await trio.sleep(0.01)

    report = judge_lane(Restless, settlement="provider", laws=[7], seeds=[1])
    assert "does the lane poll?" in str(report)


class _SpinningLane(PlainLane):
    """Two sleepers that wake each other over a head that does not fit."""

    def rouse(self) -> None:
        if len(self.order):
            self.nursery.start_soon(self.work)

    def take(self):  # type: ignore[no-untyped-def]
        found = super().take()
        if found is None:
            self.rouse()
        return found


def test_a_lane_that_spins_at_one_instant_is_found_out() -> None:
    report = judge_lane(_SpinningLane, settlement="provider", laws=[2], seeds=[1])
    assert "spins" in str(report)


def test_a_lane_that_raises_is_found_out() -> None:
    class Raising(PlainLane):
        def settle(self, *args: object) -> None:
            raise ZeroDivisionError

    report = judge_lane(Raising, settlement="provider", laws=[7], seeds=[1])
    assert "the lane raised ZeroDivisionError" in str(report), str(report)


def test_a_lane_that_raises_inside_cancel_is_found_out_and_the_next_one_is_judged_as_ever() -> None:
    class Falling(PlainLane):
        def left(self, entry: object) -> None:
            raise ZeroDivisionError

    report = judge_lane(Falling, settlement="provider", laws=[1], seeds=[1])
    assert "ZeroDivisionError" in str(report)
    assert "raise in cancel()?" in str(report)
    check_lane(PlainLane, settlement="provider", laws=[7], seeds=[1])


def test_a_failure_shows_the_interleaving_when_asked_to() -> None:
    asked = {"settlement": "queue", "laws": [1], "seeds": [1]}
    with pytest.raises(LawBroken) as raised:
        check_lane(LimiterLane, show_traces=True, **asked)  # type: ignore[arg-type]
    text = str(raised.value)
    assert "law 1, withdraw: BROKEN in" in text
    for line in ("B was cancelled while queued; as cancel() returns", "A: call 1 begins", "B: cancelled by its own"):
        assert line in text
    with pytest.raises(LawBroken) as brief:
        check_lane(LimiterLane, **asked)  # type: ignore[arg-type]
    assert "A: call 1 begins" not in str(brief.value)
    assert len(str(brief.value).splitlines()) < 80


def test_the_same_seed_gives_the_same_interleaving() -> None:
    reports = [judge_lane(PlainLane, settlement="provider", laws=[6], seeds=[7]) for _ in range(2)]
    assert reports[0] == reports[1]
    other = judge_lane(PlainLane, settlement="provider", laws=[6], seeds=[8])
    assert [verdict.trace for verdict in other.verdicts] != [verdict.trace for verdict in reports[0].verdicts]
