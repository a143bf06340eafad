"""The provider suite as a pytest class: what a connection of any provider owes to the slot that owns it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import trio

from embedkit import ProviderError
from embedkit.testing import engine_rules as rules
from embedkit.testing.engine_answers import vector_of
from embedkit.testing.engine_rules import Behaviour, Rule
from embedkit.testing.scripted_engine import ScriptedEngine, open_scripted_engine
from embedkit.testing.steps import cancelled_after

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from embedkit import Connection, Provider

    Vectors = NDArray[np.float32]

T = TypeVar("T")

DIMENSION = 8
_TOLERANCE = 1e-4  # a batch may be added up in another order than a text alone
TEXTS = ("alpha", " ", "gamma rays", "", "alpha")

FAULTS: dict[str, Callable[[], Behaviour]] = {
    "500": lambda: rules.status(500, "broken"),
    "busy": lambda: rules.busy(code=503),
    "a web page": rules.html,
    "half a document": rules.half_json,
    "no vectors": rules.empty_data,
    "a vector too few": rules.short,
    "a vector too many": rules.long,
    "not a number": rules.nan,
    "null": rules.null,
    "another dimension": lambda: rules.wrong_dimension(3),
    "cut before the reply": rules.cut_before_reply,
    "cut after the headers": rules.cut_after_headers,
    "cut in the body": rules.cut_mid_body,
    "reset": rules.reset,
}


class ProviderContract:
    """One test a duty, for a provider of yours. Name the subclass ``Test...``, and say how the provider is made.

    ::

        class TestMyProvider(ProviderContract):
            def make_provider(self, engine):
                return MyProvider("mine", engine.openai_url, "scripted")

    The engine is ``open_scripted_engine``, on real sockets: it speaks OpenAI's, Ollama's and Gemini's languages. A
    provider that computes in this process, or speaks another language, says ``in_process = True`` and makes nothing of
    the engine; then the duties that need an engine to break are not asked of it. Each failure is a sentence.

    Attributes:
        in_process: Whether the provider has nothing to do with the scripted engine.
    """

    in_process: bool = False

    def make_provider(self, engine: ScriptedEngine) -> Provider:
        """A provider that speaks to ``engine``, if to any."""
        raise NotImplementedError("say how the provider is made that is to be held to the contract")

    def expected(self, texts: Sequence[str]) -> list[list[float]] | None:
        """The vectors that are right for ``texts``; ``None`` where nobody knows, as in this process."""
        return None if self.in_process else [list(vector_of(text, DIMENSION)) for text in texts]

    def run_with_engine(self, test: Callable[[ScriptedEngine], Awaitable[T]], *given: Rule, slots: int = 1) -> T:
        """What ``test`` returns, run with an engine that obeys the rules ``given``."""

        async def main() -> T:
            async with open_scripted_engine(slots=slots, rules=given, dimension=DIMENSION) as engine:
                with trio.move_on_after(30.0):
                    return await test(engine)
                raise AssertionError("the provider was not done within 30 s")

        return _run(main)

    def test_it_says_what_it_is(self) -> None:
        """Name, kind, model and options are text; they name the space that a store remembers."""

        async def test(engine: ScriptedEngine) -> Provider:
            return self.make_provider(engine)

        provider = self.run_with_engine(test)
        for name in ("name", "kind", "model"):
            value = getattr(provider, name, None)
            assert isinstance(value, str), f"{name} is {value!r}, and has to be text"
            assert value, f"{name} is empty"
        options = getattr(provider, "space_options", None)
        assert isinstance(options, Mapping), f"space_options is {options!r}, and has to be a mapping"
        odd = [key for key, value in options.items() if not (isinstance(key, str) and isinstance(value, str))]
        assert not odd, f"space_options has {odd[0]!r} among its keys, whose value is no text"
        dimension = getattr(provider, "dimension", None)
        assert dimension is None or (isinstance(dimension, int) and dimension > 0), f"dimension is {dimension!r}"

    def test_row_i_is_the_vector_of_text_i(self) -> None:
        """Shape ``(n, dimension) float32``, in order, every number finite; a blank text keeps its row."""

        async def test(engine: ScriptedEngine) -> tuple[Vectors, Vectors]:
            async with self.make_provider(engine).connect() as connection:
                return await connection.embed(TEXTS), await connection.embed(TEXTS[::-1])

        there, back = self.run_with_engine(test)
        self._check_vectors(there, TEXTS)
        self._check_vectors(back, TEXTS[::-1])
        _check_same(there, back[::-1], "of a text depends on its place in the batch")
        _check_same(there[:1], there[-1:], "of a text that stands in a batch twice is not the same both times")

    def test_one_text_is_a_batch_of_one(self) -> None:
        """And its vector is the one that it has in company."""

        async def test(engine: ScriptedEngine) -> tuple[Vectors, Vectors]:
            async with self.make_provider(engine).connect() as connection:
                return await connection.embed(TEXTS), await connection.embed(TEXTS[2:3])

        together, alone = self.run_with_engine(test)
        self._check_vectors(alone, TEXTS[2:3])
        _check_same(together[2:3], alone, "of a text alone is not the one that it has in company")

    def test_no_text_is_no_request(self) -> None:
        """``(0, dimension)``, and nobody is asked."""

        async def test(engine: ScriptedEngine) -> tuple[int, int]:
            async with self.make_provider(engine).connect() as connection:
                return len(await connection.embed([])), engine.log.requests

        rows, requests = self.run_with_engine(test)
        assert rows == 0, f"no texts came back as {rows} vectors"
        assert requests == 0, "the engine was asked for the vectors of no texts"

    def test_a_failure_is_one_attempt_and_a_provider_error(self) -> None:
        """Retries are the lane's; and the connection is good for the next request, whatever broke."""
        for fault, behaviour in {} if self.in_process else FAULTS.items():

            async def test(engine: ScriptedEngine, fault: str = fault) -> None:
                async with self.make_provider(engine).connect() as connection:
                    await connection.embed(TEXTS)  # the dimension is known from now on
                    await self._check_failure(connection, engine, fault)
                    self._check_vectors(await connection.embed(TEXTS), TEXTS, after=fault)

            self.run_with_engine(test, Rule(rules.nth(2), behaviour()))

    def test_cancelled_at_each_await(self) -> None:
        """Only Cancelled comes out, and the connection is good for the next request."""

        async def test(engine: ScriptedEngine) -> bool:
            async with self.make_provider(engine).connect() as connection:
                for steps in range(1, 1000):
                    finished, waited = await cancelled_after(steps, lambda: connection.embed(TEXTS))
                    self._check_vectors(await connection.embed(TEXTS), TEXTS, after="a request that was cancelled")
                    if finished:
                        return waited or steps > 1
            raise AssertionError("a request that is cancelled after so many steps never ends: 1,000 were tried")

        waited = self.run_with_engine(test)
        assert waited, "embed() never awaits anything, so nobody can cancel it, and nobody else runs meanwhile"

    def test_a_cancelled_request_closes_its_transport(self) -> None:
        """The engine sees that its client left: what it does then is its own affair."""
        never = trio.Event()

        async def test(engine: ScriptedEngine) -> None:
            async with self.make_provider(engine).connect() as connection, trio.open_nursery() as nursery:
                nursery.start_soon(connection.embed, TEXTS)
                await engine.wait_for_requests(1)
                nursery.cancel_scope.cancel()
            await engine.wait_until(lambda log: log.records[0].client_left)

        if not self.in_process:
            self.run_with_engine(test, Rule(rules.always, rules.hold(never)))

    def test_nothing_is_queued(self) -> None:
        """As many requests are with the engine as connections were asked: the lane is the only queue."""
        released = trio.Event()

        async def test(engine: ScriptedEngine) -> None:
            provider = self.make_provider(engine)

            async def embed() -> None:
                async with provider.connect() as connection:
                    self._check_vectors(await connection.embed(TEXTS), TEXTS)

            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(embed)
                with trio.move_on_after(10.0):
                    await engine.wait_for_requests(20)
                reached = engine.log.requests
                released.set()
            assert reached == 20, f"20 connections were asked, and {reached} requests reached the engine: some wait"

        if not self.in_process:
            self.run_with_engine(test, Rule(rules.always, rules.hold(released)), slots=20)

    def test_connections_do_not_disturb_each_other(self) -> None:
        """Several slots have one each, and use them at once."""

        async def test(engine: ScriptedEngine) -> None:
            provider = self.make_provider(engine)

            async def embed(text: str) -> None:
                async with provider.connect() as connection:
                    for _ in range(3):
                        self._check_vectors(await connection.embed([text]), [text])

            async with trio.open_nursery() as nursery:
                for text in TEXTS:
                    nursery.start_soon(embed, text)

        self.run_with_engine(test, slots=len(TEXTS))

    def test_weights_are_positive_and_do_not_fall(self) -> None:
        """A lane reserves room by them."""

        async def test(engine: ScriptedEngine) -> Provider:
            return self.make_provider(engine)

        provider = self.run_with_engine(test)
        weights = [provider.weight(inputs) for inputs in (1, 2, 32, 2048)]
        assert weights[0] >= 1, f"a batch of one text weighs {weights[0]}, and has to weigh 1 at least"
        assert weights == sorted(weights), (
            f"batches of 1, 2, 32 and 2048 texts weigh {weights}: a larger one weighs less"
        )

    async def _check_failure(self, connection: Connection, engine: ScriptedEngine, fault: str) -> None:
        before = engine.log.requests
        try:
            await connection.embed(TEXTS)
        except ProviderError:
            asked = engine.log.requests - before
            assert asked == 1, f"{fault}: the provider asked {asked} times; retries are the lane's"
            return
        except Exception as error:
            raise AssertionError(f"{fault}: {type(error).__name__} came out, which is no ProviderError") from error
        raise AssertionError(f"{fault}: no error came of it")

    def _check_vectors(self, vectors: Vectors, texts: Sequence[str], *, after: str = "") -> None:
        import numpy as np

        when = f"after {after}: " if after else ""
        assert isinstance(vectors, np.ndarray), f"{when}embed() gave {type(vectors).__name__}, and not an array"
        assert vectors.ndim == 2, f"{when}the array has {vectors.ndim} dimensions, and not a row for each text"
        rows, width = vectors.shape
        assert rows == len(texts), f"{when}{len(texts)} texts came back as {rows} vectors"
        assert width > 0, f"{when}the vectors hold no number"
        assert vectors.dtype == np.float32, f"{when}the numbers are of type {vectors.dtype}, and not float32"
        for row, text in zip(vectors, texts, strict=True):
            assert np.isfinite(row).all(), f"{when}the vector of {text!r} holds a number that is not finite"
        expected = self.expected(texts)
        if expected is not None:
            assert width == len(expected[0]), f"{when}the vectors have {width} numbers, and not {len(expected[0])}"
            _check_same(
                np.array(expected, np.float32), vectors, "is not the one that the engine gave for its text", when
            )


def _run(main: Callable[[], Awaitable[T]]) -> T:
    """As ``trio.run``; what a nursery made a group of comes out as it is, where it is one thing."""
    try:
        return trio.run(main)
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        raise error from None


def _check_same(right: Vectors, given: Vectors, what: str, when: str = "") -> None:
    import numpy as np

    for row, (one, other) in enumerate(zip(right, given, strict=True)):
        far = float(np.abs(one - other).max())
        near = _TOLERANCE * max(float(np.abs(one).max()), 1.0)
        assert far <= near, f"{when}the vector in row {row} {what}: they differ by {far:.3g}"
