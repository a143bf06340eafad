"""Our providers over HTTP, held to the provider contract; and a bad one, to see that it has teeth."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
import trio

from embedkit.errors import ProviderError
from embedkit.providers.gemini import GeminiProvider
from embedkit.providers.identity import Identity
from embedkit.providers.local import LocalProvider
from embedkit.providers.ollama import OllamaProvider
from embedkit.providers.openai_compatible import OpenAICompatibleProvider
from embedkit.providers.provider import Provider
from embedkit.testing import ProviderContract, ScriptedEngine


class TestOpenAICompatible(ProviderContract):
    def make_provider(self, engine: ScriptedEngine) -> Provider:
        return OpenAICompatibleProvider("here", engine.openai_url, "scripted")


class TestOllama(ProviderContract):
    def make_provider(self, engine: ScriptedEngine) -> Provider:
        return OllamaProvider("here", engine.base_url, "scripted")


class TestGemini(ProviderContract):
    def make_provider(self, engine: ScriptedEngine) -> Provider:
        return GeminiProvider("far", "scripted", "key", base_url=engine.gemini_url)


class Bad(OllamaProvider):
    """Tries again by itself, drops blanks, shares one connection, and asks the engine about nothing."""

    lock: trio.Lock

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Any]:
        self.lock = getattr(self, "lock", None) or trio.Lock()
        async with super().connect() as inner:
            yield BadConnection(inner, self.lock)


class BadConnection:
    def __init__(self, inner: Any, lock: trio.Lock) -> None:
        self.inner = inner
        self.lock = lock

    async def embed(self, texts: Sequence[str]) -> Any:
        texts = [text for text in texts if text.strip()] or ["nothing"]
        async with self.lock:
            try:
                return await self.inner.embed(texts)
            except ProviderError:
                return await self.inner.embed(texts)


class Contract(ProviderContract):
    def make_provider(self, engine: ScriptedEngine) -> Provider:
        return Bad("here", engine.base_url, "scripted")

    def expected(self, texts: Sequence[str]) -> list[list[float]] | None:
        return super().expected(texts)


@pytest.mark.parametrize(
    ("test", "sentence"),
    [
        ("test_row_i_is_the_vector_of_text_i", "5 texts came back as 3 vectors"),
        ("test_no_text_is_no_request", "no texts came back as 1 vectors"),
        ("test_a_failure_is_one_attempt_and_a_provider_error", "500: no error came of it"),
    ],
)
def test_a_bad_provider_is_found_out_in_a_sentence(test: str, sentence: str) -> None:
    with pytest.raises(AssertionError) as caught:
        getattr(Contract(), test)()
    assert str(caught.value).split("\n")[0] == sentence


# -- in this process ---------------------------------------------------------------------------------------------------


class Lengths:
    """A provider that computes here: of each text its length, and how many vowels it has."""

    name = "mine"
    kind = "lengths"
    model = "vowels"
    dimension: int | None = 2
    space_options: Mapping[str, str] = {}

    def weight(self, inputs: int) -> int:
        return 1

    async def preflight(self) -> Identity:
        await trio.lowlevel.checkpoint()
        return Identity("listed", self.model)

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Any]:
        await trio.lowlevel.checkpoint()
        yield self

    async def embed(self, texts: Sequence[str]) -> Any:
        await trio.lowlevel.checkpoint()
        rows = [[len(text), sum(text.count(vowel) for vowel in "aeiou")] for text in texts]
        return np.array(rows, dtype=np.float32).reshape(len(texts), 2)


class TestInProcess(ProviderContract):
    in_process = True

    def make_provider(self, engine: ScriptedEngine) -> Provider:
        return Lengths()


class CountedModel:
    """Stands for the embedded model's weights: counts of words."""

    dimension = 16

    def embed(self, texts: Sequence[str]) -> Any:
        rows = np.zeros((len(texts), self.dimension), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in text.split():
                row[len(word) % self.dimension] += 1.0
        return rows


class TestLocal(ProviderContract):
    in_process = True

    def make_provider(self, engine: ScriptedEngine) -> Provider:
        provider: Any = LocalProvider("local", threads=4)
        provider._loaded = CountedModel()
        provider.dimension = CountedModel.dimension
        made: Provider = provider
        return made


def changed(**what: Any) -> type[ProviderContract]:
    """The contract of ``Lengths`` with another attribute or method."""
    odd = type("Odd", (Lengths,), what)

    class OfOdd(ProviderContract):
        in_process = True

        def make_provider(self, engine: ScriptedEngine) -> Provider:
            made: Provider = odd()
            return made

    return OfOdd


def embedding(change: Any, *, waits: bool = True) -> dict[str, Any]:
    """``embed`` whose result is changed by ``change``."""

    async def embed(self: Lengths, texts: Sequence[str]) -> Any:
        if waits:
            await trio.lowlevel.checkpoint()
        rows = [[len(text), sum(text.count(vowel) for vowel in "aeiou")] for text in texts]
        return change(np.array(rows, dtype=np.float32).reshape(len(texts), 2), texts)

    return {"embed": embed}


ROWS = "test_row_i_is_the_vector_of_text_i"


@pytest.mark.parametrize(
    ("what", "test", "sentence"),
    [
        ({"kind": None}, "test_it_says_what_it_is", "kind is None, and has to be text"),
        ({"model": ""}, "test_it_says_what_it_is", "model is empty"),
        ({"space_options": None}, "test_it_says_what_it_is", "space_options is None, and has to be a mapping"),
        (
            {"space_options": {"d": 1}},
            "test_it_says_what_it_is",
            "space_options has 'd' among its keys, whose value is no",
        ),
        ({"dimension": 0}, "test_it_says_what_it_is", "dimension is 0"),
        ({"weight": lambda self, n: 0}, "test_weights_are_positive_and_do_not_fall", "a batch of one text weighs 0"),
        ({"weight": lambda self, n: -n}, "test_weights_are_positive_and_do_not_fall", "a batch of one text weighs -1"),
        (embedding(lambda v, t: v.tolist()), ROWS, "embed() gave list, and not an array"),
        (embedding(lambda v, t: v.ravel()), ROWS, "the array has 1 dimensions, and not a row for each text"),
        (embedding(lambda v, t: v.astype(float)), ROWS, "the numbers are of type float64, and not float32"),
        (embedding(lambda v, t: v[:, :0]), ROWS, "the vectors hold no number"),
        (embedding(lambda v, t: v[[bool(x.strip()) for x in t]]), ROWS, "5 texts came back as 3 vectors"),
        (embedding(lambda v, t: v / (v - 1)), ROWS, "the vector of ' ' holds a number that is not finite"),
        (embedding(lambda v, t: np.sort(v, axis=0)), ROWS, "the vector in row 0 of a text depends on its place in the"),
        (
            embedding(lambda v, t: v + np.float32(len(t))),
            "test_one_text_is_a_batch_of_one",
            "the vector in row 0 of a text alone is not the one that it has in company: they differ by 4",
        ),
        (
            embedding(lambda v, t: v, waits=False),
            "test_cancelled_at_each_await",
            "embed() never awaits anything, so nobody can cancel it",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:(divide by zero|invalid value):RuntimeWarning")
def test_a_bad_one_in_this_process_is_found_out_in_a_sentence(what: dict[str, Any], test: str, sentence: str) -> None:
    with pytest.raises(AssertionError) as caught:
        getattr(changed(**what)(), test)()
    assert str(caught.value).startswith(sentence)


def test_what_needs_an_engine_is_not_asked_of_it() -> None:
    for name in ("a_failure_is_one_attempt_and_a_provider_error", "a_cancelled_request_closes_its_transport"):
        getattr(TestInProcess(), f"test_{name}")()
