"""Law 5, sharper: the policies of our own providers, inside the ticket."""

from __future__ import annotations

import pytest
import trio
from our_lanes import open_house
from trio.testing import MockClock

from embedkit import Circuit, ModelNotResident, ProviderBusy, ProviderTimeout, QueueWaitExceeded
from embedkit.providers.retry import INTERACTIVE_ATTEMPT_LIMIT, ollama_policy, openai_compatible_policy
from embedkit.testing.stage import answers, fails


def _timeouts(count: int) -> list[ProviderTimeout]:
    return [ProviderTimeout(f"attempt {number + 1}") for number in range(count)]


async def test_ac_6_two_timeouts_and_an_answer_are_no_trip(autojump_clock: MockClock) -> None:
    circuit = Circuit()
    async with open_house("queue", autojump_clock, retry=openai_compatible_policy(draw=lambda: 1.0)) as house:
        steps = [*map(fails, _timeouts(2)), answers()]
        caller = await house.stage.park("A", *steps, circuit=circuit, on_provider_timeout=circuit.trip)
        behind = await house.stage.park("B", circuit=circuit)
        await behind.back.wait()
        assert (caller.value, caller.calls, circuit.is_open) == ("A", 3, False)
        assert house.endings == {"succeeded": 2}
        assert [attempt.code for attempt in house.row(0).attempts] == ["KB_VECTOR_EMBED_PROVIDER_TIMEOUT"] * 2 + [None]
        assert behind.began_at == [caller.ended_at[-1]]


async def test_ac_6_three_timeouts_are_one_trip(autojump_clock: MockClock) -> None:
    heard: list[Exception] = []
    errors = _timeouts(3)
    async with open_house("queue", autojump_clock, retry=openai_compatible_policy(draw=lambda: 1.0)) as house:
        caller = await house.stage.park("A", *map(fails, errors), on_provider_timeout=heard.append)
        await caller.back.wait()
        assert caller.error is errors[2]
        assert heard == [errors[2]]
        assert errors[2].attempts == 3


async def test_ac_6_model_loads_are_tried_again_without_a_trip(autojump_clock: MockClock) -> None:
    heard: list[Exception] = []
    for policy in (openai_compatible_policy, ollama_policy):
        async with open_house("queue", autojump_clock, retry=policy()) as house:
            steps = [fails(ModelNotResident("loading")), answers()]
            caller = await house.stage.park("A", *steps, on_provider_timeout=heard.append)
            await caller.back.wait()
            assert (caller.value, heard) == ("A", [])


@pytest.mark.parametrize("priority", ["batch", "interactive"])
async def test_ollama_never_tries_a_timeout_again(priority: str, autojump_clock: MockClock) -> None:
    heard: list[Exception] = []
    async with open_house("provider", autojump_clock, retry=ollama_policy()) as house:
        (error,) = _timeouts(1)
        caller = await house.stage.park("A", fails(error), priority=priority, on_provider_timeout=heard.append)
        await caller.back.wait()
        assert (caller.error, heard, caller.calls) == (error, [error], 1)


async def test_a_trip_ends_the_sleep_in_the_same_step_and_the_last_error_stands(autojump_clock: MockClock) -> None:
    circuit, error = Circuit(), ProviderBusy("later", retry_after=30.0)
    async with open_house("queue", autojump_clock, retry=openai_compatible_policy()) as house:
        caller = await house.stage.park("A", fails(error), circuit=circuit, priority="batch")
        await trio.sleep(5.0)
        circuit.trip(ProviderTimeout("another's"))
        await caller.back.wait()
        assert (caller.error, caller.back_at, caller.calls) == (error, 5.0, 1)
        assert (error.clocks.queue_wait, error.clocks.provider_time, error.clocks.retry_wait) == (0.0, 1.0, 4.0)  # type: ignore[union-attr]


async def test_an_attempt_s_limit_does_not_run_on_in_the_sleep_after_it(autojump_clock: MockClock) -> None:
    """A limit of 2 s, a failure after 1 s, a sleep over the limit's instant, and a second attempt of its own 2 s."""
    async with open_house("queue", autojump_clock, retry=openai_compatible_policy()) as house:
        steps = [fails(ProviderBusy("later", retry_after=7.0)), answers(1.5)]
        caller = await house.stage.park("A", *steps, timeout=2.0, priority="batch")
        await caller.back.wait()
        assert (caller.value, caller.back_at) == ("A", 9.5)


