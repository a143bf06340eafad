from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import trio
import trio.testing
from fakes import (
    FakeCall,
    FakeProvider,
    cancelled_at_step,
    numbered,
    opened,
    settings_of,
    tenant,
    vectors_of,
    write_tree,
)

from embedkit.admission.circuit import Circuit
from embedkit.database import open_database
from embedkit.engine import open_engine
from embedkit.errors import (
    ConnectionRefused,
    LaneClosed,
    ProviderCircuitOpen,
    ProviderFailure,
    ProviderTimeout,
    QueueWaitExceeded,
    SpaceMismatch,
    StoreUnreadable,
    UsageError,
)
from embedkit.providers.identity import Identity
from embedkit.sweep.sweep import open_sweep


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite3"


async def test_row_i_is_for_text_i(store: Path) -> None:
    texts = ["one", "two", "one"]
    provider = FakeProvider()
    async with opened(store, provider) as engine:
        bought = await engine.embed(texts)
    np.testing.assert_array_equal(bought.vectors, vectors_of(texts))
    assert bought.vectors.dtype == np.float32
    assert (bought.provider, bought.model, bought.attempts) == ("fake", "hash", 1)
    assert [call.texts for call in provider.calls] == [("one", "two", "one")]


async def raised_in(store: Path, error: Exception) -> None:
    async with opened(store) as engine:
        await engine.embed(["one"])
        raise error


async def test_what_the_block_raises_comes_out_as_it_is(store: Path) -> None:
    for error in (ValueError("mine"), ConnectionRefused("nobody"), ExceptionGroup("mine", [ValueError()])):
        with pytest.raises(type(error)) as raised:
            await raised_in(store, error)
        assert raised.value is error


async def test_a_providers_failure_is_the_callers_with_its_clocks(store: Path) -> None:
    async def fails(call: FakeCall) -> None:
        raise ConnectionRefused("nobody listens")

    async with opened(store, FakeProvider(fails)) as engine:
        with pytest.raises(ConnectionRefused) as raised:
            await engine.embed(["one"])
    assert raised.value.attempts == 1
    assert raised.value.clocks is not None


async def test_a_defect_in_a_provider_is_the_failure_of_who_called_it(store: Path) -> None:
    async def fails(call: FakeCall) -> None:
        raise ZeroDivisionError("a text that nobody may see")

    async with opened(store, FakeProvider(fails)) as engine:
        for _ in range(2):
            with pytest.raises(ProviderFailure, match=r"^provider fake: it failed \(ZeroDivisionError\)$") as caught:
                await engine.embed(["one"])
            assert isinstance(caught.value.__cause__, ZeroDivisionError)


async def test_an_unknown_provider_is_named(store: Path) -> None:
    async with opened(store) as engine:
        with pytest.raises(UsageError, match="nobody"):
            await engine.embed(["one"], provider="nobody")


class SlowPreflight(FakeProvider):
    """A provider that is asked about its model, and fails the first time."""

    asked = 0

    async def preflight(self) -> Identity:
        self.asked += 1
        await trio.testing.wait_all_tasks_blocked()
        if self.asked == 1:
            raise UsageError("the engine does not have the model")
        return Identity("listed", self.model)


async def test_a_model_is_asked_for_until_it_is_there_and_once_then(store: Path) -> None:
    provider = SlowPreflight()
    async with opened(store, provider) as engine:
        with pytest.raises(UsageError, match="does not have"):
            await engine.embed(["one"])
        assert provider.calls == []
        async with trio.open_nursery() as nursery:
            for text in ("one", "two", "three"):
                nursery.start_soon(engine.embed, [text])
    assert provider.asked == 2
    assert len(provider.calls) == 3


async def test_a_deadline_that_passes_in_the_queue_sends_nothing(store: Path, autojump_clock: object) -> None:
    async def stuck(call: FakeCall) -> None:
        await trio.sleep(100)

    provider = FakeProvider(stuck)
    async with opened(store, provider) as engine, trio.open_nursery() as nursery:
        nursery.start_soon(engine.embed, ["first"])
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(QueueWaitExceeded):
            await engine.embed(["second"], deadline=5.0)
    assert provider.inputs == ["first"]


