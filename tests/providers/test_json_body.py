"""A reply is as large as its batch can need, and what it holds is counted before any of it is made."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from embedkit.errors import ResponseInvalid
from embedkit.providers.json_body import bound_of, load_error, load_json
from embedkit.providers.openai_compatible import OpenAICompatibleProvider
from embedkit.testing.engine_rules import Behaviour, Rule, always, nth
from embedkit.testing.scripted_engine import open_scripted_engine

TEXTS = ["one", "two"]


@pytest.mark.parametrize("part", [b"[],", b"{},", b"0,", b'"",', b"[", b'{"a":'])
def test_a_million_of_anything_is_refused_before_it_is_made(part: bytes) -> None:
    body = b"[" + part * (1_000_000 // len(part)) + b"0]"
    tracemalloc.start()
    with pytest.raises(ResponseInvalid):
        load_json(body, bound_of(TEXTS, 8))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * len(body)


@pytest.mark.parametrize("dimension", [None, 8, 1_024])
@pytest.mark.parametrize("inputs", [1, 32])
def test_what_a_batch_needs_is_within_its_bound(inputs: int, dimension: int | None) -> None:
    width = dimension or 4_096
    rows = [{"object": "embedding", "index": i, "embedding": [-1.234567890123456e-05] * width} for i in range(inputs)]
    usage = {"prompt_tokens": 5, "total_tokens": 5, "details": {"a": [1, 2, 3]}}
    document = {"object": "list", "data": rows, "model": "m", "usage": usage}
    texts = ["[a, b, {c}], " * 500] * inputs
    echoed = {**document, "input": texts}
    for written in (json.dumps(document), json.dumps(echoed, indent=2)):
        assert load_json(written.encode(), bound_of(texts, dimension))


def test_the_floor_is_a_mebibyte() -> None:
    assert bound_of(["x"], 2).size == 1 << 20


@pytest.mark.parametrize("body", [b"[" * 60_000, b"[" * 5_000_000, b"{" * 100, b"\xff" * 70_000, b""])
def test_what_a_refusal_says_is_read_to_a_bound(body: bytes) -> None:
    said = load_error(body)
    assert isinstance(said, str)
    assert len(said) <= 4_096


async def test_eight_megabytes_of_lists_are_no_reply() -> None:
    bomb = Behaviour(body=b'{"data": [' + b"[]," * 2_700_000 + b"[]]}")
    async with open_scripted_engine(rules=[Rule(nth(1), bomb)]) as engine:
        provider = OpenAICompatibleProvider("here", engine.openai_url, "scripted", dimension=8)
        async with provider.connect() as connection:
            with pytest.raises(ResponseInvalid, match="is larger than 1048576 bytes"):
                await connection.embed(TEXTS)
            assert (await connection.embed(TEXTS)).shape == (2, 8)


async def test_a_large_reply_is_read_in_a_thread_and_a_cancelled_one_leaves_nothing() -> None:
    async with open_scripted_engine(dimension=4_096) as engine:
        provider = OpenAICompatibleProvider("here", engine.openai_url, "scripted")
        texts = [f"text {number}" for number in range(64)]
        async with provider.connect() as connection:
            assert (await connection.embed(texts)).shape == (64, 4_096)
            assert (await connection.embed(TEXTS)).shape == (2, 4_096)


async def test_a_refusal_of_any_size_is_told_by_its_status() -> None:
    page = Behaviour(status=502, body=b"<html>" + b"x" * 3_000_000, computes=False)
    async with open_scripted_engine(rules=[Rule(always, page, times=1)]) as engine:
        provider = OpenAICompatibleProvider("here", engine.openai_url, "scripted", dimension=8)
        async with provider.connect() as connection:
            with pytest.raises(Exception, match=r"answered 502$"):
                await connection.embed(TEXTS)
            assert (await connection.embed(TEXTS)).shape == (2, 8)
