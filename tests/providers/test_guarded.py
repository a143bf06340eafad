"""A provider of one's own is held to the checks of all: what it gives and what it raises is one ticket's failure."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
import trio

from embedkit.engine import Engine, open_engine
from embedkit.errors import ProviderBusy, ProviderFailure, ResponseInvalid, UsageError
from embedkit.providers.identity import Identity
from embedkit.settings import EmbeddingSettings, ProviderSettings, Settings

Answer = Callable[[Sequence[str]], Any]


def right(texts: Sequence[str]) -> Any:
    return np.array([[len(text), 1.0] for text in texts], dtype=np.float32)


class Own:
    """A provider that answers what it is told to."""

    name = "mine"
    kind = "arithmetic"
    model = "lengths"
    dimension: int | None = None
    space_options: Mapping[str, str] = {}

    def __init__(self, *answers: Answer | Exception, opening: Callable[[], Awaitable[None]] | None = None) -> None:
        self.answers = list(answers)
        self.opening = opening
        self.opened = self.closed = 0

    def weight(self, inputs: int) -> int:
        return 1

    async def preflight(self) -> Identity:
        await trio.lowlevel.checkpoint()
        return Identity("unknown", self.model)

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Own]:
        self.opened += 1
        if self.opening is not None:
            await self.opening()
        async with trio.open_nursery() as nursery:  # a scope of its own, which outlives every attempt
            nursery.start_soon(trio.sleep_forever)
            yield self
            nursery.cancel_scope.cancel()
        self.closed += 1

    async def embed(self, texts: Sequence[str]) -> Any:
        await trio.lowlevel.checkpoint()
        answer = self.answers.pop(0) if self.answers else right
        if isinstance(answer, Exception):
            raise answer
        return answer(texts)


@asynccontextmanager
async def opened(own: Any) -> AsyncGenerator[Engine]:
    async with open_engine(providers={"mine": own}) as engine:
        yield engine


WRONG: dict[str, tuple[Answer, str, int | None]] = {
    "a list": (lambda texts: [[1.0, 2.0]] * len(texts), "gave list, not an array of a row for each text", None),
    "nothing": (lambda texts: None, "gave NoneType, not an array", None),
    "one row": (lambda texts: right(texts)[0], "gave an array of 1 dimensions, not", None),
    "double numbers": (lambda texts: right(texts).astype(np.float64), "numbers of type float64, not float32", None),
    "half numbers": (lambda texts: right(texts).astype(np.float16), "numbers of type float16, not float32", None),
    "a row too few": (lambda texts: right(texts)[:-1], "gave 2 vectors for 3 texts", 2),
    "a row too many": (lambda texts: right([*texts, "x"]), "gave 4 vectors for 3 texts", None),
    "another dimension": (lambda texts: np.ones((len(texts), 3), np.float32), "of 3 dimensions, not 2", 0),
    "no dimension": (lambda texts: np.ones((len(texts), 0), np.float32), "vectors without a number", 0),
    "not a number": (
        lambda texts: np.where(right(texts) == 2, np.float32("nan"), right(texts)),
        "gave text 1 a number that is not finite",
        1,
    ),
    "infinite": (lambda texts: right(texts) * np.float32("inf"), "gave text 0 a number that is not finite", 0),
}


@pytest.mark.parametrize(("answer", "said", "index"), WRONG.values(), ids=WRONG.keys())
async def test_what_is_not_what_was_asked_for_is_refused_and_the_next_ticket_works(
    answer: Answer, said: str, index: int | None
) -> None:
    # Twice each: a reply that is refused is asked for once more within the ticket.
    async with opened(Own(right, answer, answer)) as engine:
        assert len((await engine.embed(["a", "bb", "ccc"])).vectors) == 3
        with pytest.raises(ResponseInvalid, match=f"^provider mine .*{said}") as caught:
            await engine.embed(["a", "bb", "ccc"])
        assert caught.value.input_index == index
        assert len((await engine.embed(["a", "bb", "ccc"])).vectors) == 3


async def test_the_first_good_answer_fixes_the_dimension() -> None:
    async with opened(Own(right)) as engine:
        await engine.embed(["a"])
        assert engine.provider().dimension == 2


@pytest.mark.parametrize(
    "error", [KeyError("a text"), ExceptionGroup("x", [ValueError("a text")]), OSError(5, "a text")]
)
async def test_whatever_it_raises_is_that_ticket_s_failure(error: Exception) -> None:
    async with opened(Own(error)) as engine:
        with pytest.raises(ProviderFailure, match=r"^provider mine: it failed \(\w+\)$") as caught:
            await engine.embed(["a text"])
        assert "a text" not in str(caught.value)
        assert len((await engine.embed(["a"])).vectors) == 1


@pytest.mark.parametrize("group", [False, True])
async def test_an_error_of_embedkit_stays_what_it_is(group: bool) -> None:
    busy = ProviderBusy("later")
    async with opened(Own(ExceptionGroup("x", [busy]) if group else busy)) as engine:
        with pytest.raises(ProviderBusy, match=r"^later$"):
            await engine.embed(["a"])


async def test_a_connection_that_cannot_be_opened_is_that_ticket_s_failure() -> None:
    failures = [RuntimeError("no"), ValueError("no")]

    async def opening() -> None:
        await trio.lowlevel.checkpoint()
        if failures:
            raise failures.pop()

    own = Own(opening=opening)
    async with opened(own) as engine:
        for name in ("ValueError", "RuntimeError"):
            with pytest.raises(ProviderFailure, match=rf"^provider mine: no connection could be opened \({name}\)$"):
                await engine.embed(["a"])
        for _ in range(3):
            assert len((await engine.embed(["a"])).vectors) == 1
        assert (own.opened, own.closed) == (3, 0)
    assert own.closed <= 1


async def test_a_caller_who_leaves_while_it_is_opened_costs_the_next_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def opening() -> None:
        await trio.sleep(5)

    own = Own(opening=opening)
    async with opened(own) as engine:
        with trio.move_on_after(1):
            await engine.embed(["a"])
        assert len((await engine.embed(["a"])).vectors) == 1
        assert own.opened == 1
        assert trio.current_time() == pytest.approx(5)


async def test_a_preflight_that_breaks_is_that_ticket_s_failure() -> None:
    class Odd(Own):
        async def preflight(self) -> Identity:
            raise LookupError("no")

    async with opened(Odd()) as engine:
        with pytest.raises(ProviderFailure, match=r"^provider mine: its preflight failed \(LookupError\)$"):
            await engine.embed(["a"])


async def test_a_connection_that_wants_to_know_is_told_what_for() -> None:
    told: list[tuple[list[str], str]] = []

    class Asking(Own):
        async def embed_for(self, texts: Sequence[str], purpose: str) -> Any:
            await trio.lowlevel.checkpoint()
            told.append((list(texts), purpose))
            return right(texts)

    async with opened(Asking()) as engine:
        await engine.embed(["a"])
        await engine.embed(["b"], purpose="query")
    assert told == [(["a"], "document"), (["b"], "query")]


async def test_it_needs_no_section_and_may_have_one() -> None:
    box = ProviderSettings(kind="own", capacity=3, document_prefix="d: ", timeout=7.0)
    settings = Settings(providers={"mine": box}, embedding=EmbeddingSettings(provider="mine"))
    async with open_engine(settings, providers={"mine": Own()}) as engine:
        assert engine.lane().statistics().capacity == 3
        assert (await engine.embed(["a"])).vectors[0, 0] == len("d: a")
        assert engine.space_of(2).kind == "arithmetic"
    async with open_engine(Settings(), providers={"mine": Own(), "other": Own()}) as engine:
        assert len((await engine.embed(["a"], provider="other")).vectors) == 1
    async with open_engine(settings) as engine:
        with pytest.raises(UsageError, match=r'kind "own": give it to open_engine\(providers=\{"mine": ...\}\)'):
            await engine.embed(["a"])


async def test_nobody_sends_it_more_than_it_takes() -> None:
    sent: list[int] = []

    class Small(Own):
        max_inputs = 3

        async def embed(self, texts: Sequence[str]) -> Any:
            sent.append(len(texts))
            return await super().embed(texts)

    async with opened(Small()) as engine:
        bought = await engine.embed([letter * (number + 1) for number, letter in enumerate("abcdefg")])
        assert bought.vectors[:, 0].tolist() == [1, 2, 3, 4, 5, 6, 7]
        assert bought.attempts == 3
    assert sent == [3, 3, 1]


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ("a text", "is one string, which would be embedded letter by letter"),
        (b"a text", "is one string"),
        (["a", 1], "text 1 is of type int"),
        (["a", None], "text 1 is of type NoneType"),
        ({"a"}, "texts is of type set"),
        (7, "texts is of type int"),
    ],
)
async def test_what_is_no_list_of_texts_is_refused(texts: Any, said: str) -> None:
    own = Own()
    async with opened(own) as engine:
        with pytest.raises(UsageError, match=said):
            await engine.embed(texts)
    assert own.opened == 0
