from __future__ import annotations

import logging
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from embedkit.activity.ledger import Ledger
from embedkit.activity.recorder import Listener, Recorder
from embedkit.activity.report import ReportRow
from embedkit.activity.rows import SETTLED_OUTCOMES, TicketRow
from embedkit.clocks import Clocks

CLOCKS = Clocks(1.0, 2.0, 0.5)


def offer(ledger: Ledger, now: float = 100.0, **words: Any) -> TicketRow:
    ids: dict[str, Any] = {
        "lane": "box",
        "service": "library",
        "stage": "ingestion",
        "role": "embedding",
        "provider": "openai-compatible",
        "model": "minilm",
        "priority": "batch",
        "tenant": "acme",
        "run": "run-1",
        "weight": 1,
        "inputs": 5,
    }
    return ledger.open(**{**ids, **words}, now=now)


def only(rows: tuple[ReportRow, ...]) -> ReportRow:
    (row,) = rows
    return row


def test_a_ledger_is_a_recorder() -> None:
    recorder: Recorder = Ledger()
    assert recorder is not None


def test_a_ticket_from_offer_to_settlement() -> None:
    ledger = Ledger(wall_clock=lambda: 5_000.0)
    row = offer(ledger, now=100.0)
    assert (row.outcome, row.dispatched_at, ledger.open_rows()) == ("queued", None, (row,))

    ledger.dispatched(row, 101.0)
    assert (row.outcome, row.dispatched_at) == ("in-flight", 101.0)

    first = ledger.attempt_started(row, 1, 101.0)
    ledger.attempt_ended(first, 102.0, code="PROVIDER_BUSY", status=503)
    second = ledger.attempt_started(row, 2, 102.5)
    ledger.attempt_ended(second, 103.5, status=200)
    assert row.attempts == [first, second]
    assert (first.code, first.status, first.retry_delay) == ("PROVIDER_BUSY", 503, 0.5)
    assert (second.code, second.status, second.retry_delay) == (None, 200, None)

    ledger.settled(row, 103.5, outcome="succeeded", clocks=CLOCKS)
    assert (row.outcome, row.settled_at, row.clocks) == ("succeeded", 103.5, CLOCKS)
    assert (row.code, row.attribution, row.failure_stage) == (None, None, None)
    assert (ledger.open_rows(), ledger.settled_rows()) == ((), (row,))

    report = only(ledger.report())
    assert (report.calls, report.tickets, report.failures, report.outcomes) == (2, 1, 0, {"succeeded": 1})
    assert report.queue_wait.max == 1.0
    assert report.provider_time.mean == 2.0
    assert report.retry_wait.max == 0.5
    assert report.last_seen == 5_003.5


def test_a_delay_that_is_given_is_kept() -> None:
    ledger = Ledger()
    row = offer(ledger)
    first = ledger.attempt_started(row, 1, 101.0)
    ledger.attempt_ended(first, 102.0, code="PROVIDER_BUSY", retry_delay=7.0)
    ledger.attempt_started(row, 2, 109.5)
    assert first.retry_delay == 7.0


def test_d1_a_failure_carries_code_stage_and_attribution() -> None:
    ledger = Ledger()
    row = offer(ledger)
    ledger.settled(
        row,
        110.0,
        outcome="withdrawn",
        clocks=Clocks(10.0, 0.0, 0.0),
        code="QUEUE_WAIT_EXCEEDED",
        failure_stage="queue",
    )
    assert (row.code, row.failure_stage, row.attribution) == ("QUEUE_WAIT_EXCEEDED", "queue", "queue")
    row = offer(ledger)
    ledger.settled(row, 110.0, outcome="failed", clocks=CLOCKS, code="AUTH", attribution="provider")
    assert row.attribution == "provider"