async def test_a_timeout_trips_the_callers_circuit_before_anybody_else_is_served(
    store: Path, autojump_clock: object
) -> None:
    async def stuck(call: FakeCall) -> None:
        await trio.sleep(math.inf)

    provider, circuit = FakeProvider(stuck), Circuit()
    ends: list[type[Exception]] = []
    async with opened(store, provider) as engine:

        async def embed(text: str) -> None:
            with pytest.raises((ProviderTimeout, ProviderCircuitOpen)) as raised:
                await engine.embed([text], timeout=1.0, circuit=circuit)
            ends.append(type(raised.value))

        async with trio.open_nursery() as nursery:
            for text in ("one", "two", "three"):
                nursery.start_soon(embed, text)
    assert sorted(ends, key=lambda end: end.__name__) == [ProviderCircuitOpen, ProviderCircuitOpen, ProviderTimeout]
    assert len(provider.calls) == 1


async def test_an_engine_that_has_closed_takes_nothing(store: Path) -> None:
    async with opened(store) as engine:
        await engine.embed(["one"])
        engine.close()
        with pytest.raises(LaneClosed):
            await engine.embed(["two"])
    fresh = settings_of(store)
    async with open_engine(fresh, providers={"fake": FakeProvider()}) as engine:
        engine.close()
        with pytest.raises(UsageError, match="closed"):
            await engine.embed(["one"])


async def test_leaving_waits_for_calls_that_are_out_and_being_cancelled_does_not(
    store: Path, autojump_clock: trio.testing.MockClock
) -> None:
    for cancelled in (False, True):
        began = trio.current_time()
        ended: list[float] = []

        async def slow(call: FakeCall, ended: list[float] = ended) -> None:
            await trio.sleep(3)
            ended.append(trio.current_time())

        with trio.CancelScope() as scope:
            async with opened(store, FakeProvider(slow)) as engine:
                with trio.move_on_after(1):
                    await engine.embed(["one"])
                if cancelled:
                    scope.cancel()
        assert len(ended) == (0 if cancelled else 1)
        assert trio.current_time() - began == (1 if cancelled else 3)


async def test_the_knowledge_base_is_opened_once_and_not_made_unless_it_may_be(store: Path) -> None:
    async with opened(store) as engine:
        with pytest.raises(UsageError, match="no store at"):
            await engine.knowledge(create=False)
        assert not await trio.Path(store).exists()
        found = []

        async def ask() -> None:
            found.append(await engine.knowledge())

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask)
        assert len(set(map(id, found))) == 1


async def test_a_knowledge_base_that_cannot_be_opened_is_named_and_may_be_mended(store: Path) -> None:
    await trio.Path(store).write_bytes(b"no database" * 500)
    async with opened(store) as engine:
        with pytest.raises(StoreUnreadable, match=str(store)):
            await engine.knowledge()
        await trio.Path(store).unlink()
        await engine.knowledge()


async def test_an_opening_that_is_cancelled_at_any_await_leaves_the_next_one_whole(store: Path) -> None:
    for step in range(1, 200):
        async with opened(store) as engine:
            with cancelled_at_step(step) as scope:
                await engine.knowledge()
            store_, again = await engine.knowledge(), await engine.knowledge()
            assert store_ is again
            assert (await engine.probe()).verdict == "healthy"
        async with open_database(store, create=False) as database:
            rows = await database.read(lambda c: c.execute("SELECT count(*) FROM activity_tickets").fetchall())
        assert rows == [(1,)], "one probe, written down once, and reused from the file by every engine after it"
        if not scope.cancelled_caught:
            assert step > 5
            return
    pytest.fail("200 steps were not enough to open a knowledge base")


async def test_search_refuses_to_compare_what_cannot_be_compared(store: Path, tmp_path: Path) -> None:
    root = write_tree(tmp_path / "root", numbered(2))
    async with opened(store) as engine, open_sweep(engine, [tenant("a", api=root)]) as sweep:
        await sweep.run()
    other = FakeProvider(model="another")
    async with opened(store, other) as engine:
        with pytest.raises(SpaceMismatch):
            await engine.search("text", tenant="a")
        assert other.calls == []
        assert len(await engine.search("text", tenant="a", mode="text")) == 2


async def test_a_zero_vector_is_alike_to_nothing_and_no_error(store: Path, tmp_path: Path) -> None:
    class Zeros(FakeProvider):
        async def embed(self, texts):  # type: ignore[no-untyped-def]
            return np.zeros((len(texts), 8), np.float32)

    root = write_tree(tmp_path / "root", numbered(2))
    async with opened(store, Zeros()) as engine:
        async with open_sweep(engine, [tenant("a", api=root)]) as sweep:
            assert (await sweep.run()).status == "completed"
        hits = await engine.search("text", tenant="a", mode="vector")
        assert all(math.isfinite(hit.score) for hit in hits)