async def test_limits_of_successive_tickets_in_one_slot_are_each_their_own(autojump_clock: MockClock) -> None:
    heard: list[Exception] = []
    async with open_house("queue", autojump_clock) as house:
        made = []
        for number, (limit, seconds) in enumerate([(5.0, 1.0), (None, 50.0), (2.0, 3.0), (5.0, 4.0), (1.0, None)]):
            step = answers(seconds if seconds is not None else 99.0)
            made.append(await house.stage.park(str(number), step, timeout=limit, on_provider_timeout=heard.append))
        await made[-1].back.wait()
        await trio.sleep(50.0)  # idle, with no timer left over
        after = await house.stage.park("after", answers(3.0), timeout=4.0)
        await after.back.wait()
        assert [caller.value is not None for caller in (*made, after)] == [True, True, False, True, False, True]
        assert [type(error) for error in heard] == [ProviderTimeout] * 2


async def test_a_hint_of_the_engine_holds_back_its_whole_lane(autojump_clock: MockClock) -> None:
    """It asked us to stay away, not one ticket: whoever sleeps, arrives or has its slot free waits for that instant."""
    async with open_house("queue", autojump_clock, capacity=4, retry=openai_compatible_policy()) as house:
        await trio.sleep(10.0)
        warm = [await house.stage.park(name, answers(0.5)) for name in "VW"]  # two slots that will be asleep
        busy = fails(ProviderBusy("later", retry_after=30.0))
        asked = await house.stage.park("A", busy, answers(), priority="batch")
        out = await house.stage.park("out", answers(5.0))
        await trio.sleep(2.0)
        behind = [await house.stage.park(name) for name in "BCD"]
        late = await house.stage.park("late", deadline_at=20.0)
        assert [caller.calls for caller in (*warm, *behind)] == [1, 1, 0, 0, 0]
        for caller in (asked, out, late, *behind):
            await caller.back.wait()
        assert asked.began_at == [10.0, 41.0]
        assert out.value == "out"
        assert [caller.began_at for caller in behind] == [[41.0]] * 3
        assert (type(late.error), late.back_at) == (QueueWaitExceeded, 20.0)
        house.check_over()


async def test_a_retry_without_a_hint_holds_back_nobody(autojump_clock: MockClock) -> None:
    async with open_house(
        "queue", autojump_clock, capacity=2, retry=openai_compatible_policy(draw=lambda: 1.0)
    ) as house:
        first = await house.stage.park("A", fails(ProviderBusy("later")), answers())
        await trio.sleep(1.5)
        second = await house.stage.park("B")
        assert (first.calls, second.calls) == (1, 1)
        await first.back.wait()
        assert first.value == "A"


async def test_the_policy_s_own_limit_is_for_people_without_a_deadline(autojump_clock: MockClock) -> None:
    async with open_house("queue", autojump_clock, retry=openai_compatible_policy(draw=lambda: 1.0)) as house:
        first = await house.stage.park("A", answers(99.0), answers(1.0))
        await first.back.wait()
        assert first.ended_at[0] == INTERACTIVE_ATTEMPT_LIMIT
        assert first.value == "A"
        second = await house.stage.park("B", answers(20.0), deadline_at=trio.current_time() + 50.0)
        third = await house.stage.park("C", answers(20.0), timeout=2.0, priority="batch")
        await second.back.wait()
        assert second.value == "B"
        await third.back.wait()
        assert str(third.error) == "no complete answer within 2 s"


async def test_whichever_limit_is_shorter_is_the_one_that_is_named(autojump_clock: MockClock) -> None:
    async with open_house("queue", autojump_clock, retry=openai_compatible_policy(draw=lambda: 1.0)) as house:
        for limit, named in ((90.0, "the retry policy's limit for an attempt of class interactive"), (3.0, "mine")):
            caller = await house.stage.park("A", answers(99.0), timeout=limit, limit_name="mine")
            await caller.back.wait()
            seconds = min(limit, INTERACTIVE_ATTEMPT_LIMIT)
            assert str(caller.error) == f"no complete answer within {seconds:g} s ({named})"
