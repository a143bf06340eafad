"""A real llama.cpp server that chats, with a tiny model of random weights: the wire, whole and as a stream."""

from __future__ import annotations

from typing import Any

import trio
from llama_server import LlamaServer

from embedkit.ask import Answer, Failure, ask_all, ask_one
from embedkit.engine import open_engine
from embedkit.settings import PanelMember, ProviderSettings, Settings

# A grammar, so that random weights say letters and no end.
LETTERS = {"max_tokens": 12, "temperature": 0, "seed": 1, "grammar": "root ::= [a-z]+"}


def settings(llama: LlamaServer, body: dict[str, Any] = LETTERS, **more: Any) -> Settings:
    described = ProviderSettings(
        kind="openai-compatible", base_url=llama.openai_url, model="tiny", body=body, timeout=30.0, **more
    )
    return Settings(providers={"box": described})


async def test_it_answers_whole_and_as_a_stream_alike(chat_llama: LlamaServer) -> None:
    answers = []
    for stream in (False, True):
        async with open_engine(settings(chat_llama, stream=stream)) as engine:
            said = await ask_one(engine, "Is it fair?", "box")
        assert isinstance(said, Answer), said
        assert said.text.isalpha()
        assert said.usage is not None
        assert said.usage.answer == 12
        assert said.usage.prompt
        answers.append(said.text)
    assert answers[0] == answers[1]


async def test_a_fan_out_goes_through_one_lane(chat_llama: LlamaServer) -> None:
    wanted = [PanelMember(provider="box", alias=alias) for alias in "abc"]
    async with open_engine(settings(chat_llama)) as engine:
        replies = await ask_all(engine, "Is it fair?", wanted)
        assert len(replies.answers) == 3, replies
        assert engine.lane("box").statistics().totals.succeeded == 3


async def test_what_it_refuses_has_its_kind(chat_llama: LlamaServer) -> None:
    async with open_engine(settings(chat_llama)) as engine:
        failed = await ask_one(engine, "word " * 3000, "box")
        assert isinstance(failed, Failure)
        assert (failed.kind, failed.status, failed.attempts) == ("config", 400, 1)
    async with open_engine(settings(chat_llama, {"grammar": "no grammar"})) as engine:
        failed = await ask_one(engine, "q", "box")
        assert isinstance(failed, Failure)
        assert failed.kind == "config"


async def test_cancelling_stops_it(chat_llama: LlamaServer) -> None:
    long = {**LETTERS, "max_tokens": 1500}
    async with open_engine(settings(chat_llama, long, stream=True)) as engine:
        with trio.move_on_after(0.05) as scope:
            await ask_one(engine, "Is it fair?", "box")
        assert scope.cancelled_caught
    async with open_engine(settings(chat_llama)) as engine:
        assert isinstance(await ask_one(engine, "Is it fair?", "box"), Answer)
