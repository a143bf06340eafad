"""Chat over HTTP, for each adapter, against an engine on loopback, in virtual time."""

from __future__ import annotations

import json

import pytest
import trio
from asking_world import ADAPTERS, KEYS, answer, asking, chat_body, failure, provider_of
from trio.testing import MockClock

from embedkit.ask import ask_one
from embedkit.settings import PanelMember
from embedkit.testing import Rule, open_scripted_engine
from embedkit.testing.engine_rules import (
    Behaviour,
    always,
    busy,
    cut_mid_body,
    error_in_200,
    half_json,
    hold,
    html,
    noted_in,
    nth,
    stall_after_headers,
    stall_before_reply,
    stall_mid_body,
    status,
)
from embedkit.testing.engine_wire import EngineRequest

every_adapter = pytest.mark.parametrize("kind", ADAPTERS)


@pytest.fixture
def autojump_clock() -> MockClock:
    # Real sockets: a moment's grace before the clock jumps.
    return MockClock(autojump_threshold=0.02)


@every_adapter
async def test_a_question_is_answered(kind: str) -> None:
    seen: list[EngineRequest] = []
    async with (
        open_scripted_engine(rules=[noted_in(seen)]) as served,
        asking({"box": provider_of(kind, served)}) as engine,
    ):
        said = answer(await ask_one(engine, "Is it fair?", "box"))
    assert (said.text, said.model, said.attempts) == ("scripted was asked: Is it fair?", "scripted", 1)
    assert said.usage is not None
    assert (said.usage.prompt, said.usage.answer) == (3, 6)
    assert (seen[0].document["stream"], seen[0].document["model"]) == (False, "scripted")
    key = {"grok": "xai-secret-key", "openrouter": "sk-or-secret-key"}.get(kind)
    assert seen[0].headers.get("authorization") == (None if key is None else f"Bearer {key}")


async def test_an_alias_asks_its_own_model_with_fields_of_the_settings() -> None:
    seen: list[EngineRequest] = []
    async with open_scripted_engine(rules=[noted_in(seen)]) as served:
        described = provider_of("openrouter", served, body={"max_tokens": 99, "stream": True})
        panel = (PanelMember(provider="router", model="maker/big", alias="big"),)
        async with asking({"router": described}, panel=panel) as engine:
            said = answer(await ask_one(engine, "hi", "big"))
    assert (said.alias, said.model) == ("big", "maker/big")
    assert (seen[0].document["max_tokens"], seen[0].document["stream"]) == (99, False)


@every_adapter
@pytest.mark.parametrize("stalled", [stall_before_reply(), stall_after_headers(), stall_mid_body()])
async def test_silence_is_a_timeout_at_the_limit(kind: str, stalled: Behaviour, autojump_clock: MockClock) -> None:
    async with (
        open_scripted_engine(rules=[Rule(always, stalled)]) as served,
        asking({"box": provider_of(kind, served, timeout=90.0)}) as engine,
    ):
        failed = failure(await ask_one(engine, "hi", "box"))
        assert (failed.kind, failed.retryable, failed.attempts) == ("timeout", False, 1)
        assert failed.elapsed == pytest.approx(90.0)
        assert "providers.box.timeout" in failed.message
        assert served.log.requests == 1


@every_adapter
async def test_a_socket_cut_on_200_is_network_and_tried_once_more(kind: str, autojump_clock: MockClock) -> None:
    async with (
        open_scripted_engine(rules=[Rule(always, cut_mid_body())]) as served,
        asking({"box": provider_of(kind, served)}) as engine,
    ):
        failed = failure(await ask_one(engine, "hi", "box"))
        assert (failed.kind, failed.retryable, failed.attempts) == ("network", True, 2)
        assert failed.elapsed == pytest.approx(2.0)


@every_adapter
async def test_a_socket_cut_on_500_keeps_its_status(kind: str, autojump_clock: MockClock) -> None:
    broken = Behaviour(status=500, says="it broke", computes=False, sends="half", then="close")
    async with (
        open_scripted_engine(rules=[Rule(always, broken)]) as served,
        asking({"box": provider_of(kind, served)}) as engine,
    ):
        failed = failure(await ask_one(engine, "hi", "box"))
        assert (failed.kind, failed.status, failed.attempts) == ("upstream", 500, 2)


@every_adapter
@pytest.mark.parametrize(("hint", "waited"), [("7", 7.0), ("600", 30.0), ("9" * 400, 2.0), (None, 2.0)])
async def test_a_hint_is_waited(kind: str, hint: str | None, waited: float, autojump_clock: MockClock) -> None:
    async with (
        open_scripted_engine(rules=[Rule(nth(1), busy(retry_after=hint))]) as served,
        asking({"box": provider_of(kind, served)}) as engine,
    ):
        said = answer(await ask_one(engine, "hi", "box"))
        assert said.attempts == 2
        assert said.elapsed == pytest.approx(waited)


