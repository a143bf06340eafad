"""The outcome table of a repository."""

from __future__ import annotations

import pytest

from embedkit.clocks import ZERO
from embedkit.knowledge.storing.repositories import Last, RepositoryRecord
from embedkit.sweep.outcome import Outcome
from embedkit.sweep.schedule import jitter
from embedkit.sweep.successor import NEXT, Swept, successor

BASE = 1800.0
RECORD = RepositoryRecord(1, 1, "acme", "api", revision="old", generation=1, streak=1, next_due_at=7.0, batch_ceiling=4)
FIRST = BASE + jitter("acme", "api", BASE)


@pytest.mark.parametrize(
    ("outcome", "revision", "streak", "due"),
    [
        ("complete", "new", 0, 100.0 + BASE),
        ("partial-progress", "old", 0, 100.0),
        ("deferred", "old", 1, 100.0 + 2 * FIRST),
        ("failed", "old", 2, 100.0 + 4 * FIRST),
        ("aborted", "old", 1, 7.0),
    ],
)
def test_what_follows_each_outcome(outcome: Outcome, revision: str, streak: int, due: float) -> None:
    last = Last(outcome, None, None, None, ZERO, 100.0)
    swept = Swept(revision="new", generation=2, outstanding=3, too_large=None, last=last)
    after = successor(RECORD, outcome, swept, cadence=BASE, cap=1e9, batch=8)
    assert (after.revision, after.streak) == (revision, streak)
    assert after.next_due_at == pytest.approx(due)
    assert (after.generation, after.succeeded) == ((2, True) if outcome == "complete" else (1, False))
    assert (after.outstanding, after.last) == (3, last)
    assert after.batch_ceiling == (None if NEXT[outcome].streak == "ends" else 4)


def test_what_was_too_large_halves_the_next_tickets() -> None:
    last = Last("complete", None, None, None, ZERO, 100.0)
    swept = Swept(revision="new", generation=2, outstanding=0, too_large=6, last=last)
    assert successor(RECORD, "complete", swept, cadence=BASE, cap=1e9, batch=8).batch_ceiling == 3
