"""Gemini behind the engine (AC-11): remote and unqueued. No lane governs it and no circuit is claimed for it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from embedkit.admission.circuit import Circuit
from embedkit.engine import Engine, open_engine
from embedkit.errors import (
    ContentRefused,
    DeadlineExceeded,
    LaneClosed,
    ProviderBusy,
    ProviderTimeout,
    QueueWaitExceeded,
    UsageError,
)
from embedkit.providers import gemini
from embedkit.settings import (
    EmbeddingSettings,
    EngineSettings,
    ProviderSettings,
    RepositorySettings,
    Settings,
    StoreSettings,
    SweepSettings,
    TenantSettings,
)
from embedkit.sweep.sweep import open_sweep
from embedkit.testing.engine_answers import vector_of
from embedkit.testing.engine_rules import Behaviour, Rule, always, nth, stall_before_reply, status
from embedkit.testing.scripted_engine import ScriptedEngine, open_scripted_engine

DOCS = Path(__file__).parents[2] / "docs"


def settings_for(scripted: ScriptedEngine, **provider: Any) -> Settings:
    described = ProviderSettings(
        kind="gemini", base_url=scripted.gemini_url, model="scripted", api_key_env="FAR_KEY", **provider
    )
    return Settings(providers={"far": described}, embedding=EmbeddingSettings(provider="far"))


@asynccontextmanager
async def opened(**script: Any) -> AsyncGenerator[tuple[Engine, ScriptedEngine]]:
    async with (
        open_scripted_engine(api_key="g-key", **{"slots": 50, **script}) as scripted,
        open_engine(settings_for(scripted), environ={"FAR_KEY": "g-key"}) as engine,
    ):
        yield engine, scripted


def told_to_wait(delay: str) -> Behaviour:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}]
    error = {"code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED", "details": details}
    return Behaviour(status=429, body=json.dumps({"error": error}).encode(), computes=False)


def right(texts: list[str]) -> np.ndarray[Any, Any]:
    return np.array([vector_of(text, 8) for text in texts], dtype=np.float32)


async def test_ac_11_it_is_not_queued_and_its_module_and_the_documentation_say_so() -> None:
    async with opened() as (engine, _):
        bought = await engine.embed(["one", "two"], priority="interactive")
        np.testing.assert_array_equal(bought.vectors, right(["one", "two"]))
        assert not engine.is_queued()
        assert engine.lanes == []
        with pytest.raises(UsageError, match="provider far is unqueued"):
            engine.lane("far")
        (row,) = engine.ledger.settled_rows()
    assert (row.disposition, row.outcome, row.inputs) == ("not-applicable", "succeeded", 2)
    assert row.clocks.queue_wait == 0.0
    assert bought.clocks == row.clocks
    assert "unqueued" in str(gemini.__doc__)
    assert "Gemini is remote and unqueued" in (DOCS / "providers.md").read_text("utf-8")


async def test_a_batch_over_the_bound_is_split_and_comes_back_as_one() -> None:
    texts = [f"text {number}" for number in range(250)]
    async with opened() as (engine, scripted):
        bought = await engine.embed(texts)
        np.testing.assert_array_equal(bought.vectors, right(texts))
        assert [record.inputs for record in scripted.log.records] == [100, 100, 50]
        assert bought.attempts == 3
        assert len(engine.ledger.settled_rows()) == 3


async def test_retry_info_is_waited_and_only_the_last_failure_counts(autojump_clock: MockClock) -> None:
    async with opened(rules=[Rule(nth(1), told_to_wait("7.5s"))]) as (engine, scripted):
        bought = await engine.embed(["one"])
        first, second = scripted.log.records
        assert second.arrived_at - first.arrived_at == pytest.approx(7.5)
        (row,) = engine.ledger.settled_rows()
    assert (bought.attempts, row.outcome, row.code) == (2, "succeeded", None)
    assert bought.clocks.retry_wait == pytest.approx(7.5)
    assert [attempt.code for attempt in row.attempts] == ["KB_VECTOR_EMBED_PROVIDER_BUSY", None]


async def test_a_busy_provider_without_a_hint_is_final_for_a_batch() -> None:
    async with opened(rules=[Rule(always, status(503, "The model is overloaded."))]) as (engine, scripted):
        with pytest.raises(ProviderBusy) as caught:
            await engine.embed(["one"])
        assert scripted.log.requests == 1
        assert caught.value.clocks is not None
        assert (caught.value.attempts, caught.value.attribution) == (1, "provider")


async def test_a_timeout_trips_nothing_and_tells_no_hook(autojump_clock: MockClock) -> None:
    circuit, told = Circuit(), list[Exception]()
    async with opened(rules=[Rule(nth(1), stall_before_reply())]) as (engine, _):
        with pytest.raises(ProviderTimeout, match=r"within 20 s \(.*request"):
            await engine.embed(["one"], timeout=20.0, circuit=circuit, on_provider_timeout=told.append)
        assert (circuit.is_open, told) == (False, [])
        assert (await engine.embed(["two"], circuit=circuit)).vectors.shape == (1, 8)
        failed, succeeded = engine.ledger.settled_rows()
    assert (failed.outcome, failed.failure_stage, failed.code) == (
        "failed",
        "provider",
        "KB_VECTOR_EMBED_PROVIDER_TIMEOUT",
    )
    assert succeeded.outcome == "succeeded"


async def test_a_deadline_that_passes_is_the_callers_and_not_the_providers(autojump_clock: MockClock) -> None:
    async with opened(rules=[Rule(nth(1), stall_before_reply())]) as (engine, scripted):
        with pytest.raises(DeadlineExceeded) as caught:
            await engine.embed(["one"], deadline=3.0)
        assert caught.value.clocks is not None
        assert caught.value.clocks.provider_time == pytest.approx(3.0)
        with pytest.raises(QueueWaitExceeded, match="provider far: the deadline passed; nothing was sent"):
            await engine.embed(["one"], deadline=0.0)
        assert scripted.log.requests == 1
        assert [row.outcome for row in engine.ledger.settled_rows()] == ["aborted", "withdrawn"]


async def test_who_leaves_closes_the_transport_and_harms_nobody() -> None:
    async with opened(rules=[Rule(nth(1), stall_before_reply())]) as (engine, scripted):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(engine.embed, ["one"])
            await scripted.wait_for_requests(1)
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        await scripted.wait_until(lambda log: log.open_connections == 0)
        (row,) = engine.ledger.settled_rows()
        assert (row.outcome, row.code) == ("aborted", None)
        assert (await engine.embed(["two"])).vectors.shape == (1, 8)


async def test_calls_run_side_by_side_and_few_connections_are_kept() -> None:
    released = trio.Event()
    async with opened(rules=[Rule(always, Behaviour(until=released))]) as (engine, scripted):
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(engine.embed, [f"text {number}"])
            await scripted.wait_for_requests(20)
            released.set()
        await scripted.wait_until(lambda log: log.open_connections == 8)
        await engine.embed(["again"])
        assert scripted.log.connections == 21  # the preflight's, and one for each call that was out at once


async def test_nothing_is_left_open_when_the_engine_ends() -> None:
    async with open_scripted_engine(api_key="g-key") as scripted:
        async with open_engine(settings_for(scripted), environ={"FAR_KEY": "g-key"}) as engine:
            await engine.embed(["one"])
            engine.close()
            with pytest.raises(LaneClosed):
                await engine.embed(["two"])
        await scripted.wait_until(lambda log: log.open_connections == 0)


async def test_a_missing_key_says_which_variable() -> None:
    async with open_scripted_engine() as scripted, open_engine(settings_for(scripted), environ={}) as engine:
        with pytest.raises(UsageError, match="FAR_KEY"):
            await engine.embed(["one"])


async def test_a_refused_content_names_its_input() -> None:
    refused = status(400, "requests[1].content: contents is not specified")
    async with opened(rules=[Rule(always, refused)]) as (engine, _):
        with pytest.raises(ContentRefused) as caught:
            await engine.embed(["one", "two"])
        assert caught.value.input_index == 1


async def test_a_probe_is_one_call_without_a_lane(tmp_path: Path) -> None:
    async with open_scripted_engine(api_key="g-key") as scripted:
        settings = attrs.evolve(settings_for(scripted), store=StoreSettings(path=tmp_path / "store.sqlite3"))
        async with open_engine(settings, environ={"FAR_KEY": "g-key"}) as engine:
            assert (await engine.probe()).verdict == "healthy"
            (row,) = engine.ledger.settled_rows()
            assert (row.priority, row.disposition) == ("probe", "not-applicable")


async def test_a_failing_verdict_is_shared_between_processes(tmp_path: Path) -> None:
    """The second engine, on the same knowledge base, asks nobody: it is told."""
    async with open_scripted_engine(api_key="g-key", rules=[Rule(always, status(503, "overloaded"))]) as scripted:
        settings = attrs.evolve(settings_for(scripted), store=StoreSettings(path=tmp_path / "store.sqlite3"))
        async with open_engine(settings, environ={"FAR_KEY": "g-key"}) as first:
            assert (await first.probe()).verdict == "degraded"
            assert (await first.probe()).shared
            async with open_engine(settings, environ={"FAR_KEY": "g-key"}) as second:
                verdict = await second.probe()
        assert (verdict.verdict, verdict.shared) == ("degraded", True)
        assert scripted.log.requests == 1


async def test_a_failing_probe_is_overruled_by_real_work(tmp_path: Path) -> None:
    async with open_scripted_engine(api_key="g-key", rules=[Rule(nth(1), status(503, "overloaded"))]) as scripted:
        settings = attrs.evolve(settings_for(scripted), store=StoreSettings(path=tmp_path / "store.sqlite3"))
        async with open_engine(settings, environ={"FAR_KEY": "g-key"}) as engine:
            assert (await engine.probe()).verdict == "degraded"
            await engine.embed(["one"])
            assert engine.probes.verdict("far").verdict == "healthy"
        assert scripted.log.requests == 2


# -- sweeps ----------------------------------------------------------------------------------------------------------


def two_folders(folder: Path, scripted: ScriptedEngine, **provider: Any) -> Settings:
    repositories = []
    for name in ("one", "two"):
        (folder / name).mkdir()
        for number in range(12):
            (folder / name / f"{number}.txt").write_text(f"text {number} of {name}\n", encoding="utf-8")
        repositories.append(RepositorySettings(name=name, path=folder / name))
    return attrs.evolve(
        settings_for(scripted, **provider),
        store=StoreSettings(path=folder / "store.sqlite3"),
        sweep=SweepSettings(concurrency=1),
        engine=EngineSettings(drain_timeout=0.0),
        tenants=(TenantSettings(name="acme", repositories=tuple(repositories)),),
    )


async def test_a_sweep_over_it(tmp_path: Path) -> None:
    async with open_scripted_engine(api_key="g-key") as scripted:
        settings = two_folders(tmp_path, scripted, capacity=2)
        async with open_engine(settings, environ={"FAR_KEY": "g-key"}) as engine:
            async with open_sweep(engine, all=True) as sweep:
                report = await sweep.run()
            assert [item.outcome for item in report.repositories] == ["complete", "complete"]
            assert sum(record.inputs for record in scripted.log.records) == 24
            (hit, *_) = await engine.search("text 3 of two\n", tenant="acme", k=1)
    assert (hit.repository, hit.path) == ("two", "3.txt")


async def test_its_timeout_opens_no_circuit_and_the_next_repository_is_tried(tmp_path: Path) -> None:
    async with open_scripted_engine(api_key="g-key", rules=[Rule(nth(1), stall_before_reply())]) as scripted:
        settings = two_folders(tmp_path, scripted, timeout=0.2)
        async with (
            open_engine(settings, environ={"FAR_KEY": "g-key"}) as engine,
            open_sweep(engine, all=True) as sweep,
        ):
            report = await sweep.run()
    assert report.circuit is None
    assert sorted(item.outcome for item in report.repositories) == ["complete", "deferred"]
    (deferred,) = [item for item in report.repositories if item.outcome == "deferred"]
    assert deferred.code == "KB_VECTOR_EMBED_PROVIDER_TIMEOUT"


async def test_a_hint_holds_back_whoever_comes_after_it(autojump_clock: MockClock) -> None:
    """Three batches, and the first is told to wait: the others are not sent meanwhile."""
    arrived: dict[str, float] = {}

    async def embed(engine: Engine, text: str, after: float) -> None:
        await trio.sleep(after)
        await engine.embed([text], priority="batch")
        arrived[text] = trio.current_time()

    async with opened(rules=[Rule(nth(1), told_to_wait("5s"))]) as (engine, scripted):
        async with trio.open_nursery() as nursery:
            for place, text in enumerate(("first", "second", "third")):
                nursery.start_soon(embed, engine, text, float(place))
        waits = {row.id: (row.clocks.queue_wait, row.clocks.retry_wait) for row in engine.ledger.settled_rows()}
        assert [pytest.approx(wait) for wait in sorted(waits.values())] == [(0.0, 5.0), (3.0, 0.0), (4.0, 0.0)]
        assert [record.arrived_at for record in scripted.log.records] == pytest.approx([0.0, 5.0, 5.0, 5.0])
        assert engine.provider().dimension == 8
    assert list(arrived.values()) == pytest.approx([5.0, 5.0, 5.0])


async def test_a_deadline_that_passes_while_it_is_held_back_sends_nothing(autojump_clock: MockClock) -> None:
    async with (
        opened(rules=[Rule(nth(1), told_to_wait("5s"))]) as (engine, scripted),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(engine.embed, ["first"])
        await scripted.wait_for_requests(1)
        await wait_all_tasks_blocked()
        with pytest.raises(QueueWaitExceeded, match="it asked everybody to stay away"):
            await engine.embed(["second"], deadline=1.0)
        assert trio.current_time() == pytest.approx(1.0)
    assert scripted.log.requests == 2


async def test_a_hint_over_the_cap_holds_back_for_the_cap(autojump_clock: MockClock) -> None:
    async with opened(rules=[Rule(nth(1), told_to_wait("500s"))]) as (engine, scripted):
        with pytest.raises(ProviderBusy):
            await engine.embed(["first"], deadline=2.0)
        await engine.embed(["second"])
        assert [record.arrived_at for record in scripted.log.records] == pytest.approx([0.0, 30.0])