@every_adapter
async def test_a_rate_limit_that_stays_is_tried_once_more(kind: str, autojump_clock: MockClock) -> None:
    async with (
        open_scripted_engine(rules=[Rule(always, busy(retry_after="7"))]) as served,
        asking({"box": provider_of(kind, served)}) as engine,
    ):
        failed = failure(await ask_one(engine, "hi", "box"))
        assert (failed.kind, failed.status, failed.attempts, failed.retry_after) == ("rate-limit", 429, 2, 7.0)


async def test_a_hint_over_the_cap_may_end_it(autojump_clock: MockClock) -> None:
    async with (
        open_scripted_engine(rules=[Rule(always, busy(retry_after="600"))]) as served,
        asking({"box": provider_of("openai-compatible", served, over_cap="give-up")}) as engine,
    ):
        failed = failure(await ask_one(engine, "hi", "box"))
        assert (failed.kind, failed.attempts, failed.elapsed) == ("rate-limit", 1, 0.0)


@every_adapter
@pytest.mark.parametrize(
    ("behaviour", "kind_of_failure", "attempts"),
    [
        (status(401), "auth", 1),
        (status(404, "model not found"), "not-found", 1),
        (status(400, "messages: unknown role"), "config", 1),
        (status(500), "upstream", 2),
        (status(503), "upstream", 2),
        (status(402, "insufficient balance"), "rate-limit", 1),
        (error_in_200(429), "rate-limit", 2),
        (error_in_200(502, "bad gateway"), "upstream", 2),
        (error_in_200(401), "auth", 1),
        (html(), "parse", 1),
        (half_json(), "parse", 1),
        (Behaviour(body=b"{}"), "parse", 1),
        (Behaviour(body=b'{"choices": [], "message": 4}'), "parse", 1),
        (Behaviour(body=b"[1]"), "parse", 1),
    ],
)
async def test_a_refusal_has_its_kind(
    kind: str, behaviour: Behaviour, kind_of_failure: str, attempts: int, autojump_clock: MockClock
) -> None:
    async with (
        open_scripted_engine(rules=[Rule(always, behaviour)]) as served,
        asking({"box": provider_of(kind, served)}) as engine,
    ):
        failed = failure(await ask_one(engine, "hi", "box"))
        assert (failed.kind, failed.attempts, served.log.requests) == (kind_of_failure, attempts, attempts)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (chat_body("", "length"), "truncated"),
        (chat_body(None, "length"), "truncated"),
        (b'{"choices": [{"finish_reason": "length"}]}', "truncated"),
        (chat_body(" \n"), "empty"),
        (chat_body(None), "empty"),
        (chat_body("I will look at the code first."), "empty"),
        (b'{"choices": [{"error": {"code": 429, "message": "slow down"}}]}', "rate-limit"),
    ],
)
async def test_what_openai_engines_say_without_answering(body: bytes, kind: str, autojump_clock: MockClock) -> None:
    async with (
        open_scripted_engine(rules=[Rule(always, Behaviour(body=body))]) as served,
        asking({"box": provider_of("openai-compatible", served)}) as engine,
    ):
        failed = failure(await ask_one(engine, "hi", "box"))
        assert (failed.kind, failed.attempts) == (kind, 1 if kind == "truncated" else 2)


async def test_ollama_says_its_length_otherwise(autojump_clock: MockClock) -> None:
    body = json.dumps({"message": {"content": ""}, "done_reason": "length"}).encode()
    async with (
        open_scripted_engine(rules=[Rule(always, Behaviour(body=body))]) as served,
        asking({"box": provider_of("ollama", served)}) as engine,
    ):
        assert failure(await ask_one(engine, "hi", "box")).kind == "truncated"


async def test_content_in_parts_is_joined() -> None:
    parts = [{"type": "text", "text": "AP"}, {"type": "image"}, {"type": "text", "text": "PROVE"}]
    body = json.dumps({"choices": [{"message": {"content": parts}}]}).encode()
    async with (
        open_scripted_engine(rules=[Rule(always, Behaviour(body=body))]) as served,
        asking({"box": provider_of("openai-compatible", served)}) as engine,
    ):
        assert answer(await ask_one(engine, "hi", "box")).text == "APPROVE"


async def test_a_large_answer_is_read_off_the_loop() -> None:
    async with (
        open_scripted_engine(says=lambda _: "word " * 200_000) as served,
        asking({"box": provider_of("openai-compatible", served)}) as engine,
    ):
        assert len(answer(await ask_one(engine, "hi", "box")).text) == 1_000_000


