from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from probe_world import GOOD, Gate, World, open_world

from embedkit.errors import ConnectionRefused, EmbedkitError, ProviderTimeout, UsageError
from embedkit.probing.rules import (
    BUSY_BEHIND_BATCH,
    FLOOR_SECONDS,
    NEVER_ASKED,
    OVER_BUDGET,
    REAL_WORK,
    Verdict,
)
from embedkit.settings import ProbeSettings

Clock = trio.testing.MockClock


def fails_with(error: Exception) -> Callable[[], Any]:
    async def script() -> Any:
        await trio.lowlevel.checkpoint()
        raise error

    return script


async def collect(world: World, into: list[Verdict]) -> None:
    into.append(await world.broker.probe("box"))


async def test_two_who_ask_cost_one_call(autojump_clock: Clock) -> None:
    async def slowly() -> Any:
        await trio.sleep(20)
        return GOOD

    verdicts: list[Verdict] = []
    async with open_world(slowly) as world:
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(collect, world, verdicts)
        assert world.probes == 1
    assert sorted(verdict.shared for verdict in verdicts) == [False, True, True, True, True]
    assert {(verdict.verdict, verdict.reason, verdict.age, verdict.elapsed) for verdict in verdicts} == {
        ("healthy", None, 0.0, 20.0)
    }


async def test_an_answer_is_reused_while_fresh_then_asked_for_again(autojump_clock: Clock) -> None:
    async with open_world() as world:
        await world.broker.probe("box")
        await trio.sleep(59)
        assert await world.broker.probe("box") == Verdict("box", "healthy", None, 59.0, True, 0.0)
        assert world.probes == 1
        await trio.sleep(FLOOR_SECONDS)
        assert not (await world.broker.probe("box")).shared
        assert world.probes == 2


async def test_real_work_is_a_healthy_probe(autojump_clock: Clock) -> None:
    async with open_world() as world:
        await world.work(1.0, "interactive")
        await trio.sleep(10)
        assert await world.broker.probe("box") == Verdict("box", "healthy", REAL_WORK, 10.0, True, 0.0)
        assert world.probes == 0


async def test_failed_real_work_is_none(autojump_clock: Clock) -> None:
    async with open_world() as world:
        with pytest.raises(ConnectionRefused):
            await world.work(error=ConnectionRefused("nobody there"))
        await world.broker.probe("box")
        assert world.probes == 1


async def test_an_engine_busy_with_a_batch_is_left_alone(autojump_clock: Clock) -> None:
    async with open_world() as world:
        await world.work(183.0)
        world.nursery.start_soon(world.work, 183.0)
        await trio.sleep(120)
        assert await world.broker.probe("box") == Verdict("box", "healthy", BUSY_BEHIND_BATCH, 120.0, True, 0.0)
        assert world.probes == 0


async def test_nobody_is_left_alone_for_a_batch_that_outlived_its_timeout(autojump_clock: Clock) -> None:
    async with open_world(timeout=100.0, capacity=2) as world:
        await world.work(183.0)
        world.nursery.start_soon(world.work, 183.0)
        await trio.sleep(99)
        assert (await world.broker.probe("box")).reason == BUSY_BEHIND_BATCH
        await trio.sleep(1)
        assert (await world.broker.probe("box")).reason is None
        assert world.probes == 1


async def test_an_interactive_call_that_is_out_excuses_nothing(autojump_clock: Clock) -> None:
    async with open_world(capacity=2) as world:
        await world.work(183.0)
        world.nursery.start_soon(world.work, 183.0, "interactive")
        await trio.sleep(120)
        await world.broker.probe("box")
        assert world.probes == 1


async def test_probes_are_held_to_a_share_of_real_dispatches(autojump_clock: Clock) -> None:
    async with open_world(rules=ProbeSettings(fresh=0.0)) as world:
        await world.broker.probe("box")
        for _ in range(3):
            await world.works(4)
            await trio.sleep(1)
            for _ in range(5):
                await trio.sleep(0.1)
                verdict = await world.broker.probe("box")
        assert (verdict.verdict, verdict.reason) == ("healthy", OVER_BUDGET)
        # The first needs no budget, and counts against the twelve that follow.
        assert world.probes == 3


