"""Answers that come as a stream, over real sockets and in virtual time."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import hypothesis
import pytest
import trio
from asking_world import KEYS, answer, asking, failure
from hypothesis import given
from hypothesis import strategies as st
from scripted_sockets import Script, Server, delta, events, pieces, serving, whole
from trio.testing import MockClock

from embedkit.ask import Result, ask_one
from embedkit.ask.chat_wire import Language
from embedkit.ask.stream_wire import LARGEST_EVENT, ChatStream
from embedkit.settings import ProviderSettings

DONE = b"data: [DONE]\n\n"
SSE_KINDS = ("openai-compatible", "grok", "openrouter")


@pytest.fixture
def autojump_clock() -> MockClock:
    # Real sockets: a moment's grace before the clock jumps.
    return MockClock(autojump_threshold=0.02)


def said(*texts: str) -> list[bytes]:
    """A stream in OpenAI's language that says ``texts``."""
    usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}
    return [*events(delta(None), *(delta(text) for text in texts), delta(None, "stop"), usage), DONE]


def lines(*texts: str, done: bool = True) -> list[bytes]:
    """The same in Ollama's."""
    documents: list[dict[str, Any]] = [
        {"model": "scripted", "message": {"content": text}, "done": False} for text in texts
    ]
    if done:
        documents.append({"message": {"content": ""}, "done": True, "prompt_eval_count": 3, "eval_count": 4})
    return [json.dumps(document).encode() + b"\n" for document in documents]


def stream_of(kind: str) -> Callable[..., list[bytes]]:
    return lines if kind == "ollama" else said


async def asked(
    kind: str, script: Script, *, seen: list[Server] | None = None, deadline: float | None = None, **more: Any
) -> Result:
    async with serving(script) as server:
        address = server.base_url.removesuffix("/v1") if kind == "ollama" else server.base_url
        described = ProviderSettings(kind=kind, base_url=address, model="scripted", stream=True, **more)  # type: ignore[arg-type]
        async with asking({"box": described}, environ=KEYS) as engine:
            result = await ask_one(engine, "q", "box", deadline=deadline)
        if seen is not None:
            seen.append(server)
        return result


@pytest.mark.parametrize("kind", [*SSE_KINDS, "ollama"])
async def test_a_stream_adds_up(kind: str) -> None:
    seen: list[Server] = []
    found = answer(await asked(kind, pieces(*stream_of(kind)("It is ", "fair.")), seen=seen))
    assert (found.text, found.model, found.attempts) == ("It is fair.", "scripted", 1)
    assert found.usage is not None
    assert (found.usage.prompt, found.usage.answer) == (3, 4)
    (request,) = seen[0].heard
    assert request.document["stream"] is True
    assert request.document.get("stream_options") == (None if kind == "ollama" else {"include_usage": True})


@pytest.mark.parametrize("kind", [*SSE_KINDS, "ollama"])
async def test_the_limit_is_of_each_event(kind: str, autojump_clock: MockClock) -> None:
    parts: list[bytes | float] = []
    for part in stream_of(kind)("It ", "is ", "fair."):
        parts += [50.0, part]
    found = answer(await asked(kind, pieces(*parts), stream_idle=60.0, timeout=1000.0))
    assert found.text == "It is fair."
    assert found.elapsed == pytest.approx(50.0 * len(stream_of(kind)("", "", "")))


@pytest.mark.parametrize("kind", [*SSE_KINDS, "ollama"])
async def test_silence_ends_it_and_what_was_said_is_kept(kind: str, autojump_clock: MockClock) -> None:
    begun = stream_of(kind)("It is ", "fa")[:-1]
    begun = begun[:3] if kind != "ollama" else begun
    failed = failure(await asked(kind, pieces(*begun, 1000.0), stream_idle=60.0))
    assert (failed.kind, failed.attempts, failed.partial) == ("timeout", 1, "It is fa")
    assert failed.elapsed == pytest.approx(60.0)
    assert "no event within 60 s (providers.box.stream_idle)" in failed.message
    assert "fa" not in repr(failed).replace("'failed'", "").partition("partial")[2]


@pytest.mark.parametrize("comment", [b": OPENROUTER PROCESSING\n\n", b"\n", b"event: ping\n\n", b"data:\n\n", b": x"])
async def test_comments_are_not_life(comment: bytes, autojump_clock: MockClock) -> None:
    chatter: list[bytes | float] = [part for _ in range(100) for part in (10.0, comment)]
    failed = failure(await asked("openrouter", pieces(*said("It")[:2], *chatter), stream_idle=60.0))
    assert (failed.kind, failed.partial) == ("timeout", "It")
    assert failed.elapsed == pytest.approx(60.0)


async def test_blank_lines_are_no_life_of_ollamas(autojump_clock: MockClock) -> None:
    chatter: list[bytes | float] = [part for _ in range(100) for part in (10.0, b"\n")]
    failed = failure(await asked("ollama", pieces(*lines("It", done=False), *chatter), stream_idle=60.0))
    assert (failed.kind, failed.partial) == ("timeout", "It")
    assert failed.elapsed == pytest.approx(60.0)


