"""``check_lane`` itself: words that are refused, what is left out, one scenario alone, and what a report says."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from embedkit import BudgetLane, Ticket, UsageError
from embedkit.testing import LawBroken, LawReport, LawVerdict, check_lane, judge_lane, play_scenario, scenario_names
from embedkit.testing.caller import Caller, answers
from embedkit.testing.check import _choose
from embedkit.testing.lane_under_test import FEATURES
from embedkit.testing.laws import LAWS, scenarios_of
from embedkit.testing.trace import Finding, Findings


class _Connection:
    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *_: object) -> None:
        pass


def make_lane(nursery: trio.Nursery, **options: Any) -> BudgetLane[None]:
    return BudgetLane("here", nursery=nursery, connect=_Connection, **options)


class _Lacking:
    """A lane of ours behind the three methods that a lane must have."""

    def __init__(self, nursery: trio.Nursery, **options: Any) -> None:
        lane = make_lane(nursery, **options)
        self.run, self.statistics, self.close = lane.run, lane.statistics, lane.close


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"settlement": "quueue"}, "'quueue' is no settlement: there is 'provider', 'queue'"),
        ({"settlement": "queue", "laws": [8]}, "8 is no law: there is 1, 2, 3, 4, 5, 6, 7"),
        ({"settlement": "queue", "laws": ["withdraw"]}, "'withdraw' is no law"),
        ({"settlement": "queue", "without": ["tenant"]}, "'tenant' is no feature that a lane can be without"),
        ({"settlement": "queue", "without": "tenants"}, "without is a collection of words"),
    ],
)
def test_an_unknown_word_is_refused_with_a_sentence(asked: dict[str, Any], said: str) -> None:
    for judge in (judge_lane, check_lane):
        with pytest.raises(UsageError, match=said):
            judge(make_lane, **asked)


@pytest.mark.parametrize(
    "feature", [pytest.param(one, marks=() if one == "reserve" else pytest.mark.soak) for one in FEATURES]
)
def test_a_lane_is_judged_on_what_it_has_and_told_what_was_left_out(feature: Any) -> None:
    seen: list[tuple[int, int, str | None]] = []

    class Spy(_Lacking):
        def __init__(self, nursery: trio.Nursery, **options: Any) -> None:
            super().__init__(nursery, **options)
            inner = self.run

            async def run(call: Any, ticket: Any) -> Any:
                seen.append((options["reserve"], ticket.weight, ticket.tenant))
                return await inner(call, ticket)

            self.run = run

    report = judge_lane(Spy, settlement="queue", seeds=[1], without={feature}, laws=[1, 4, 5])
    assert report.is_kept, str(report)
    assert any(f"without {feature}" in line for line in report.not_judged)
    assert f"not judged: the lane is without {feature}" in str(report)
    reserves, weights, tenants = map(set, zip(*seen, strict=True))
    assert {"reserve": reserves == {0}, "weights": weights == {1}, "tenants": tenants == {None}}[feature]
    left_out = {scenario.name for scenario in scenarios_of(4) if feature in scenario.needs}
    assert left_out
    assert not left_out & {verdict.scenario for verdict in report.verdicts}


def test_methods_that_a_lane_need_not_have_are_judged_where_they_are() -> None:
    with_them, all_of_it = _choose(make_lane, "queue", (), frozenset())
    without, left_out = _choose(_Lacking, "queue", (), frozenset())
    assert all_of_it == []
    assert len(with_them) > len(without)
    assert [line.partition(":")[0] for line in left_out] == ["the lane has no refresh", "the lane has no run_nowait"]


def test_a_make_lane_that_raises_shows_what_it_raised() -> None:
    def broken(nursery: trio.Nursery, **options: Any) -> BudgetLane[None]:
        raise ZeroDivisionError("a bug in make_lane")

    report = judge_lane(broken, settlement="queue")
    assert "make_lane raised ZeroDivisionError('a bug in make_lane')" in str(report)
    assert len(report.verdicts) == 3
    assert "could not be played to their end" in report.not_judged[-1]


def test_one_scenario_alone() -> None:
    names = scenario_names(settlement="queue", laws=[1])
    verdict = play_scenario(names[0], make_lane, settlement="queue", seed=2)
    assert (verdict.law, verdict.scenario, verdict.seed, verdict.is_kept) == (1, names[0], 2, True)
    assert "B: call 1 begins" in verdict.trace
    with pytest.raises(UsageError, match="cancelled while parked, by its own scope"):
        play_scenario("cancelled while parked by own scope", make_lane, settlement="queue")
    with pytest.raises(UsageError, match="no scenario is called"):
        play_scenario(
            "the caller leaves, by its own scope, and the provider's call goes on", make_lane, settlement="queue"
        )


def test_names_of_scenarios_are_their_own() -> None:
    for settlement in ("provider", "queue"):
        names = scenario_names(settlement=settlement)
        assert len(names) == len(set(names))
    assert {law.number for law in LAWS} == set(range(1, 8))


def test_what_is_done_and_what_is_written_down_are_verdicts_apart() -> None:
    verdicts = (
        LawVerdict(1, "one", 1, None, None, "the trace of one"),
        LawVerdict(1, "two", 1, Finding(2, "a slot too many"), None, "the trace of two"),
        LawVerdict(7, "three", 1, None, Finding(7, "a second too few"), "the trace of three"),
        LawVerdict(7, "three", 2, None, None, "kept this time"),
    )
    report = LawReport(verdicts, ("the lane is without tenants: 2 scenarios",))
    assert report.broken_laws == {2}
    assert report.miswritten_laws == {7}
    assert [verdict.scenario for verdict in report.failures] == ["two", "three"]
    assert str(report) == (
        "law 1, withdraw: kept in all 2 scenarios\n"
        "law 2, settle: BROKEN in 1 scenario (of its own: 0)\n"
        "law 7, honest clocks: WRITTEN DOWN WRONG in 1 scenario (of its own: 1)\n"
        "not judged: the lane is without tenants: 2 scenarios\n\n"
        "law 1 (withdraw), 'two', seed 1:\n  law 2: a slot too many\n\n"
        "law 7 (honest clocks), 'three', seed 1:\n  written down: a second too few"
    )
    assert report.trace("three") == "the trace of three"
    assert report.trace("three", seed=2) == "kept this time"
    with pytest.raises(KeyError, match="'four' was not played"):
        report.trace("four")
    assert "the trace of two" in report.render(show_traces=True)


def test_a_wrong_deed_is_not_held_against_the_books_as_well() -> None:
    findings = Findings()
    findings.did(2, "first")
    findings.did(4, "what follows")
    findings.wrote(6, "and its books")
    assert findings == Findings(Finding(2, "first"))


def test_a_report_of_a_lane_that_breaks_everything_is_a_page() -> None:
    class Refusing(_Lacking):
        def __init__(self, nursery: trio.Nursery, **options: Any) -> None:
            super().__init__(nursery, **options)
            self.close()

    with pytest.raises(LawBroken) as raised:
        check_lane(Refusing, settlement="queue", seeds=[1])
    lines = str(raised.value).splitlines()
    assert len(lines) < 80
    assert lines[-1].startswith("and ")


def test_a_call_received_what_it_held_of_the_engine() -> None:
    async def main() -> None:
        caller = Caller("A", Ticket(weight=2), (answers(),))
        caller.calls, caller.began_at, caller.ended_at = 2, [0.0, 5.0], [3.0, 6.0]
        assert caller.received(0.0, 100.0) == 8.0
        assert caller.received(2.0, 5.5) == 3.0

    trio.run(main)
