"""The suite turned on others: a plain lane that keeps the laws passes, and each bad one fails what it breaks."""

from __future__ import annotations

import pytest
from bad_lanes import BAD_LANES, LimiterLane
from plain_lane import PlainLane, PlainQueueLane

from embedkit.testing import LawBroken, check_lane, judge_lane


@pytest.mark.parametrize("make_lane", [PlainLane, PlainQueueLane])
def test_a_lane_that_is_not_ours_can_keep_the_laws(make_lane: type[PlainLane]) -> None:
    check_lane(make_lane, settlement=make_lane.settlement)


@pytest.mark.parametrize("name", BAD_LANES)
def test_a_bad_lane_fails_exactly_the_laws_that_it_breaks(name: str) -> None:
    bad = BAD_LANES[name]
    report = judge_lane(bad.make, settlement=bad.make.settlement)
    assert report.broken_laws == bad.breaks, str(report)


def test_a_failure_shows_the_interleaving() -> None:
    with pytest.raises(LawBroken) as raised:
        check_lane(LimiterLane, settlement="queue", laws=[1], seeds=[1])
    text = str(raised.value)
    assert "law 1, withdraw: BROKEN in" in text
    for line in (
        "B was cancelled while queued; as cancel() returns",
        "A: call 1 begins",
        "B: cancelled by its own scope",
    ):
        assert line in text


def test_the_same_seed_gives_the_same_interleaving() -> None:
    reports = [judge_lane(PlainLane, settlement="provider", laws=[6], seeds=[7]) for _ in range(2)]
    assert reports[0] == reports[1]
    other = judge_lane(PlainLane, settlement="provider", laws=[6], seeds=[8])
    assert [verdict.trace for verdict in other.verdicts] != [verdict.trace for verdict in reports[0].verdicts]


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
    assert "the lane raised" in str(report)
