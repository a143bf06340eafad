from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedkit.sweep.agenda import LEASED_SECONDS, LEAST_SECONDS, Agenda, Key
from embedkit.sweep.outcome import Outcome, RepositoryReport, SweepReport

A, B = ("acme", "a"), ("acme", "b")


def report(**outcomes: Outcome) -> SweepReport:
    items = [
        RepositoryReport("acme", name, outcome, code="KB_X" if outcome == "deferred" else None, next_due_in=100.0)
        for name, outcome in outcomes.items()
    ]
    return SweepReport("run", "completed", None, items)


def agenda() -> Agenda:
    return Agenda(pause=30.0, hold=600.0)


def test_records_say_what_is_due_and_what_was_never_swept_is_due_at_once() -> None:
    plan = agenda()
    records: dict[Key, float | None] = {A: None, B: 50.0}
    assert plan.due(records, 10.0) == {A}
    assert plan.due(records, 50.0) == {A, B}
    plan.note(report(a="complete"), 10.0)
    assert plan.next_at({A: 200.0, B: 50.0}) == 50.0
    assert plan.next_at({}) == math.inf


def test_a_deferral_arms_one_probe_and_a_healthy_one_grants_each_that_waits_one_early_turn() -> None:
    plan = agenda()
    plan.note(report(a="deferred", b="complete"), 10.0)
    records: dict[Key, float | None] = {A: 1000.0, B: 1000.0}
    assert plan.next_at(records) == plan.probe_at == 40.0
    assert plan.due(records, 500.0) == set()
    plan.probed(healthy=True)
    assert plan.due(records, 40.0) == {A}
    plan.note(report(a="deferred"), 41.0)
    assert plan.probe_at == 71.0
    plan.probed(healthy=True)
    assert plan.due(records, 72.0) == set(), "a second early turn in one episode"
    plan.note(report(a="complete"), 1000.0)
    plan.note(report(a="deferred"), 3000.0)
    plan.probed(healthy=True)
    assert plan.due({A: 9000.0}, 3030.0) == {A}, "the next episode has one of its own"


def test_a_probe_that_is_not_healthy_is_the_only_one_of_its_deferral() -> None:
    plan = agenda()
    plan.note(report(a="deferred"), 10.0)
    plan.probed(healthy=False)
    assert plan.next_at({A: 1000.0}) == 1000.0
    assert plan.due({A: 1000.0}, 999.0) == set()
    assert plan.due({A: 1000.0}, 1000.0) == {A}


@pytest.mark.parametrize(
    ("code", "wait"),
    [("KB_REPOSITORY_LEASED", LEASED_SECONDS), ("KB_VECTOR_EMBED_PROVIDER_CIRCUIT_OPEN", 600.0)],
)
def test_what_could_not_begin_is_held_back_though_its_record_says_that_it_is_due(code: str, wait: float) -> None:
    plan = agenda()
    item = RepositoryReport("acme", "a", "deferred", code=code, next_due_in=0.0)
    plan.note(SweepReport("run", "deferred", None, [item]), 10.0)
    plan.probed(healthy=False)
    assert plan.due({A: 5.0}, 10.0 + wait - 0.1) == set()
    assert plan.due({A: 5.0}, 10.0 + wait) == {A}


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["complete", "partial-progress", "deferred", "failed", "aborted"]), st.booleans()),
        max_size=30,
    )
)
def test_it_neither_spins_nor_sleeps_for_ever(steps: list[tuple[Outcome, bool]]) -> None:
    """A repository is never tried twice within a second unless a probe says so, and always has a next turn."""
    plan, now, due_at = agenda(), 0.0, 0.0
    for outcome, healthy in steps:
        plan.note(report(a=outcome), now)
        assert plan.due({A: due_at}, now) == set()
        at = plan.next_at({A: due_at})
        assert now + LEAST_SECONDS <= at < math.inf
        now = at
        if plan.probe_at <= now:
            plan.probed(healthy=healthy)