@given(st.text(), st.text(), st.text(), st.text(), st.text(), st.text(), st.text())
def test_what_is_no_word_of_a_vocabulary_is_unknown(
    stage: str, priority: str, disposition: str, outcome: str, failure_stage: str, code: str, attribution: str
) -> None:
    ledger = Ledger()
    row = offer(ledger, stage=f"{stage}!", priority=f"{priority}!", disposition=f"{disposition}!")
    attempt = ledger.attempt_started(row, 1, 1.0)
    ledger.attempt_ended(attempt, 2.0, code=f"{code}!")
    ledger.settled(
        row,
        3.0,
        outcome=f"{outcome}!",
        clocks=CLOCKS,
        code=f"{code}!",
        failure_stage=f"{failure_stage}!",
        attribution=f"{attribution}!",
    )
    assert {row.stage, row.priority, row.disposition, row.outcome, row.failure_stage} == {"unknown"}
    assert {row.code, row.attribution, attempt.code} == {"unknown"}


@pytest.mark.parametrize("outcome", SETTLED_OUTCOMES)
def test_every_ending_is_counted_under_its_own_word(outcome: str) -> None:
    ledger = Ledger()
    ledger.settled(offer(ledger), 1.0, outcome=outcome, clocks=CLOCKS)
    report = only(ledger.report())
    assert report.outcomes == {outcome: 1}
    assert report.failures == (outcome == "failed")


def test_a_wait_that_was_given_up_counts_as_a_wait_and_not_as_a_call() -> None:
    ledger = Ledger()
    ledger.settled(offer(ledger), 1.0, outcome="withdrawn", clocks=Clocks(60.0, 0.0, 0.0))
    report = only(ledger.report())
    assert report.queue_wait.max == 60.0
    assert report.provider_time == report.retry_wait
    assert report.provider_time.mean is None
    assert report.calls == 0


def test_a_wait_of_zero_is_a_measured_zero() -> None:
    ledger = Ledger()
    row = offer(ledger)
    ledger.dispatched(row, 100.0)
    ledger.settled(row, 101.0, outcome="succeeded", clocks=Clocks(0.0, 1.0, 0.0))
    assert only(ledger.report()).queue_wait.p95 == 0.0


def test_an_event_told_twice_counts_once() -> None:
    ledger = Ledger()
    row = offer(ledger)
    for _ in range(2):
        ledger.dispatched(row, 1.0)
    for outcome in ("failed", "succeeded"):
        ledger.settled(row, 2.0, outcome=outcome, clocks=CLOCKS)
    ledger.dispatched(row, 3.0)
    report = only(ledger.report())
    assert (report.queued, report.in_flight, report.outcomes) == (0, 0, {"failed": 1})
    assert row.outcome == "failed"


def test_reports_stay_right_after_the_ring_has_forgotten() -> None:
    ledger = Ledger(keep=10)
    for number in range(1_000):
        row = offer(ledger)
        ledger.dispatched(row, 100.0)
        ledger.settled(row, 101.0, outcome="succeeded", clocks=Clocks(float(number), 1.0, 0.0))
    assert [row.id for row in ledger.settled_rows()] == list(range(991, 1_001))
    assert attrs.astuple(ledger.statistics()) == (0, 10, 990, 0)
    report = only(ledger.report())
    assert report.tickets == 1_000
    assert report.queue_wait.mean == 499.5
    assert report.queue_wait.p50 == pytest.approx(499, rel=1 / 32)
    assert report.queue_wait.max == 999.0


def test_reports_are_grouped_and_sorted() -> None:
    ledger = Ledger()
    for stage in ("query", "ingestion"):
        for priority in ("interactive", "batch"):
            offer(ledger, stage=stage, priority=priority, tenant=None)
            offer(ledger, stage=stage, priority=priority, tenant="other")
    groups = [(row.group.stage, row.group.priority, row.queued) for row in ledger.report()]
    assert groups == [
        ("ingestion", "batch", 2),
        ("ingestion", "interactive", 2),
        ("query", "batch", 2),
        ("query", "interactive", 2),
    ]


