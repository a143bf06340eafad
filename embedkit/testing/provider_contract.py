"""The provider suite as a pytest class: what a connection of any provider owes to the slot that owns it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import trio

from embedkit import ProviderError
from embedkit.testing import engine_rules as rules
from embedkit.testing.engine_answers import vector_of
from embedkit.testing.engine_rules import Behaviour, Rule
from embedkit.testing.scripted_engine import ScriptedEngine, open_scripted_engine

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from embedkit import Connection, Provider

    Vectors = NDArray[np.float32]

T = TypeVar("T")

DIMENSION = 8
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

    The engine is ``open_scripted_engine``, on real sockets: it speaks OpenAI's, Ollama's and Gemini's languages.
    """

    def make_provider(self, engine: ScriptedEngine) -> Provider:
        """A provider that speaks to ``engine``."""
        raise NotImplementedError("say how the provider is made that is to be held to the contract")

    def expected(self, texts: Sequence[str]) -> list[list[float]]:
        """The vectors that the engine gives for ``texts``."""
        return [list(vector_of(text, DIMENSION)) for text in texts]

    def run_with_engine(self, test: Callable[[ScriptedEngine], Awaitable[T]], *given: Rule, slots: int = 1) -> T:
        """What ``test`` returns, run with an engine that obeys the rules ``given``."""

        async def main() -> T:
            with trio.fail_after(30.0):
                async with open_scripted_engine(slots=slots, rules=given, dimension=DIMENSION) as engine:
                    return await test(engine)

        return trio.run(main)

    def test_row_i_is_the_vector_of_text_i(self) -> None:
        """Shape ``(n, dimension) float32``, in order, every number finite; a blank text keeps its row."""

        async def test(engine: ScriptedEngine) -> Vectors:
            async with self.make_provider(engine).connect() as connection:
                return await connection.embed(TEXTS)

        self._check_vectors(self.run_with_engine(test), TEXTS)

    def test_one_text_is_a_batch_of_one(self) -> None:
        """And its vector is the one that it has in company."""

        async def test(engine: ScriptedEngine) -> Vectors:
            async with self.make_provider(engine).connect() as connection:
                await connection.embed(TEXTS)
                return await connection.embed(TEXTS[2:3])

        self._check_vectors(self.run_with_engine(test), TEXTS[2:3])

    def test_no_text_is_no_request(self) -> None:
        """``(0, dimension)``, and nobody is asked."""

        async def test(engine: ScriptedEngine) -> int:
            async with self.make_provider(engine).connect() as connection:
                assert len(await connection.embed([])) == 0
            return engine.log.requests

        assert self.run_with_engine(test) == 0

    def test_a_failure_is_one_attempt_and_a_provider_error(self) -> None:
        """Retries are the lane's; and the connection is good for the next request, whatever broke."""
        for fault, behaviour in FAULTS.items():

            async def test(engine: ScriptedEngine, fault: str = fault) -> None:
                async with self.make_provider(engine).connect() as connection:
                    await connection.embed(TEXTS)  # the dimension is known from now on
                    await self._check_failure(connection, engine, fault)
                    self._check_vectors(await connection.embed(TEXTS), TEXTS)

            self.run_with_engine(test, Rule(rules.nth(2), behaviour()))

    def test_cancelled_at_each_await(self) -> None:
        """Only Cancelled comes out, and the connection is good for the next request."""

        async def test(engine: ScriptedEngine) -> int:
            async with self.make_provider(engine).connect() as connection:
                for steps in range(1, 1000):
                    finished = await _cancelled_after(steps, connection)
                    self._check_vectors(await connection.embed(TEXTS), TEXTS)
                    if finished:
                        return steps
            raise AssertionError("a thousand steps were not enough for one request")

        assert self.run_with_engine(test) > 1, "an embed that cannot be cancelled is no async function"

    def test_a_cancelled_request_closes_its_transport(self) -> None:
        """The engine sees that its client left: what it does then is its own affair."""
        never = trio.Event()

        async def test(engine: ScriptedEngine) -> None:
            async with self.make_provider(engine).connect() as connection, trio.open_nursery() as nursery:
                nursery.start_soon(connection.embed, TEXTS)
                await engine.wait_for_requests(1)
                nursery.cancel_scope.cancel()
            await engine.wait_until(lambda log: log.records[0].client_left)

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
                await engine.wait_for_requests(20)
                released.set()

        self.run_with_engine(test, Rule(rules.always, rules.hold(released)), slots=20)

    def test_weights_are_positive_and_do_not_fall(self) -> None:
        """A lane reserves room by them."""

        async def test(engine: ScriptedEngine) -> None:
            weights = [self.make_provider(engine).weight(inputs) for inputs in (1, 2, 32, 2048)]
            assert weights[0] >= 1
            assert weights == sorted(weights)

        self.run_with_engine(test)

    async def _check_failure(self, connection: Connection, engine: ScriptedEngine, fault: str) -> None:
        before = engine.log.requests
        try:
            await connection.embed(TEXTS)
        except ProviderError:
            assert engine.log.requests == before + 1, f"{fault}: tried more than once"
            return
        except Exception as error:
            raise AssertionError(f"{fault}: {error!r} is no ProviderError") from error
        raise AssertionError(f"{fault}: no error came of it")

    def _check_vectors(self, vectors: Vectors, texts: Sequence[str]) -> None:
        import numpy as np

        assert vectors.dtype == np.float32
        assert vectors.shape == (len(texts), DIMENSION)
        assert np.isfinite(vectors).all()
        np.testing.assert_allclose(vectors, np.array(self.expected(texts), dtype=np.float32), rtol=1e-5)


async def _cancelled_after(steps: int, connection: Connection) -> bool:
    """Cancel ``embed`` after so many steps of its task; whether it had finished by then."""
    with trio.CancelScope() as scope:
        counter = _StepCounter(trio.lowlevel.current_task(), steps, scope)
        trio.lowlevel.add_instrument(counter)
        try:
            await connection.embed(TEXTS)
        finally:
            trio.lowlevel.remove_instrument(counter)
        return True
    return False


class _StepCounter(trio.abc.Instrument):
    def __init__(self, task: trio.lowlevel.Task, steps: int, scope: trio.CancelScope) -> None:
        self._task = task
        self._left = steps
        self._scope = scope

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._task:
            self._left -= 1
            if self._left == 0:
                self._scope.cancel()
