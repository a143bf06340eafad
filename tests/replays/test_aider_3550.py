"""Aider-AI/aider#3550: status 200, and in place of an answer ``{"error": {"code": 429}}``.

Right: classified as the rate limit that it is, its hint included.
"""

from __future__ import annotations

import pytest
import trio
from asking_replay import KINDS, asked_engine
from replay_lane import embed, ollama_lane, openai_lane

from embedkit.ask import Failure, ask_one
from embedkit.errors import ProviderBusy
from embedkit.testing.engine_rules import Behaviour, Rule, always, error_in_200, nth
from embedkit.testing.scripted_engine import open_scripted_engine


@pytest.mark.parametrize("open_lane", [openai_lane, ollama_lane])
@pytest.mark.parametrize("code", [429, "429", "rate_limit_exceeded"])
async def test_an_error_inside_a_200_is_a_rate_limit(open_lane: type, code: int | str) -> None:
    rules = [Rule(always, error_in_200(code))]
    async with open_scripted_engine(rules=rules) as engine, open_lane(engine) as lane:
        with pytest.raises(ProviderBusy) as caught:
            await embed(lane, ["one"])
        assert caught.value.durable_code == "KB_VECTOR_EMBED_PROVIDER_BUSY"
        assert engine.log.requests == 1


async def test_its_hint_is_waited(autojump_clock: trio.testing.MockClock) -> None:
    limited = Behaviour(body=b'{"error": {"code": 429}}', headers=(("Retry-After", "12"),), computes=False)
    async with open_scripted_engine(rules=[Rule(nth(1), limited)]) as engine, openai_lane(engine) as lane:
        began_at = trio.current_time()
        await embed(lane, ["one"])
        assert trio.current_time() - began_at == pytest.approx(12.0)
        assert engine.log.requests == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_of_a_chat_model_it_is_one_too(kind: str, autojump_clock: trio.testing.MockClock) -> None:
    rules = [Rule(always, error_in_200(429))]
    async with open_scripted_engine(rules=rules) as served, asked_engine(kind, served) as engine:
        result = await ask_one(engine, "q", "box")
    assert isinstance(result, Failure)
    assert (result.kind, result.attempts) == ("rate-limit", 2)
