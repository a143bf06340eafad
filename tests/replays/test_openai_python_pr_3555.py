"""openai/openai-python PR 3555: 429 with a Retry-After above the client's cap, answered by a short backoff of
its own.

Right: clamped or given up, by policy; never a shorter private backoff; and the sleep can be cancelled.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio
from asking_replay import KINDS, asked_engine
from replay_lane import embed, openai_lane

from embedkit.ask import Answer, Failure, ask_one
from embedkit.errors import ProviderBusy
from embedkit.providers.retry import openai_compatible_policy
from embedkit.testing.engine_rules import Rule, always, busy, nth
from embedkit.testing.scripted_engine import open_scripted_engine

ASKED = "600"


@pytest.mark.parametrize("priority", ["batch", "interactive"])
async def test_clamped(priority: str, autojump_clock: trio.testing.MockClock) -> None:
    rules = [Rule(nth(1), busy(retry_after=ASKED))]
    async with open_scripted_engine(rules=rules) as engine, openai_lane(engine) as lane:
        await embed(lane, ["one"], priority=priority)
        first, second = engine.log.records
        assert second.arrived_at - first.arrived_at == pytest.approx(30.0)


async def test_given_up(autojump_clock: trio.testing.MockClock) -> None:
    policy = openai_compatible_policy(over_cap="give-up")
    rules = [Rule(always, busy(retry_after=ASKED))]
    async with open_scripted_engine(rules=rules) as engine, openai_lane(engine, retry=policy) as lane:
        began_at = trio.current_time()
        with pytest.raises(ProviderBusy) as caught:
            await embed(lane, ["one"])
        assert caught.value.retry_after == 600.0
        assert trio.current_time() == began_at
        assert engine.log.requests == 1


async def test_an_engine_that_never_has_time_is_asked_eleven_times(
    autojump_clock: trio.testing.MockClock,
) -> None:
    rules = [Rule(always, busy(retry_after=ASKED))]
    async with open_scripted_engine(rules=rules) as engine, openai_lane(engine) as lane:
        with pytest.raises(ProviderBusy):
            await embed(lane, ["one"])
        arrivals = [record.arrived_at for record in engine.log.records]
        gaps = [later - earlier for earlier, later in pairwise(arrivals)]
        assert gaps == pytest.approx([30.0] * 10)


async def test_the_sleep_can_be_cancelled(autojump_clock: trio.testing.MockClock) -> None:
    rules = [Rule(nth(1), busy(retry_after=ASKED))]
    async with open_scripted_engine(rules=rules) as engine, openai_lane(engine) as lane:
        began_at = trio.current_time()
        with trio.move_on_after(10.0) as scope:
            await embed(lane, ["one"])
        assert scope.cancelled_caught
        assert trio.current_time() - began_at == pytest.approx(10.0)
        # The engine's wish holds for the whole lane, though the one who was told of it has left.
        await embed(lane, ["two"])
        assert trio.current_time() - began_at == pytest.approx(30.0)
        assert engine.log.requests == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("over_cap", ["clamp", "give-up"])
async def test_of_a_chat_model_the_same(kind: str, over_cap: str, autojump_clock: trio.testing.MockClock) -> None:
    rules = [Rule(nth(1), busy(retry_after=ASKED))]
    async with (
        open_scripted_engine(rules=rules) as served,
        asked_engine(kind, served, over_cap=over_cap) as engine,
    ):
        result = await ask_one(engine, "q", "box")
    if over_cap == "clamp":
        assert isinstance(result, Answer)
        assert result.elapsed == pytest.approx(30.0)
    else:
        assert isinstance(result, Failure)
        assert (result.kind, result.retry_after, result.elapsed) == ("rate-limit", 600.0, 0.0)