async def test_dispatches_of_more_than_an_hour_ago_pay_for_nothing(autojump_clock: Clock) -> None:
    async with open_world(rules=ProbeSettings(fresh=0.0)) as world:
        await world.works(100)
        await trio.sleep(3660)
        await world.broker.probe("box")
        await trio.sleep(1)
        assert (await world.broker.probe("box")).reason == OVER_BUDGET
        assert world.probes == 1


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (fails_with(ConnectionRefused("nobody there")), "KB_VECTOR_EMBED_CONNECTION_REFUSED"),
        (fails_with(ProviderTimeout("late", code="ETIMEDOUT")), "KB_VECTOR_EMBED_PROVIDER_TIMEOUT"),
        (trio.sleep_forever, "KB_VECTOR_EMBED_PROVIDER_TIMEOUT"),
    ],
)
async def test_one_failed_probe_makes_it_degraded(
    script: Callable[[], Any], reason: str, autojump_clock: Clock
) -> None:
    async with open_world(script) as world:
        verdict = await world.broker.probe("box")
        assert (verdict.verdict, verdict.reason, verdict.shared) == ("degraded", reason, False)
        assert (await world.broker.probe("box")).shared


@pytest.mark.parametrize(
    "vectors", [[[0.5, math.nan]], [[0.5, math.inf]], [[0.5]], [[]], [[0.5, 0.5, 0.5]], [[0.5, 0.5], [0.5, 0.5]]]
)
async def test_a_vector_that_could_not_be_stored_is_no_health(vectors: Any, autojump_clock: Clock) -> None:
    async def script() -> Any:
        await trio.lowlevel.checkpoint()
        return vectors

    async with open_world(script) as world:
        world.dimension = 2
        verdict = await world.broker.probe("box")
        assert (verdict.verdict, verdict.reason) == ("degraded", "KB_VECTOR_EMBED_RESPONSE_INVALID")


async def test_what_the_queue_did_says_nothing_of_the_engine(autojump_clock: Clock) -> None:
    async with open_world() as world:
        world.nursery.start_soon(world.work, 500.0)
        await trio.sleep(1)
        verdict = await world.broker.probe("box")
        assert (verdict.verdict, verdict.reason) == ("unknown", "KB_VECTOR_EMBED_QUEUE_WAIT_EXCEEDED")
        assert verdict.elapsed == 120.0
        # No call was made, so none was paid for.
        await trio.sleep(400)
        await world.broker.probe("box")
        assert world.probes == 0  # the work that ended meanwhile answers
        await trio.sleep(61)
        assert (await world.broker.probe("box")).verdict == "healthy"
        assert world.probes == 1


async def fails(world: World, seconds: float) -> None:
    with pytest.raises(ConnectionRefused):
        await world.work(seconds, error=ConnectionRefused("nobody there"))


async def test_where_the_queue_ate_the_probe_real_work_answers(autojump_clock: Clock) -> None:
    async with open_world(trio.sleep_forever) as world:
        world.nursery.start_soon(world.work, 90.0)
        await trio.testing.wait_all_tasks_blocked()
        assert await world.broker.probe("box") == Verdict("box", "healthy", REAL_WORK, 30.0, False, 120.0)


async def test_a_deadline_that_the_queue_ate_says_nothing_of_the_engine_either(autojump_clock: Clock) -> None:
    async with open_world(trio.sleep_forever) as world:
        world.nursery.start_soon(fails, world, 90.0)
        await trio.testing.wait_all_tasks_blocked()
        verdict = await world.broker.probe("box")
        assert (verdict.verdict, verdict.reason) == ("unknown", "KB_VECTOR_EMBED_DEADLINE_EXCEEDED")
        assert (verdict.elapsed, world.probes) == (120.0, 1)


async def test_a_closed_lane_leaves_it_unknown(autojump_clock: Clock) -> None:
    async with open_world() as world:
        world.lane.close()
        verdict = await world.broker.probe("box")
        assert (verdict.verdict, verdict.reason) == ("unknown", "KB_VECTOR_EMBED_LANE_CLOSED")


async def test_a_probe_is_of_its_own_class_in_the_ledger(autojump_clock: Clock) -> None:
    gate = Gate()
    async with open_world(gate) as world:
        world.nursery.start_soon(world.work, 5.0)
        await trio.testing.wait_all_tasks_blocked()
        world.nursery.start_soon(world.broker.probe, "box")
        await trio.testing.wait_all_tasks_blocked()
        assert world.lane.statistics().queued == {"probe": 1}
        gate.opened.set()


async def test_health_endpoints_start_nothing(autojump_clock: Clock) -> None:
    async with open_world() as world:
        assert world.broker.verdict("box") == Verdict("box", "unknown", NEVER_ASKED, None, True, 0.0)
        assert await world.broker.read("box") == world.broker.verdict("box")
        await world.work()
        await trio.sleep(5)
        assert world.broker.verdict("box") == Verdict("box", "healthy", REAL_WORK, 5.0, True, 0.0)
        assert world.probes == 0
        assert world.prepared == 0


