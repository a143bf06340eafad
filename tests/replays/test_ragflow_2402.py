"""ragflow#2402: an engine without base64 refuses it without a word about it, and nothing was ever embedded."""

from __future__ import annotations

import pytest

from embedkit.errors import ContentRefused, ProviderError, ProviderUnavailable
from embedkit.providers.openai_compatible import OpenAICompatibleProvider
from embedkit.testing.engine_rules import Behaviour, Rule, always, containing, noted_in, nth, status
from embedkit.testing.engine_wire import EngineRequest
from embedkit.testing.scripted_engine import open_scripted_engine


def wants_base64(request: EngineRequest) -> bool:
    return request.wants_base64


def formats(requests: list[EngineRequest]) -> list[object]:
    return [request.document["encoding_format"] for request in requests]


@pytest.mark.parametrize("code", [400, 406, 415, 422, 500, 501])
@pytest.mark.parametrize(
    "said", [status(0, "bad request"), Behaviour(body=b"", computes=False)], ids=["words", "silence"]
)
async def test_numbers_are_asked_for_once_and_it_is_remembered(code: int, said: Behaviour) -> None:
    refusal = Behaviour(status=code, body=said.body, says=said.says, computes=False)
    seen: list[EngineRequest] = []
    async with open_scripted_engine(rules=[noted_in(seen), Rule(wants_base64, refusal)]) as engine:
        provider = OpenAICompatibleProvider("here", engine.openai_url, "scripted")
        for _ in range(2):
            async with provider.connect() as connection:
                assert (await connection.embed(["one", "two"])).shape == (2, 8)
    assert formats(seen) == ["base64", "float", "float"]


async def test_a_refusal_of_something_else_is_tried_once_more_and_base64_stays() -> None:
    seen: list[EngineRequest] = []
    rules = [noted_in(seen), Rule(containing("poison"), status(500, "broken"))]
    async with open_scripted_engine(rules=rules) as engine:
        provider = OpenAICompatibleProvider("here", engine.openai_url, "scripted")
        async with provider.connect() as connection:
            with pytest.raises(ProviderUnavailable):
                await connection.embed(["poison"])
            assert (await connection.embed(["one"])).shape == (1, 8)
            with pytest.raises(ProviderUnavailable):
                await connection.embed(["poison"])
    # An answer in base64 has come by the third text, so its refusal is of something else for certain.
    assert formats(seen) == ["base64", "float", "base64", "base64"]


@pytest.mark.parametrize("said", ["maximum context length is 512 tokens", "'$.input' is invalid"])
async def test_a_refusal_in_words_that_are_known_is_of_what_they_say(said: str) -> None:
    seen: list[EngineRequest] = []
    async with open_scripted_engine(rules=[noted_in(seen), Rule(always, status(400, said))]) as engine:
        provider = OpenAICompatibleProvider("here", engine.openai_url, "scripted")
        async with provider.connect() as connection:
            with pytest.raises(ContentRefused):
                await connection.embed(["one"])
    assert formats(seen) == ["base64"]


@pytest.mark.parametrize("code", [401, 403, 404, 408, 413, 429, 502, 503, 504])
async def test_a_status_that_says_something_else_is_not_put_down_to_base64(code: int) -> None:
    seen: list[EngineRequest] = []
    async with open_scripted_engine(rules=[noted_in(seen), Rule(nth(1), status(code, "no"))]) as engine:
        provider = OpenAICompatibleProvider("here", engine.openai_url, "scripted")
        async with provider.connect() as connection:
            with pytest.raises(ProviderError):
                await connection.embed(["one"])
    assert formats(seen) == ["base64"]


async def test_an_engine_that_refuses_the_field_is_asked_without_it() -> None:
    seen: list[EngineRequest] = []
    refusal = Behaviour(
        status=422,
        body=b'{"detail": [{"type": "extra_forbidden", "loc": ["body", "encoding_format"], "msg": "not permitted"}]}',
        computes=False,
    )
    rules = [noted_in(seen), Rule(lambda request: "encoding_format" in request.document, refusal)]
    async with open_scripted_engine(rules=rules) as engine:
        provider = OpenAICompatibleProvider("here", engine.openai_url, "scripted")
        async with provider.connect() as connection:
            for _ in range(2):
                assert (await connection.embed(["one"])).shape == (1, 8)
    assert [request.document.get("encoding_format") for request in seen] == ["base64", "float", None, None]


async def test_numbers_from_the_first_where_the_settings_say_so() -> None:
    from embedkit.providers.wire import Wire

    seen: list[EngineRequest] = []
    async with open_scripted_engine(rules=[noted_in(seen)]) as engine:
        wire = Wire(body={"encoding_format": "float"})
        provider = OpenAICompatibleProvider("here", engine.openai_url, "scripted", wire=wire)
        async with provider.connect() as connection:
            await connection.embed(["one"])
    assert formats(seen) == ["float"]