@every_adapter
async def test_a_deadline_spans_attempts_and_sleeps(kind: str, autojump_clock: MockClock) -> None:
    async with (
        open_scripted_engine(rules=[Rule(always, busy(retry_after="20"))]) as served,
        asking({"box": provider_of(kind, served)}) as engine,
    ):
        failed = failure(await ask_one(engine, "hi", "box", deadline=10.0))
        # The retry could not even begin in time, so it is not waited for.
        assert (failed.kind, failed.attempts, failed.elapsed) == ("rate-limit", 1, 0.0)


@every_adapter
async def test_a_deadline_that_passes_is_a_timeout(kind: str, autojump_clock: MockClock) -> None:
    async with (
        open_scripted_engine(rules=[Rule(always, stall_mid_body())]) as served,
        asking({"box": provider_of(kind, served)}) as engine,
    ):
        failed = failure(await ask_one(engine, "hi", "box", deadline=10.0))
        assert (failed.kind, failed.attempts) == ("timeout", 1)
        assert failed.elapsed == pytest.approx(10.0)
        assert "deadline" in failed.message


async def test_who_waits_in_the_lane_is_not_sent_after_its_deadline(autojump_clock: MockClock) -> None:
    async with (
        open_scripted_engine(rules=[Rule(always, hold(trio.Event()))]) as served,
        asking({"box": provider_of("ollama", served, timeout=100.0)}) as engine,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(ask_one, engine, "first", "box")
        await served.wait_for_requests(1)
        failed = failure(await ask_one(engine, "second", "box", deadline=5.0))
        assert (failed.kind, failed.attempts, failed.code) == ("timeout", 0, "QUEUE_WAIT_EXCEEDED")
        assert served.log.requests == 1


async def test_nobody_listens(autojump_clock: MockClock) -> None:
    async with open_scripted_engine() as served:
        described = provider_of("grok", served)
    async with asking({"box": described}) as engine:
        failed = failure(await ask_one(engine, "hi", "box"))
        assert (failed.kind, failed.attempts) == ("network", 2)


async def test_a_key_that_is_unset_is_said_and_nothing_is_sent() -> None:
    async with open_scripted_engine() as served, asking({"box": provider_of("grok", served)}, environ={}) as engine:
        failed = failure(await ask_one(engine, "hi", "box"))
        assert (failed.kind, failed.attempts, served.log.requests) == ("missing-auth", 0, 0)
        assert "XAI_API_KEY" in failed.message


async def test_neither_key_nor_question_nor_the_engines_words_are_shown(autojump_clock: MockClock) -> None:
    words = f"the question was: secret plan; the key was {KEYS['XAI_API_KEY']}"
    async with (
        open_scripted_engine(rules=[Rule(always, status(400, words))]) as served,
        asking({"box": provider_of("grok", served)}) as engine,
    ):
        failed = failure(await ask_one(engine, "secret plan", "box"))
        shown = repr(failed) + json.dumps(failed.as_json())
        assert "secret" not in shown.replace("--show-engine-words", "")


@pytest.mark.parametrize("kind", ["openai-compatible", "ollama"])
async def test_one_ledger_knows_of_the_question(kind: str) -> None:
    async with open_scripted_engine() as served, asking({"box": provider_of(kind, served)}) as engine:
        await ask_one(engine, "hi", "box")
        (row,) = engine.ledger.report()
        assert (row.group.stage, row.group.role, row.group.provider) == ("ask", "chat", "box")
        assert (row.tickets, row.calls, row.failures) == (1, 1, 0)


@every_adapter
@pytest.mark.parametrize("phase", ["connecting", "no headers", "headers", "body", "retry sleep"])
async def test_cancelling_leaves_nothing(kind: str, phase: str, autojump_clock: MockClock) -> None:
    behaviours = {
        "connecting": stall_before_reply(),
        "no headers": stall_before_reply(),
        "headers": stall_after_headers(),
        "body": stall_mid_body(),
        "retry sleep": busy(retry_after="30"),
    }
    async with open_scripted_engine(rules=[Rule(nth(1), behaviours[phase])]) as served:
        async with asking({"box": provider_of(kind, served, timeout=20.0)}) as engine:
            with trio.CancelScope() as scope:
                if phase == "connecting":
                    scope.deadline = trio.current_time() + 1e-9
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(ask_one, engine, "hi", "box")
                    if phase != "connecting":
                        await served.wait_for_requests(1)
                        await trio.testing.wait_all_tasks_blocked(0.01)
                        scope.cancel()
            assert scope.cancelled_caught
            if kind in ("openai-compatible", "ollama"):
                # The lane is free again: at once, or where the provider owns the settlement, once its call has ended.
                said = answer(await ask_one(engine, "again", "box"))
                assert said.text == "scripted was asked: again"
        await served.wait_until(lambda log: log.open_connections == 0)