def test_the_json_of_a_report_row() -> None:
    ledger = Ledger(wall_clock=lambda: 5_000.0)
    row = offer(ledger, disposition="not-applicable")
    ledger.dispatched(row, 100.0)
    ledger.settled(row, 101.0, outcome="failed", clocks=Clocks(0.0, 1.0, 0.0), code="AUTH")
    once = {"mean": 1.0, "p50": 1.0, "p95": 1.0, "max": 1.0}
    never = dict.fromkeys(once, 0.0)
    assert only(ledger.report()).as_json() == {
        "service": "library",
        "stage": "ingestion",
        "role": "embedding",
        "provider": "openai-compatible",
        "model": "minilm",
        "class": "batch",
        "disposition": "not-applicable",
        "calls": 0,
        "tickets": 1,
        "queued": 0,
        "in_flight": 0,
        "failures": 1,
        "outcomes": {"failed": 1},
        "queue_wait": never,
        "provider_time": once,
        "retry_wait": never,
        "last_seen": 5_001.0,
    }


class Seen:
    def __init__(self) -> None:
        self.outcomes: list[str] = []

    def changed(self, row: TicketRow) -> None:
        self.outcomes.append(row.outcome)


class Broken:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def changed(self, row: TicketRow) -> None:
        raise self.error


def whole_life(ledger: Ledger) -> TicketRow:
    row = offer(ledger)
    ledger.dispatched(row, 101.0)
    attempt = ledger.attempt_started(row, 1, 101.0)
    ledger.attempt_ended(attempt, 102.0)
    ledger.settled(row, 102.0, outcome="succeeded", clocks=CLOCKS)
    return row


def test_a_listener_is_told_of_every_change_until_it_leaves() -> None:
    ledger, seen = Ledger(), Seen()
    ledger.attach(seen)
    whole_life(ledger)
    assert seen.outcomes == ["queued", "in-flight", "in-flight", "in-flight", "succeeded"]
    ledger.detach(seen)
    whole_life(ledger)
    assert len(seen.outcomes) == 5


def test_a_broken_listener_is_contained_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    ledger, seen = Ledger(), Seen()
    broken: Listener = Broken(LookupError("do not print: some input text"))
    ledger.attach(broken)
    ledger.attach(seen)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert whole_life(ledger).outcome == "succeeded"
    assert len(seen.outcomes) == 15
    assert ledger.statistics().listener_failures == 15
    (record,) = caplog.records
    assert "Broken failed (LookupError)" in record.getMessage()
    assert "input text" not in record.getMessage()


def test_an_interrupt_in_a_listener_is_not_contained() -> None:
    ledger = Ledger()
    ledger.attach(Broken(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        offer(ledger)


class Conservation(RuleBasedStateMachine):
    """Whatever happens in whatever order: opened = queued + in flight + settled, by word."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(keep=3)
        self.now = 0.0
        self.opened = 0
        self.dispatched = 0
        self.rows: list[TicketRow] = []
        self.settled: dict[str, int] = {}

    @rule(priority=st.sampled_from(["interactive", "batch", "probe", "other"]))
    def open(self, priority: str) -> None:
        self.rows.append(offer(self.ledger, now=self.tick(), priority=priority))
        self.opened += 1

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def dispatch(self, data: st.DataObject) -> None:
        self.ledger.dispatched(data.draw(st.sampled_from(self.rows)), self.tick())

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), outcome=st.sampled_from(SETTLED_OUTCOMES))
    def settle(self, data: st.DataObject, outcome: str) -> None:
        row = data.draw(st.sampled_from(self.rows))
        if row.settled_at is None:
            self.settled[outcome] = self.settled.get(outcome, 0) + 1
        self.ledger.settled(row, self.tick(), outcome=outcome, clocks=CLOCKS)

    @invariant()
    def adds_up(self) -> None:
        report = self.ledger.report()
        assert sum(row.tickets for row in report) == self.opened
        assert sum(row.queued for row in report) == sum(row.outcome == "queued" for row in self.rows)
        assert sum(row.in_flight for row in report) == sum(row.outcome == "in-flight" for row in self.rows)
        for outcome in SETTLED_OUTCOMES:
            assert sum(row.outcomes.get(outcome, 0) for row in report) == self.settled.get(outcome, 0)
        statistics = self.ledger.statistics()
        assert statistics.open + statistics.kept + statistics.forgotten == self.opened

    def tick(self) -> float:
        self.now += 1.0
        return self.now


TestConservation = Conservation.TestCase
TestConservation.settings = settings(max_examples=40)