async def test_a_provider_that_nobody_opened_has_no_verdict(autojump_clock: Clock) -> None:
    async with open_world() as world:
        with pytest.raises(UsageError, match="no lane of provider 'other' is open, so it has no verdict; open: box"):
            await world.broker.probe("other")


class TestCancellation:
    """An asker only leaves; nobody who joined ever hangs, and no second call is made."""

    async def test_before_it_asked(self, autojump_clock: Clock) -> None:
        async with open_world() as world:
            with trio.CancelScope() as scope:
                scope.cancel()
                await world.broker.probe("box")
            await trio.testing.wait_all_tasks_blocked()
            assert scope.cancelled_caught
            assert world.probes == 0

    @pytest.mark.parametrize("leaver", [0, 1, 2])
    async def test_while_it_waits(self, leaver: int, autojump_clock: Clock) -> None:
        gate = Gate()
        verdicts: list[Verdict] = []
        async with open_world(gate) as world:
            async with trio.open_nursery() as nursery:
                for asker in range(3):
                    scope = await nursery.start(self._asks, world, verdicts)
                    if asker == leaver:
                        leaving = scope
                leaving.cancel()
                await trio.testing.wait_all_tasks_blocked()
                gate.opened.set()
            assert world.probes == 1
        assert [verdict.verdict for verdict in verdicts] == ["healthy"] * 2

    async def test_all_of_them_and_the_answer_serves_the_next(self, autojump_clock: Clock) -> None:
        gate = Gate()
        async with open_world(gate) as world:
            with trio.move_on_after(1):
                await world.broker.probe("box")
            with trio.move_on_after(1):
                await world.broker.probe("box")
            gate.opened.set()
            await trio.testing.wait_all_tasks_blocked()
            assert (await world.broker.probe("box")).reason is None
            assert world.probes == 1

    async def test_while_its_probe_is_queued(self, autojump_clock: Clock) -> None:
        async with open_world() as world:
            world.nursery.start_soon(world.work, 30.0)
            await trio.testing.wait_all_tasks_blocked()
            with trio.move_on_after(1):
                await world.broker.probe("box")
            verdict = await world.broker.probe("box")
            assert (verdict.verdict, verdict.elapsed) == ("healthy", 29.0)
            assert world.probes <= 1  # real work ended in the same step, and may have answered

    async def test_in_the_step_in_which_the_answer_came(self, autojump_clock: Clock) -> None:
        gate = Gate()
        verdicts: list[Verdict] = []
        async with open_world(gate) as world:
            async with trio.open_nursery() as nursery:
                scope = await nursery.start(self._asks, world, verdicts)
                await nursery.start(self._asks, world, verdicts)
                gate.opened.set()
                while world.broker.verdict("box").verdict == "unknown":
                    await trio.lowlevel.checkpoint()
                scope.cancel()
            assert world.probes == 1
        assert 1 <= len(verdicts) <= 2

    async def test_of_the_engine_wakes_all_who_wait(self, autojump_clock: Clock) -> None:
        verdicts: list[Verdict] = []
        async with trio.open_nursery() as outside, open_world(trio.sleep_forever) as world:
            for _ in range(3):
                outside.start_soon(collect, world, verdicts)
            await trio.testing.wait_all_tasks_blocked()
        assert [(verdict.verdict, verdict.reason) for verdict in verdicts] == [("unknown", "cut-off")] * 3

    async def _asks(self, world: World, into: list[Verdict], *, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
        with trio.CancelScope() as scope:
            task_status.started(scope)
            await collect(world, into)


async def test_a_provider_that_cannot_be_called_at_all_is_each_askers_own_error(autojump_clock: Clock) -> None:
    errors: list[EmbedkitError] = []

    async def asks(world: World) -> None:
        try:
            await world.broker.probe("box")
        except EmbedkitError as error:
            errors.append(error)

    async with open_world() as world:
        world.refuses = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(asks, world)
            nursery.start_soon(asks, world)
        assert world.probes == 0
    assert len({id(error) for error in errors}) == 2


async def test_a_provider_that_raises_what_it_should_not_has_a_verdict_and_ends_nobody(autojump_clock: Clock) -> None:
    async with open_world(fails_with(ZeroDivisionError())) as world:
        verdict = await world.broker.probe("box")
    assert (verdict.verdict, verdict.reason) == ("degraded", "KB_VECTOR_EMBED_PROVIDER_FAILED")
