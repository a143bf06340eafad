"""Law 7, sharper: what error, ledger and attribution say of who took the time."""

from __future__ import annotations

import pytest
import trio
from our_lanes import SETTLEMENTS, open_house
from trio.testing import MockClock

from embedkit import (
    Circuit,
    Clocks,
    DeadlineExceeded,
    EmbedkitError,
    ProviderFailure,
    ProviderTimeout,
    QueueWaitExceeded,
)
from embedkit.testing import Settlement
from embedkit.testing.stage import answers, fails


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_d_1_a_failure_that_the_queue_caused_says_so(settlement: Settlement, autojump_clock: MockClock) -> None:
    async with open_house(settlement, autojump_clock) as house:
        await house.stage.park("A", answers(10.0))
        caller = await house.stage.park("B", fails(ProviderFailure("no"), 2.0))
        await caller.back.wait()
        error = caller.error
        assert isinstance(error, EmbedkitError)
        assert (error.code, error.attribution, error.clocks) == ("PROVIDER_FAILED", "queue", Clocks(10.0, 2.0, 0.0))
        row = house.row()
        assert (row.code, row.attribution, row.clocks) == (
            "KB_VECTOR_EMBED_PROVIDER_FAILED",
            "queue",
            Clocks(10.0, 2.0, 0.0),
        )
        assert row.failure_stage == "provider"


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_d_1_a_deadline_that_the_queue_ate_has_its_own_code_and_sends_nothing(
    settlement: Settlement, autojump_clock: MockClock
) -> None:
    circuit = Circuit()
    async with open_house(settlement, autojump_clock) as house:
        await house.stage.park("A", answers(10.0))
        caller = await house.stage.park("B", deadline_at=3.0, circuit=circuit, on_provider_timeout=circuit.trip)
        await trio.sleep(60.0)
        error = caller.error
        assert type(error) is QueueWaitExceeded
        assert error.durable_code == "KB_VECTOR_EMBED_QUEUE_WAIT_EXCEEDED"
        assert (error.attribution, error.clocks, error.attempts) == ("queue", Clocks(3.0, 0.0, 0.0), 0)
        row = house.row(0)
        assert (row.outcome, row.code, row.failure_stage, row.attempts) == (
            "withdrawn",
            "KB_VECTOR_EMBED_QUEUE_WAIT_EXCEEDED",
            "queue",
            [],
        )
        assert (caller.calls, circuit.is_open) == (0, False)


@pytest.mark.parametrize("settlement", SETTLEMENTS)
@pytest.mark.parametrize(("waited", "attribution"), [(5.0, "queue"), (1.0, "provider")])
async def test_d_1_a_deadline_that_passes_while_the_call_is_out_says_who_took_the_time(
    settlement: Settlement, waited: float, attribution: str, autojump_clock: MockClock
) -> None:
    circuit = Circuit()
    async with open_house(settlement, autojump_clock) as house:
        await house.stage.park("A", answers(waited))
        caller = await house.stage.park(
            "B", answers(60.0), deadline_at=8.0, circuit=circuit, on_provider_timeout=circuit.trip
        )
        await caller.back.wait()
        error = caller.error
        assert type(error) is DeadlineExceeded
        assert error.durable_code == "KB_VECTOR_EMBED_DEADLINE_EXCEEDED"
        assert (error.attribution, error.clocks) == (attribution, Clocks(waited, 8.0 - waited, 0.0))
        assert error.attempts == 1
        assert not circuit.is_open


async def test_d_2_what_the_queue_ate_can_be_put_off_and_is_told_from_the_provider_s(
    autojump_clock: MockClock,
) -> None:
    """What a sweep needs to keep a streak where it was: class, code, attribution, and that it is deferrable."""
    async with open_house("provider", autojump_clock) as house:
        await house.stage.park("A", answers(5.0))
        eaten = await house.stage.park("B", deadline_at=3.0)
        nearly = await house.stage.park("C", answers(9.0), deadline_at=7.0)
        await nearly.back.wait()
        for caller, kind in ((eaten, QueueWaitExceeded), (nearly, DeadlineExceeded)):
            error = caller.error
            assert type(error) is kind
            assert isinstance(error, EmbedkitError)
            assert (error.attribution, error.deferrable, error.retryable) == ("queue", True, True)


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_an_idle_lane_dispatches_on_the_next_step_with_a_measured_wait_of_zero(
    settlement: Settlement, autojump_clock: MockClock
) -> None:
    async with open_house(settlement, autojump_clock) as house:
        caller = await house.stage.park("A", answers(2.0))
        await caller.back.wait()
        row = house.row()
        assert (row.enqueued_at, row.dispatched_at, row.settled_at) == (0.0, 0.0, 2.0)
        assert caller.ticket.clocks == row.clocks == Clocks(0.0, 2.0, 0.0)


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_a_limit_names_itself_and_bounds_one_attempt_from_its_dispatch(
    settlement: Settlement, autojump_clock: MockClock
) -> None:
    async with open_house(settlement, autojump_clock) as house:
        await house.stage.park("A", answers(5.0))
        caller = await house.stage.park("B", answers(9.0), timeout=2.0, limit_name="sweep.request_timeout")
        await caller.back.wait()
        assert type(caller.error) is ProviderTimeout
        assert str(caller.error) == "no complete answer within 2 s (sweep.request_timeout)"
        assert caller.back_at == 7.0
        assert caller.error.clocks == Clocks(5.0, 2.0, 0.0)
