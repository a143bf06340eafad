"""openai/openai-node#1825: headers, half the body, then silence, for ever.

Right: the attempt's limit covers the body to its last byte; at the limit it is a provider timeout.
"""

from __future__ import annotations

import pytest
import trio
from asking_replay import KINDS, asked_engine
from replay_lane import embed, ollama_lane, openai_lane

from embedkit.ask import Failure, ask_one
from embedkit.errors import ProviderTimeout, is_provider_timeout
from embedkit.testing.engine_rules import (
    Behaviour,
    Rule,
    nth,
    stall_after_headers,
    stall_before_reply,
    stall_mid_body,
)
from embedkit.testing.scripted_engine import open_scripted_engine


@pytest.mark.parametrize("open_lane", [openai_lane, ollama_lane])
@pytest.mark.parametrize("stalled", [stall_mid_body(), stall_after_headers(), stall_before_reply()])
async def test_a_body_that_stalls_ends_as_a_timeout_at_the_limit(
    open_lane: type, stalled: Behaviour, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_scripted_engine(rules=[Rule(nth(1), stalled)]) as engine, open_lane(engine) as lane:
        began_at = trio.current_time()
        with pytest.raises(ProviderTimeout) as caught:
            await embed(lane, ["one", "two"], timeout=300.0)
        assert is_provider_timeout(caught.value)
        assert trio.current_time() - began_at == pytest.approx(300.0)
        assert (await embed(lane, ["one", "two"])).shape == (2, 8)
        assert engine.log.requests == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_so_does_the_body_of_a_chat_model(kind: str, autojump_clock: trio.testing.MockClock) -> None:
    async with (
        open_scripted_engine(rules=[Rule(nth(1), stall_mid_body())]) as served,
        asked_engine(kind, served, timeout=120.0) as engine,
    ):
        result = await ask_one(engine, "q", "box")
        assert isinstance(result, Failure)
        assert (result.kind, result.attempts) == ("timeout", 1)
        assert result.elapsed == pytest.approx(120.0)
