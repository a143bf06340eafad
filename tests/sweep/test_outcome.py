from __future__ import annotations

from collections.abc import Sequence

import pytest

from embedkit import errors
from embedkit.clocks import Attribution, Clocks
from embedkit.errors import DeadlineExceeded, EmbedkitError, ProviderCircuitOpen
from embedkit.knowledge.storing.leases import Leased
from embedkit.sweep.outcome import (
    Outcome,
    RepositoryReport,
    Status,
    SweepReport,
    Trip,
    deciding,
    is_deferrable,
    outcome_of,
    status_of,
)


def late(attribution: Attribution) -> DeadlineExceeded:
    error = DeadlineExceeded("late")
    error.attribution = attribution
    return error


DEFERRABLE = [
    errors.ProviderTimeout("t"),
    errors.ProviderCircuitOpen("o"),
    errors.ProviderBusy("b"),
    errors.ModelNotResident("m"),
    errors.ConnectionRefused("c"),
    errors.TransportClosed("x"),
    errors.LaneFull("f"),
    errors.QueueWaitExceeded("q"),
    errors.TicketWithdrawn("w"),
    late("queue"),
    Leased("l"),
]
NOT_DEFERRABLE = [
    errors.ProviderAuthError("a"),
    errors.ResponseInvalid("r"),
    errors.ContentRefused("i"),
    errors.ProviderFailure("p"),
    late("provider"),
    errors.StoreError("s"),
    errors.StoreFull("s"),
    errors.StoreLocked("s"),
    errors.StoreError("a store's own time-out", code="KB_STORE_TIMEOUT"),
    errors.SourceError("g"),
    errors.UsageError("u"),
    errors.SpaceMismatch("m"),
]


def kind(error: object) -> str:
    return type(error).__name__


@pytest.mark.parametrize("error", DEFERRABLE, ids=kind)
def test_what_puts_work_off(error: EmbedkitError) -> None:
    assert is_deferrable(error)


@pytest.mark.parametrize("error", NOT_DEFERRABLE, ids=kind)
def test_what_is_the_repositorys_own_failure(error: EmbedkitError) -> None:
    assert not is_deferrable(error)
    assert outcome_of([error], sliced=False, outstanding=3) == "failed"
    assert outcome_of([*DEFERRABLE, error], sliced=True, outstanding=3) == "failed"


@pytest.mark.parametrize(
    ("found", "sliced", "outstanding", "outcome"),
    [
        ([], False, 0, "complete"),
        ([], True, 5, "partial-progress"),
        ([], True, 0, "partial-progress"),
        ([], False, 2, "partial-progress"),
        ([errors.ProviderTimeout("t"), ProviderCircuitOpen("o")], False, 2, "deferred"),
        ([errors.ConnectionRefused("c")], True, 0, "deferred"),
        ([Leased("l")], False, 2, "aborted"),
        ([errors.LaneClosed("l")], False, 2, "aborted"),
        ([errors.StoreFull("f"), Leased("l")], False, 2, "failed"),
    ],
)
def test_the_table(found: Sequence[EmbedkitError], sliced: bool, outstanding: int, outcome: Outcome) -> None:
    assert outcome_of(found, sliced=sliced, outstanding=outstanding) == outcome
    assert outcome_of(found[::-1], sliced=sliced, outstanding=outstanding) == outcome


def test_the_error_that_decides() -> None:
    timeout, shed, auth = errors.ProviderTimeout("t"), ProviderCircuitOpen("o"), errors.ProviderAuthError("a")
    assert deciding([]) is None
    assert deciding([shed, shed]) is shed
    assert deciding([shed, timeout, shed]) is timeout
    assert deciding([shed, timeout, auth]) is auth


def report(outcome: Outcome, *, succeeded: bool = True) -> RepositoryReport:
    return RepositoryReport("a", "api", outcome, succeeded=succeeded)


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        ([], "completed"),
        (["complete"], "completed"),
        (["complete", "not-due"], "completed"),
        (["not-due"], "completed"),
        (["partial-progress", "complete"], "partial"),
        (["deferred", "partial-progress"], "deferred"),
        (["failed", "deferred", "complete"], "failed"),
        (["aborted", "failed"], "aborted"),
    ],
)
def test_one_word_for_a_run(outcomes: Sequence[Outcome], status: Status) -> None:
    assert status_of([report(outcome) for outcome in outcomes]) == status
    assert status_of([report(outcome) for outcome in reversed(outcomes)]) == status


def test_a_run_that_attempted_nothing_though_something_never_succeeded_is_starved() -> None:
    assert status_of([report("not-due"), report("not-due", succeeded=False)]) == "starved"
    assert status_of([report("complete"), report("not-due", succeeded=False)]) == "completed"


def test_the_shape_of_a_report() -> None:
    """The keys and types of ``sync --json``."""
    one = RepositoryReport(
        "acme", "api", "deferred", code="KB_X", reason="because", clocks=Clocks(1.0, 2.0, 3.0), skipped={"binary": 2}
    )
    trip = Trip("box", "KB_VECTOR_EMBED_PROVIDER_TIMEOUT", "acme", "api", 3)
    document = SweepReport("run", "deferred", trip, [one]).as_json()
    assert list(document) == ["run", "status", "circuit", "repositories"]
    assert document["circuit"] == {
        "provider": "box",
        "code": "KB_VECTOR_EMBED_PROVIDER_TIMEOUT",
        "tripped_by": {"tenant": "acme", "name": "api"},
        "shed": 3,
    }
    (found,) = document["repositories"]
    promised = {
        "tenant": "acme", "name": "api", "outcome": "deferred", "code": "KB_X", "reason": "because",
        "attribution": None, "revision": None, "documents": 0, "skipped": {"binary": 2}, "chunks": 0, "embedded": 0,
        "reused": 0, "deleted": 0, "fenced": 0, "provider_calls": 0,
        "clocks": {"queue_wait": 1.0, "provider_time": 2.0, "retry_wait": 3.0}, "elapsed": 0.0, "next_due_in": None,
    }  # fmt: skip
    assert {key: found[key] for key in promised} == promised
    assert SweepReport("run", "completed", None, []).as_json()["circuit"] is None