@pytest.mark.parametrize("kind", [*SSE_KINDS, "ollama"])
async def test_the_whole_limit_holds_for_a_stream_too(kind: str, autojump_clock: MockClock) -> None:
    endless: list[bytes | float] = []
    for part in stream_of(kind)(*["word "] * 100):
        endless += [part, 10.0]
    failed = failure(await asked(kind, pieces(*endless), timeout=95.0))
    assert (failed.kind, failed.attempts) == ("timeout", 1)
    assert failed.elapsed == pytest.approx(95.0)
    assert "providers.box.timeout" in failed.message


@pytest.mark.parametrize("kind", [*SSE_KINDS, "ollama"])
@pytest.mark.parametrize("ends", [True, False])
async def test_an_end_without_its_last_event_is_a_failure(kind: str, ends: bool, autojump_clock: MockClock) -> None:
    begun = stream_of(kind)("It is ", "fa")
    failed = failure(await asked(kind, pieces(*begun[:-1], ends=ends)))
    assert (failed.kind, failed.attempts, failed.partial) == ("network", 2, "It is fa")
    assert failed.as_json()["partial"] == "It is fa"


@pytest.mark.parametrize(
    ("parts", "kind", "attempts"),
    [
        ([*events(delta("It"), {"error": {"code": 429, "message": "slow down"}}), DONE], "rate-limit", 2),
        ([*events(delta("It"), {"error": {"code": 502, "message": "bad gateway"}})], "upstream", 2),
        ([*events({"choices": [{"error": {"code": 401, "message": "no"}}]}), DONE], "auth", 1),
        ([b"data: {no json\n\n", DONE], "parse", 1),
        ([b"data: [1]\n\n", DONE], "parse", 1),
        ([*events(delta(None, "length")), DONE], "truncated", 1),
        ([*events(delta(None, "stop")), DONE], "empty", 2),
        ([*events(delta("I will look at the code.")), DONE], "empty", 2),
        ([b"<html></html>"], "network", 2),
        ([b"x" * (LARGEST_EVENT + 1), 1000.0], "parse", 1),
        ([b"data: " + b"x" * LARGEST_EVENT + b"\n\n", 1000.0], "parse", 1),
    ],
)
async def test_what_comes_in_a_stream_has_its_kind(
    parts: Sequence[bytes | float], kind: str, attempts: int, autojump_clock: MockClock
) -> None:
    failed = failure(await asked("openrouter", pieces(*parts)))
    assert (failed.kind, failed.attempts) == (kind, attempts)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [(whole({"error": {"message": "no"}}, 401), "auth"), (whole({"error": {"message": "no"}}, 500), "upstream")],
)
async def test_a_refusal_is_none_of_the_stream(reply: bytes, kind: str, autojump_clock: MockClock) -> None:
    async def script(request: object, say: Callable[[bytes], Any]) -> None:
        await say(reply)

    assert failure(await asked("openrouter", script)).kind == kind


async def test_an_engine_that_answers_whole_is_understood() -> None:
    async def script(request: object, say: Callable[[bytes], Any]) -> None:
        await say(whole({"model": "m", "choices": [{"message": {"content": "It is fair."}}]}))

    assert answer(await asked("openai-compatible", script)).text == "It is fair."


@pytest.mark.parametrize("kind", [*SSE_KINDS, "ollama"])
async def test_cancelling_closes_the_stream(kind: str, autojump_clock: MockClock) -> None:
    async with serving(pieces(*stream_of(kind)("It")[:2], 1000.0)) as server:
        address = server.base_url.removesuffix("/v1") if kind == "ollama" else server.base_url
        described = ProviderSettings(kind=kind, base_url=address, model="m", stream=True, timeout=20.0)  # type: ignore[arg-type]
        async with asking({"box": described}, environ=KEYS) as engine:
            with trio.move_on_after(5.0) as scope:
                await ask_one(engine, "q", "box")
            assert scope.cancelled_caught
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert not server.open


@hypothesis.settings(max_examples=40)
@given(st.data())
def test_a_stream_is_the_same_however_it_is_cut(data: st.DataObject) -> None:
    languages: tuple[Language, ...] = ("openai", "ollama")
    language = data.draw(st.sampled_from(languages))
    texts = data.draw(st.lists(st.text(max_size=10), max_size=3))
    parts = said(*texts) if language == "openai" else lines(*texts)
    if data.draw(st.booleans()):
        parts = [part.replace(b"\n", b"\r\n") for part in parts]
    stream = ChatStream(language)
    left = b": hello\n\n" * (language == "openai") + b"".join(parts)
    while left:
        size = data.draw(st.integers(1, 60))
        stream.feed(left[:size])
        left = left[size:]
    assert (stream.text, stream.is_done, stream.broken, stream.fault) == ("".join(texts), True, None, None)


@given(st.binary(max_size=400), st.sampled_from(("openai", "ollama")))
def test_anything_can_be_fed(junk: bytes, language: Any) -> None:
    stream = ChatStream(language)
    stream.feed(junk)
    stream.feed(b"data: [DONE]\n\n")
    assert isinstance(stream.text, str)
