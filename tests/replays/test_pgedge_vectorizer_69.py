"""pgEdge/pgedge-vectorizer#69: an engine that allows three requests a minute and says so in Retry-After.

Right: the batch stays whole, the hint is waited, and no failure is charged. The hint is the lane's: nobody else asks
the engine in the meantime.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from one_repository import numbered, one_repository, sync
from replay_lane import embed, ollama_lane, openai_lane
from trio.testing import MockClock, wait_all_tasks_blocked

from embedkit.admission.ticket import Ticket
from embedkit.testing.engine_rules import Rule, busy, nth, quota
from embedkit.testing.scripted_engine import open_scripted_engine


@pytest.fixture
def patient_clock() -> MockClock:
    # Jumps only when nothing has happened for a while, since the sweep's threads do not hold a virtual clock back.
    return MockClock(autojump_threshold=0.05)


@pytest.mark.parametrize("kind", ["openai-compatible", "ollama"])
async def test_the_batch_stays_whole_and_waits_and_no_failure_is_charged(
    kind: str, tmp_path: Path, patient_clock: MockClock
) -> None:
    async with open_scripted_engine(rules=[quota(3, 60.0)]) as engine:
        settings = one_repository(tmp_path, engine, numbered(14), kind=kind, batch=2, max_retry_after=60.0)
        report = await sync(settings)
        records = engine.log.records

    assert (report.outcome, report.code, report.embedded) == ("complete", None, 14)
    answered = [record for record in records if record.outcome == "answered"]
    refused = [record for record in records if record.outcome == "refused"]
    # Seven batches, three a minute: each minute's fourth request is told to wait, and nobody asks in vain beside it.
    assert (len(answered), len(refused)) == (7, 2)
    assert report.provider_calls == 9
    assert all(record.inputs == 2 for record in records)
    for told in refused:
        again = next(record for record in records if record.number == told.number + 1)
        assert again.hashes == told.hashes
        assert 59.0 <= again.arrived_at - told.arrived_at <= 61.0
    bought = [hash_ for record in answered for hash_ in record.hashes]
    assert len(set(bought)) == len(bought) == 14
    assert 118.0 <= report.clocks.retry_wait <= 122.0


@pytest.mark.parametrize("open_lane", [openai_lane, ollama_lane])
async def test_a_hint_to_one_holds_back_the_whole_lane(open_lane: type, autojump_clock: MockClock) -> None:
    async with (
        open_scripted_engine(slots=4, rules=[Rule(nth(1), busy(retry_after="20"))]) as engine,
        open_lane(engine, capacity=4) as lane,
        trio.open_nursery() as nursery,
    ):
        told = Ticket(priority="batch")
        others = [Ticket(priority=priority) for priority in ("batch", "interactive", "batch")]

        async def one(ticket: Ticket) -> None:
            await lane.run(lambda connection: connection.embed(["a text"]), ticket)

        nursery.start_soon(one, told)
        await trio.sleep(5.0)
        for ticket in others:
            nursery.start_soon(one, ticket)
        await wait_all_tasks_blocked()
        assert engine.log.requests == 1
        await trio.sleep(14.0)
        assert engine.log.requests == 1
        await engine.wait_for_requests(5)

    assert told.clocks.queue_wait == 0.0
    assert told.clocks.retry_wait == pytest.approx(20.0)
    for ticket in others:
        assert ticket.clocks.queue_wait == pytest.approx(15.0)
        assert ticket.clocks.retry_wait == 0.0
        assert ticket.attempts == 1


async def test_who_leaves_a_held_lane_is_withdrawn_and_never_sent(autojump_clock: MockClock) -> None:
    async with (
        open_scripted_engine(slots=2, rules=[Rule(nth(1), busy(retry_after="20"))]) as engine,
        openai_lane(engine, capacity=2) as lane,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(embed, lane, ["told"])
        await trio.sleep(5.0)
        with trio.move_on_after(5.0) as left:
            await embed(lane, ["held"], priority="interactive")
        assert left.cancelled_caught
        assert lane.statistics().totals.withdrawn == 1
        await engine.wait_for_requests(2)
        await trio.sleep(60.0)
        assert engine.log.requests == 2
