"""The drain: nothing deferred is lost, nothing bought twice, and an engine that hangs is fed ever more slowly."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from fakes import FakeCall, FakeProvider, cancelled_at_step, opened
from hypothesis import given
from hypothesis import strategies as st
from store_content import paths_in
from trio.testing import MockClock

from embedkit.engine import Engine
from embedkit.engine.drain_rules import (
    BATCH,
    INTERVAL_SECONDS,
    LONGEST_SECONDS,
    MOST_ATTEMPTS,
    cooldown,
    pause,
    tickets,
)
from embedkit.errors import (
    ConnectionRefused,
    ContentRefused,
    EmbedkitError,
    ProviderAuthError,
    ProviderTimeout,
    ProviderUnavailable,
    UsageError,
)
from embedkit.knowledge.storing.deferring import Deferred

HOUR = 3600.0


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite3"


async def deferred(engine: Engine, *texts: str, tenant: str = "acme") -> None:
    for text in texts:
        await engine.defer(text, tenant=tenant, repository="memories", path=f"{text.replace(' ', '-')}.txt")


def refusing(word: str, error: type[EmbedkitError]) -> Any:
    async def script(call: FakeCall) -> None:
        if any(word in text for text in call.texts):
            raise error("no")

    return script


def on_one_clock(engine: Engine, clock: MockClock) -> None:
    """The wall clock goes as virtual time does, for the drain and for shared probes."""
    engine.drain._now = engine.probes._wall_clock = lambda: 1e9 + clock.current_time()


async def test_what_was_deferred_is_found_once_it_is_drained(store: Path) -> None:
    provider = FakeProvider()
    async with opened(store, provider) as engine:
        name = await engine.defer("the night train", tenant="acme", repository="memories", metadata={"by": "ann"})
        await deferred(engine, "a red apple")
        assert provider.calls == []
        assert await engine.search("train", tenant="acme", mode="text") == []
        assert (await engine.drain.statistics()).waiting == 2
    async with opened(store, provider) as engine:  # another process
        done = await engine.drain.cycle()
        assert (done.drained, done.calls, done.yielded) == (2, 1, None)
        (hit,) = await engine.search("train", tenant="acme", mode="text")
        assert (hit.path, hit.repository, hit.metadata) == (name, "memories", {"by": "ann"})
        assert (await engine.drain.cycle()).is_empty
        assert len(provider.calls) == 1


async def test_a_cycle_takes_twenty_as_one_ticket_and_a_later_text_takes_the_place_of_its_name(store: Path) -> None:
    provider = FakeProvider()
    async with opened(store, provider) as engine:
        for number in range(BATCH + 5):
            await engine.defer(f"note {number}", tenant="acme", repository="m", path=f"{number % 10}.txt")
        assert (await engine.drain.cycle()).drained == BATCH
        assert [len(call.texts) for call in provider.calls] == [10]
        assert (await engine.drain.until_empty()).drained == 5
        (hit,) = await engine.search("24", tenant="acme", mode="text")
        assert hit.path == "4.txt"
    assert paths_in(store) == [f"{number}.txt" for number in range(10)]


async def test_one_that_is_refused_fails_alone_six_times_and_is_kept(store: Path, patient_clock: MockClock) -> None:
    provider = FakeProvider(refusing("poison", ContentRefused))
    async with opened(store, provider) as engine:
        await deferred(engine, "one", "poison", "two")
        on_one_clock(engine, patient_clock)
        done = await engine.drain.cycle()
        assert (done.drained, done.failed, done.yielded) == (2, 1, None)
        assert [len(call.texts) for call in provider.calls] == [3, 1, 1, 1, 1]
        for attempt in range(2, MOST_ATTEMPTS + 1):
            await trio.sleep(cooldown(attempt - 1) - 1)
            assert (await engine.drain.cycle()).is_empty
            await trio.sleep(2)
            assert (await engine.drain.cycle()).failed == 1
        await trio.sleep(10 * HOUR)
        assert (await engine.drain.cycle()).is_empty
        kept = await engine.drain.statistics()
        assert (kept.waiting, kept.given_up, kept.codes) == (0, 1, {"KB_VECTOR_EMBED_INPUT_REFUSED": 1})
        provider.script = refusing("nothing", ContentRefused)
        assert await engine.drain.revive() == 1
        assert (await engine.drain.cycle()).drained == 1


@pytest.mark.parametrize("error", [ConnectionRefused, ProviderAuthError, ProviderUnavailable, ProviderTimeout])
async def test_an_engine_that_is_away_for_a_day_is_asked_ever_less_and_costs_no_record(
    store: Path, patient_clock: MockClock, error: type[EmbedkitError]
) -> None:
    provider = FakeProvider(refusing("", error))
    cycles: list[object] = []
    async with opened(store, provider) as engine:
        on_one_clock(engine, patient_clock)
        await deferred(engine, "one", "two", "three")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: engine.drain.run(on_cycle=cycles.append))
            await trio.sleep(24 * HOUR)
            assert (await engine.drain.statistics()).given_up == 0
            assert len(provider.calls) < 100
            provider.script = refusing("nothing", error)
            await trio.sleep(2 * HOUR)
            assert (await engine.drain.statistics()).waiting == 0
            nursery.cancel_scope.cancel()
    assert len(cycles) < 60


async def test_a_timeout_ends_the_cycle_and_the_next_begins_with_a_probe(store: Path, patient_clock: MockClock) -> None:
    provider = FakeProvider(refusing("poison", ProviderTimeout))
    async with opened(store, provider) as engine:
        on_one_clock(engine, patient_clock)
        await deferred(engine, "one", "two", "poison", "three")
        await deferred(engine, "other", tenant="globex")
        done = await engine.drain.cycle()
        assert (done.drained, done.yielded) == (0, "KB_VECTOR_EMBED_PROVIDER_TIMEOUT")
        assert len(provider.calls) == 1, "what timed out is not offered again, nor anything else fed to the engine"
        assert (await engine.drain.cycle()).yielded == "KB_DRAIN_PAUSED"
        assert len(provider.calls) == 1
        for _ in range(40):
            await trio.sleep(HOUR)
            await engine.drain.cycle()
        left = await engine.drain.statistics()
        assert (left.waiting, left.given_up) == (0, 1)
    assert sorted(paths_in(store)) == ["one.txt", "other.txt", "three.txt", "two.txt"]


async def test_one_text_that_breaks_the_engine_does_not_hold_up_the_log(store: Path, patient_clock: MockClock) -> None:
    """It answers 500 whenever one text is there, which might pass: by evidence it does not."""
    provider = FakeProvider(refusing("poison", ProviderUnavailable))
    async with opened(store, provider) as engine:
        on_one_clock(engine, patient_clock)
        await deferred(engine, "one", "poison", "two", "three")
        for _ in range(40):
            await trio.sleep(HOUR)
            await engine.drain.cycle()
        left = await engine.drain.statistics()
        assert (left.waiting, left.given_up) == (0, 1)
    assert paths_in(store) == ["one.txt", "three.txt", "two.txt"]


async def test_cancelled_at_any_step_nothing_is_lost_and_little_bought_twice(tmp_path: Path) -> None:
    texts = [f"text {number}" for number in range(4)]
    for step in range(1, 200):
        provider, path = FakeProvider(), tmp_path / f"{step}.sqlite3"
        async with opened(path, provider) as engine:
            await deferred(engine, *texts)
            with cancelled_at_step(step) as scope:
                await engine.drain.cycle()
        async with opened(path, provider) as engine:
            assert not (await engine.drain.until_empty()).yielded
            assert (await engine.drain.statistics()).waiting == 0
        assert paths_in(path) == [f"text-{number}.txt" for number in range(4)]
        assert len(provider.calls) <= 2
        if not scope.cancelled_caught:
            break
    assert 5 < step < 199


async def drain_into(engine: Engine, counts: list[int]) -> None:
    await engine.drain.run(on_cycle=lambda done: counts.append(done.drained))


async def test_of_two_drains_one_works(store: Path, patient_clock: MockClock) -> None:
    provider = FakeProvider()
    async with opened(store, provider) as first, opened(store, provider) as second:
        await first.drain.statistics()
        counts: Sequence[list[int]] = ([], [])
        async with trio.open_nursery() as nursery:
            for engine, count in zip((first, second), counts, strict=True):
                nursery.start_soon(drain_into, engine, count)
            for number in range(6):
                await deferred(second, f"n{number}")
                await trio.sleep(30)
            nursery.cancel_scope.cancel()
    assert sorted(map(sum, counts)) == [0, 6]
    assert len(provider.inputs) == 6


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("x", {"tenant": " "}),
        ("x", {"repository": "a\nb"}),
        ("x", {"path": ""}),
        ("x\udc80", {}),
        ("x", {"metadata": {"a": object()}}),
        (b"x", {}),
    ],
)
async def test_what_cannot_be_stored_is_refused_when_it_is_deferred(store: Path, text: Any, options: Any) -> None:
    async with opened(store) as engine:
        with pytest.raises(UsageError):
            await engine.defer(text, **{"tenant": "acme", "repository": "m", **options})
        assert (await engine.drain.statistics()).waiting == 0


def test_a_pause_is_what_was_spent_and_doubles_to_an_hour() -> None:
    assert [pause(0.0, 0.0), pause(5.0, 0.0), pause(10.0, 120.0), pause(120.0, 120.0)] == [5.0, 10.0, 120.0, 240.0]
    assert pause(3000.0, 10.0) == LONGEST_SECONDS
    assert [cooldown(count) for count in range(1, 4)] == [30.0, 60.0, 120.0]
    assert cooldown(500) == LONGEST_SECONDS
    assert INTERVAL_SECONDS == 5.0


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([None, 1, 2, 5])), max_size=20))
def test_tickets_hold_each_record_once_and_none_is_wider_than_its_records_allow(
    given: list[tuple[str, int | None]],
) -> None:
    records = [Deferred(number, tenant, "m", "p", "t", {}, 0, width) for number, (tenant, width) in enumerate(given)]
    found = list(tickets(records))
    assert sorted(record.id for ticket in found for record in ticket) == list(range(len(records)))
    for ticket in found:
        assert len({record.tenant for record in ticket}) == 1
        assert len(ticket) <= min(record.width or BATCH for record in ticket)
