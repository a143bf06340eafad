"""Holds a lane to the seven laws, and says what it found."""

from __future__ import annotations

import difflib
import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import trio

from embedkit import UsageError
from embedkit.testing.lane_under_test import FEATURES, SETTLEMENTS, Feature, MakeLane, Settlement
from embedkit.testing.laws import scenarios_of
from embedkit.testing.laws.scenario import TITLES, Method, Scenario
from embedkit.testing.production import play
from embedkit.testing.report import LawReport, LawVerdict
from embedkit.testing.stage import Stage
from embedkit.testing.trace import LawBroken

SEEDS = (1, 2, 3)
# A lane that stands still in so many scenarios, or cannot be made for them, stands still in others.
_ENOUGH = 3
# Real seconds for all of them; a lane that keeps the laws takes ten.
_REAL_SECONDS = 300.0
_METHODS: tuple[Method, ...] = ("run_nowait", "refresh")


def judge_lane(
    make_lane: MakeLane,
    *,
    settlement: Settlement,
    laws: Sequence[int] = (),
    seeds: Sequence[int] = SEEDS,
    without: Collection[Feature] = (),
) -> LawReport:
    """Play every scenario under every seed, in virtual time, and report. Not to be called inside a trio run.

    It ends, whatever the lane does: a scenario that does not come to an end is given up after some seconds of real
    time, and the rest of them after three that did not. Only code that never comes to a checkpoint can hold it up.

    Args:
        make_lane: Makes a new lane for each play.
        settlement: What the lane's kind declares.
        laws: Which laws; all, if none is named.
        seeds: Of the schedules.
        without: What the lane does not have. It is judged on the rest, and the report says so.

    Raises:
        UsageError: A word that is no settlement, law or feature.
    """
    _check_words(settlement, laws, without)
    missing = frozenset(without)
    chosen, left_out = _choose(make_lane, settlement, laws, missing)
    verdicts: list[LawVerdict] = []
    given_up = 0
    ends_at = time.perf_counter() + _REAL_SECONDS
    for number, scenario in enumerate(chosen):
        if given_up == _ENOUGH:
            left_out.append(f"{len(chosen) - number} scenarios, after {_ENOUGH} that could not be played to their end")
            break
        if time.perf_counter() > ends_at:
            left_out.append(f"{len(chosen) - number} scenarios: the others took {_REAL_SECONDS:g} s of real time")
            break
        for seed in seeds:
            verdict = play(scenario, make_lane, settlement, seed, without=missing)
            verdicts.append(verdict)
            if verdict.was_given_up:
                given_up += 1
                break
    return LawReport(tuple(verdicts), tuple(left_out))


def check_lane(
    make_lane: MakeLane,
    *,
    settlement: Settlement,
    laws: Sequence[int] = (),
    seeds: Sequence[int] = SEEDS,
    without: Collection[Feature] = (),
    show_traces: bool = False,
) -> LawReport:
    """``judge_lane``, for a test.

    Raises:
        LawBroken: The report; with ``show_traces``, the interleaving of each scenario that failed too.
        UsageError: A word that is no settlement, law or feature.
    """
    report = judge_lane(make_lane, settlement=settlement, laws=laws, seeds=seeds, without=without)
    if not report.is_kept:
        raise LawBroken(report.render(show_traces=show_traces))
    return report


def play_scenario(
    name: str,
    make_lane: MakeLane,
    *,
    settlement: Settlement,
    seed: int = SEEDS[0],
    without: Collection[Feature] = (),
) -> LawVerdict:
    """Play one scenario alone, under one schedule; its verdict has the trace.

    Raises:
        UsageError: There is no such scenario for this settlement, or a word is none.
    """
    _check_words(settlement, (), without)
    by_name = {one.name: one for one in scenarios_of() if one.settlement in (None, settlement)}
    if name not in by_name:
        near = difflib.get_close_matches(name, by_name, n=3, cutoff=0.4)
        like = f"; there is {', '.join(map(repr, near))}" if near else ""
        raise UsageError(f"no scenario is called {name!r} for settlement {settlement!r}{like}")
    return play(by_name[name], make_lane, settlement, seed, without=frozenset(without))


def scenario_names(*, settlement: Settlement, laws: Sequence[int] = ()) -> list[str]:
    """The names that ``play_scenario`` takes."""
    _check_words(settlement, laws, ())
    return [scenario.name for scenario in scenarios_of(*laws) if scenario.settlement in (None, settlement)]


def _choose(
    make_lane: MakeLane, settlement: Settlement, laws: Sequence[int], missing: frozenset[Feature]
) -> tuple[list[Scenario], list[str]]:
    """The scenarios to play; and in words, what is left out."""
    of_kind = [scenario for scenario in scenarios_of(*laws) if scenario.settlement in (None, settlement)]
    methods = _methods_of(make_lane, settlement)
    chosen: list[Scenario] = []
    lacking = Counter[str]()
    for scenario in of_kind:
        features, calls = scenario.needs & missing, scenario.calls - methods
        if features:
            lacking[f"the lane is without {' and '.join(sorted(features))}"] += 1
        elif calls:
            lacking[f"the lane has no {' and no '.join(sorted(calls))}"] += 1
        else:
            chosen.append(scenario)
    left_out = [f"{why}: {count} scenario{'s' if count > 1 else ''}" for why, count in sorted(lacking.items())]
    unused = sorted(missing - {feature for scenario in of_kind for feature in scenario.needs})
    return chosen, left_out + [f"the lane is without {feature}" for feature in unused]


def _methods_of(make_lane: MakeLane, settlement: Settlement) -> frozenset[Method]:
    """Which methods a lane has that it need not have. One that cannot be made has none; the scenarios say why."""
    found: set[Method] = set()

    async def look(stage: Stage) -> None:
        await trio.lowlevel.checkpoint()
        found.update(method for method in _METHODS if callable(getattr(stage.lane, method, None)))

    play(Scenario(6, "a look at the lane", look), make_lane, settlement, 0)
    return frozenset(found)


def _check_words(settlement: object, laws: Iterable[object], without: Collection[object]) -> None:
    if isinstance(without, str):
        raise UsageError(f"without is a collection of words, such as {{{without!r}}}; it is the string {without!r}")
    for what, found, known in (
        ("settlement", (settlement,), SETTLEMENTS),
        ("law", laws, tuple(TITLES)),
        ("feature that a lane can be without", without, FEATURES),
    ):
        for one in found:
            if one not in known:
                raise UsageError(f"{one!r} is no {what}: there is {', '.join(map(repr, known))}")
