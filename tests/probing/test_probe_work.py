from __future__ import annotations

import math

import pytest

from embedkit.activity.ledger import Ledger
from embedkit.activity.rows import TicketRow
from embedkit.clocks import Clocks
from embedkit.probing.rules import NEVER, WINDOW_MINUTES
from embedkit.probing.work import News, Work

EPOCH = 1_700_000_040.0  # a whole minute
MINUTE = int(EPOCH // 60)


class Scene:
    """A ledger that ``work`` listens to, and a clock that is set by hand: trio's, 0 at the epoch."""

    def __init__(self, timeout: float = math.inf) -> None:
        self.now = 0.0
        self.work = Work(timeout)
        self.told: list[bool] = []
        self.ledger = Ledger(wall_clock=lambda: EPOCH + self.now)
        self.ledger.attach(self)

    def changed(self, row: TicketRow) -> None:
        self.told.append(self.work.changed(row))

    def offer(self, priority: str = "batch", stage: str = "ingestion") -> TicketRow:
        return self.ledger.open(
            lane="box",
            service="library",
            stage=stage,
            role="embedding",
            provider="box",
            model="minilm",
            priority=priority,
            tenant=None,
            run=None,
            weight=1,
            inputs=1,
            now=self.now,
        )

    def settle(self, row: TicketRow, outcome: str = "succeeded", provider_time: float = 0.0) -> None:
        self.ledger.settled(row, self.now, outcome=outcome, clocks=Clocks(0.0, provider_time, 0.0))


def test_a_dispatch_counts_in_its_own_minute_by_the_wall_clock_and_once() -> None:
    scene = Scene()
    row = scene.offer()
    scene.now = 59.0
    scene.ledger.dispatched(row, scene.now)
    second = scene.offer()
    scene.now = 60.0
    scene.ledger.dispatched(second, scene.now)
    scene.ledger.attempt_ended(scene.ledger.attempt_started(second, 1, scene.now), scene.now)
    scene.ledger.attempt_started(second, 2, scene.now)
    scene.settle(second)
    assert scene.work.news(EPOCH).dispatches == {MINUTE: 1, MINUTE + 1: 1}
    assert scene.work.dispatches(EPOCH + 60) == 2
    assert scene.work.dispatches(EPOCH + 60 * WINDOW_MINUTES) == 1


@pytest.mark.parametrize("outcome", ["withdrawn", "shed"])
def test_what_was_never_dispatched_is_no_news(outcome: str) -> None:
    scene = Scene()
    scene.settle(scene.offer(), outcome)
    assert scene.told == [False, False]
    assert scene.work.news(EPOCH) == News()


def test_a_batch_call_is_out_from_its_attempts_start_to_its_end_and_not_while_it_sleeps() -> None:
    scene = Scene(timeout=100.0)
    row = scene.offer()
    scene.ledger.dispatched(row, scene.now)
    assert scene.work.busy_until() == NEVER
    scene.now = 10.0
    attempt = scene.ledger.attempt_started(row, 1, scene.now)
    assert scene.work.busy_until() == 110.0
    scene.ledger.attempt_ended(attempt, 20.0, code="PROVIDER_BUSY")
    assert scene.work.busy_until() == NEVER
    scene.ledger.attempt_started(row, 2, 30.0)
    assert scene.work.busy_until() == 130.0
    scene.settle(row, "aborted")
    assert scene.work.busy_until() == NEVER
    assert scene.work.success_at == NEVER


def test_of_several_batch_calls_the_youngest_counts_and_people_do_not() -> None:
    scene = Scene(timeout=100.0)
    for started, priority in ((1.0, "batch"), (5.0, "batch"), (9.0, "interactive")):
        row = scene.offer(priority)
        scene.ledger.dispatched(row, started)
        scene.ledger.attempt_started(row, 1, started)
    assert scene.work.busy_until() == 105.0


def test_the_slowest_is_the_p95_of_the_newest_calls_that_succeeded() -> None:
    scene = Scene()
    assert scene.work.slowest() == 0.0
    for seconds in [1000.0, *(float(number) for number in range(1, 65))]:
        row = scene.offer()
        scene.ledger.dispatched(row, scene.now)
        scene.settle(row, "failed", 5000.0)
        row = scene.offer()
        scene.ledger.dispatched(row, scene.now)
        scene.settle(row, "succeeded", seconds)
    assert scene.work.slowest() == 61.0


def test_minutes_out_of_the_window_are_forgotten() -> None:
    scene = Scene()
    for minute in range(1000):
        scene.now = 60.0 * minute
        row = scene.offer()
        scene.ledger.dispatched(row, scene.now)
    assert scene.work.dispatches(EPOCH + scene.now) == WINDOW_MINUTES
    assert len(scene.work.news(EPOCH).dispatches) <= 2 * WINDOW_MINUTES


def test_news_is_on_the_wall_clock() -> None:
    scene = Scene(timeout=100.0)
    row = scene.offer()
    scene.ledger.dispatched(row, 1.0)
    scene.now = 3.0
    scene.settle(row, "succeeded", 2.0)
    news = scene.work.news(EPOCH)
    assert (news.success_at, news.slowest, news.busy_until) == (EPOCH + 3.0, 2.0, NEVER)


def test_a_chat_models_answer_is_work_and_no_sign_that_the_engine_embeds() -> None:
    scene = Scene()
    row = scene.offer("interactive", stage="ask")
    scene.ledger.dispatched(row, scene.now)
    scene.now = 90.0
    scene.settle(row, provider_time=90.0)
    assert (scene.work.success_at, scene.work.slowest()) == (NEVER, 0.0)
    assert scene.work.dispatches(EPOCH + 90.0) == 1
