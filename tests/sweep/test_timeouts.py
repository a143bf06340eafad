"""What the next sweep makes of a timeout: smaller batches, and a suspected input last, alone, and after a control."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

import attrs
import pytest
import trio
from fakes import FakeCall, FakeProvider, answers, numbered, opened, settings_of, tenant, write_tree
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_content import content_of, paths_in
from trio.testing import MockClock

from embedkit.engine import open_engine
from embedkit.errors import (
    ConnectionRefused,
    DeadlineExceeded,
    EmbedkitError,
    ProviderAuthError,
    ProviderTimeout,
)
from embedkit.knowledge.indexing.bisecting import CONTROL
from embedkit.knowledge.storing.repositories import RepositoryRecord
from embedkit.knowledge.storing.store import SqliteStore
from embedkit.providers.ollama import OllamaProvider
from embedkit.providers.openai_compatible import OpenAICompatibleProvider
from embedkit.settings import ProviderSettings
from embedkit.sweep.outcome import RepositoryReport, SweepReport
from embedkit.sweep.sweep import open_sweep
from embedkit.testing.engine_memory import MemoryEngine, open_memory_engine
from embedkit.testing.engine_rules import Rule, containing, noted_in, stall_before_reply
from embedkit.testing.engine_wire import EngineRequest

TIMEOUT = "KB_VECTOR_EMBED_PROVIDER_TIMEOUT"
POISON = {"poison.txt": "a poison text\n"}


async def poisonous(call: FakeCall) -> None:
    """The script of an engine that never ends with one text."""
    await trio.lowlevel.checkpoint()
    if any("poison" in text for text in call.texts):
        raise ProviderTimeout("slow")


async def dead(call: FakeCall) -> None:
    """The script of an engine that answers nobody."""
    await trio.lowlevel.checkpoint()
    raise ProviderTimeout("slow")


@attrs.define
class Place:
    """A repository, and sweeps of it, each in an engine of its own."""

    root: Path
    store: Path
    batch: int = 8
    capacity: int = 1

    async def sweep(self, provider: FakeProvider, **settings: object) -> RepositoryReport:
        (report,) = (await self.sweep_all(provider, "one", **settings)).repositories
        return report

    async def sweep_all(self, provider: FakeProvider, *names: str, **settings: object) -> SweepReport:
        acme = tenant("acme", **dict.fromkeys(names, self.root))
        async with (
            opened(self.store, provider, batch=self.batch, capacity=self.capacity, **settings) as engine,
            open_sweep(engine, [acme], all=True) as sweep,
        ):
            return await sweep.run()

    async def record(self) -> RepositoryRecord:
        async with opened(self.store) as engine:
            return (await (await engine.knowledge()).repositories())[0]

    def rows(self, table: str) -> list[tuple[str, str]]:
        """Codes of fences, or marks, with the generations' part that says the dimension."""
        column = "code" if table == "fences" else "mark"
        with closing(sqlite3.connect(self.store)) as connection:
            return connection.execute(f"SELECT {column}, generation FROM {table}").fetchall()

    @property
    def fences(self) -> list[str]:
        return [code for code, _ in self.rows("fences")]

    @property
    def marks(self) -> list[str]:
        return [mark for mark, _ in self.rows("marks")]


def place(tmp_path: Path, texts: dict[str, str], **width: int) -> Place:
    return Place(write_tree(tmp_path / "root", texts), tmp_path / "store.sqlite3", **width)


# -- the ceiling -----------------------------------------------------------------------------------------------------


async def test_a_batch_that_timed_out_halves_the_next_ones_and_clean_sweeps_double_them(tmp_path: Path) -> None:
    at = place(tmp_path, numbered(40))
    ceilings: list[int | None] = []
    widest: list[int] = []

    async def too_much(call: FakeCall) -> None:
        if len(call.texts) > 2:
            raise ProviderTimeout("slow")

    for script in (too_much, too_much, too_much, answers, answers, answers):
        provider = FakeProvider(script)
        write_tree(at.root, numbered(20, f"more {len(widest)}"))
        await at.sweep(provider)
        ceilings.append((await at.record()).batch_ceiling)
        widest.append(max(len(call.texts) for call in provider.calls))
    assert ceilings == [4, 2, 4, None, None, None]
    assert widest == [8, 4, 2, 4, 8, 8]


async def test_the_ceiling_follows_the_ticket_and_not_the_settings(tmp_path: Path) -> None:
    at = place(tmp_path, numbered(5))
    await at.sweep(FakeProvider(dead))
    assert (await at.record()).batch_ceiling == 2


async def test_a_ticket_of_one_says_nothing_of_how_many_are_too_many(tmp_path: Path) -> None:
    at = place(tmp_path, numbered(1))
    await at.sweep(FakeProvider(dead))
    assert ((await at.record()).batch_ceiling, at.marks) == (None, ["timed-out"])


@pytest.mark.parametrize(
    "error",
    [ConnectionRefused("nobody"), DeadlineExceeded("late"), ProviderAuthError("no key")],
    ids=lambda error: type(error).__name__,
)
async def test_no_other_failure_lowers_it_or_raises_suspicion(error: EmbedkitError, tmp_path: Path) -> None:
    at = place(tmp_path, numbered(1))

    async def fails(call: FakeCall) -> None:
        raise error

    await at.sweep(FakeProvider(fails))
    assert ((await at.record()).batch_ceiling, at.marks) == (None, [])


async def test_who_is_shed_by_anothers_timeout_keeps_its_width(tmp_path: Path) -> None:
    at = place(tmp_path, numbered(8))
    report = await at.sweep_all(FakeProvider(dead), "one", "two", concurrency=1)
    assert report.circuit is not None
    async with opened(at.store) as engine:
        records = await (await engine.knowledge()).repositories()
    held = {record.name: record.batch_ceiling for record in records}
    assert held.pop(report.circuit.name) == 4
    assert list(held.values()) == [None]


async def test_a_sweep_that_was_not_clean_holds_it(tmp_path: Path) -> None:
    at = place(tmp_path, numbered(8))
    await at.sweep(FakeProvider(dead))

    async def refuses(call: FakeCall) -> None:
        raise ConnectionRefused("nobody listens")

    await at.sweep(FakeProvider(refuses))
    assert (await at.record()).batch_ceiling == 4


# -- suspicion -------------------------------------------------------------------------------------------------------


async def test_one_that_times_out_alone_twice_is_fenced_and_the_rest_is_stored_before(tmp_path: Path) -> None:
    at = place(tmp_path, numbered(5) | {"a.txt": "a poison text\n"}, batch=1)
    first = FakeProvider(poisonous)
    report = await at.sweep(first)
    assert (report.outcome, report.code, report.fenced) == ("deferred", TIMEOUT, 0)
    assert (len(first.calls), at.marks, at.fences) == (1, ["timed-out"], [])

    second = FakeProvider(poisonous)
    report = await at.sweep(second)
    assert (report.outcome, report.code) == ("deferred", TIMEOUT)
    assert (report.embedded, report.outstanding, report.fenced) == (5, 0, 1)
    assert [call.texts[0].strip() for call in second.calls[-2:]] == [CONTROL, "a poison text"]
    assert sorted(second.answered[:-1]) == sorted(set(second.answered[:-1]))
    assert (at.marks, at.fences) == ([], [TIMEOUT])

    third = FakeProvider(poisonous)
    report = await at.sweep(third)
    assert (report.outcome, report.fenced, report.provider_calls, third.calls) == ("complete", 1, 0, [])


async def test_one_that_is_answered_after_all_is_under_suspicion_no_more(tmp_path: Path) -> None:
    at = place(tmp_path, POISON)
    await at.sweep(FakeProvider(dead))
    assert at.marks == ["timed-out"]
    well = FakeProvider()
    report = await at.sweep(well)
    assert (report.outcome, report.embedded, report.fenced) == ("complete", 1, 0)
    assert [text.strip() for text in well.inputs] == [CONTROL, "a poison text"]
    assert (at.marks, at.fences) == ([], [])


async def test_a_control_that_times_out_says_nothing_of_the_suspect(tmp_path: Path) -> None:
    at = place(tmp_path, POISON)
    for _ in range(4):
        provider = FakeProvider(dead)
        report = await at.sweep(provider)
        assert (report.outcome, report.code, len(provider.calls)) == ("deferred", TIMEOUT, 1)
        assert (at.marks, at.fences) == (["timed-out"], [])
    assert provider.inputs == [CONTROL]


async def test_another_generation_offers_it_again(tmp_path: Path) -> None:
    at = place(tmp_path, POISON)
    for _ in range(2):
        await at.sweep(FakeProvider(poisonous))
    with closing(sqlite3.connect(at.store)) as connection, connection:
        connection.execute("UPDATE fences SET generation = 'another'")
        connection.execute("UPDATE documents SET generation = generation - 1")
        connection.execute("DELETE FROM sightings")
    well = FakeProvider()
    report = await at.sweep(well)
    assert (report.outcome, report.fenced, report.embedded) == ("complete", 0, 1)
    assert [text.strip() for text in well.inputs] == ["a poison text"]


async def test_the_old_text_serves_until_the_new_one_is_fenced(tmp_path: Path) -> None:
    at = place(tmp_path, {"poison.txt": "an old text\n"})
    await at.sweep(FakeProvider())
    before = content_of(at.store)
    write_tree(at.root, POISON)
    await at.sweep(FakeProvider(poisonous))
    assert content_of(at.store) == before
    report = await at.sweep(FakeProvider(poisonous))
    assert (report.outcome, report.chunks, report.fenced, report.deleted) == ("deferred", 0, 1, 1)


async def test_two_repositories_with_the_same_suspect_fence_it_once(tmp_path: Path) -> None:
    at = place(tmp_path, numbered(3) | POISON, batch=1)
    for _ in range(6):
        report = await at.sweep_all(FakeProvider(poisonous), "one", "two")
        if report.status == "completed":
            break
    assert [(item.outcome, item.fenced) for item in report.repositories] == [("complete", 1)] * 2
    assert (at.fences, at.marks) == ([TIMEOUT], [])


async def test_two_suspects_are_tried_one_a_sweep(tmp_path: Path) -> None:
    """The timeout of the first ends the run: what the second one would say then is the engine's trouble."""
    at = place(tmp_path, {"first.txt": "first\n"}, batch=1)
    await at.sweep(FakeProvider())
    write_tree(at.root, {"one.txt": "a poison text\n", "two.txt": "another poison text\n", "z.txt": "well\n"})
    seen = []
    for _ in range(5):
        provider = FakeProvider(poisonous)
        report = await at.sweep(provider)
        poison = sum("poison" in text for text in provider.inputs)
        seen.append((report.outcome, poison, len(at.marks), len(at.fences)))
    assert seen == [
        ("deferred", 1, 1, 0),
        ("deferred", 1, 2, 0),
        ("deferred", 1, 1, 1),
        ("deferred", 1, 0, 2),
        ("complete", 0, 0, 2),
    ]


async def test_a_spent_slice_leaves_the_trial_to_the_next_sweep(tmp_path: Path) -> None:
    at = place(tmp_path, {"a.txt": "first\n"}, batch=1)
    await at.sweep(FakeProvider())
    write_tree(at.root, POISON)
    await at.sweep(FakeProvider(poisonous))
    write_tree(at.root, {"z.txt": "another\n"})
    provider = FakeProvider(poisonous)
    report = await at.sweep(provider, slice=1e-9)
    assert (report.outcome, report.embedded, report.outstanding) == ("partial-progress", 1, 1)
    assert [text.strip() for text in provider.inputs] == ["another"]
    report = await at.sweep(FakeProvider(poisonous), slice=1e-9)
    assert (report.outcome, report.fenced, at.fences) == ("deferred", 1, [TIMEOUT])  # never before the first


class Full(SqliteStore):
    """A store whose disk is full when something is to be remembered of an input."""

    async def record_finding(self, *what: object) -> None:
        from embedkit.errors import StoreFull

        raise StoreFull("full")


async def test_a_suspicion_that_cannot_be_written_is_a_failure_besides(tmp_path: Path) -> None:
    at = place(tmp_path, POISON)
    async with (
        opened(at.store, FakeProvider(dead)) as engine,
        open_sweep(engine, [tenant("acme", one=at.root)], all=True) as sweep,
    ):
        assert isinstance(sweep.store, SqliteStore)
        sweep.store = Full(sweep.store._database)
        (report,) = (await sweep.run()).repositories
    assert (report.outcome, report.code, report.provider_calls) == ("failed", "KB_STORE_FULL", 1)


# -- over many sweeps ------------------------------------------------------------------------------------------------


@asynccontextmanager
async def memory_sweeps(
    kind: str, tmp_path: Path, texts: dict[str, str], rules: Sequence[Rule], *, batch: int, capacity: int
) -> AsyncGenerator[tuple[MemoryEngine, Callable[[], Awaitable[RepositoryReport]]]]:
    """Sweeps over an adapter of ``kind`` to an engine in memory, whose attempts take 60 s at most."""
    root = write_tree(tmp_path / "root", texts)
    described = ProviderSettings(
        kind=kind,  # type: ignore[arg-type]  # a kind's name
        base_url="http://memory",
        model="scripted",
        capacity=capacity,
        timeout=60.0,
    )
    chosen = attrs.evolve(
        settings_of(tmp_path / "store.sqlite3", batch=batch, slice=1e6), providers={"fake": described}
    )
    made = OllamaProvider if kind == "ollama" else OpenAICompatibleProvider
    async with open_memory_engine(slots=capacity, service=0.1, split=kind != "ollama", rules=rules) as engine:

        async def sweep() -> RepositoryReport:
            provider = made("fake", "http://memory", "scripted", open_exchange=engine.open_exchange)
            async with (
                open_engine(chosen, reserve=0, providers={"fake": provider}) as opened_engine,
                open_sweep(opened_engine, [tenant("acme", one=root)], all=True) as run,
            ):
                (report,) = (await run.run()).repositories
            return report

        yield engine, sweep


@pytest.mark.parametrize("where", ["000.txt", "file010x.txt", "zzz.txt"])
@pytest.mark.parametrize(
    ("kind", "batch", "capacity"), [("ollama", 8, 1), ("ollama", 5, 2), ("openai-compatible", 8, 4)]
)
async def test_a_text_that_always_times_out_ends_fenced_and_all_others_are_stored(
    kind: str, batch: int, capacity: int, where: str, tmp_path: Path, autojump_clock: MockClock
) -> None:
    requests: list[EngineRequest] = []
    rules = [noted_in(requests), Rule(containing("poison"), stall_before_reply())]
    width = batch if kind == "ollama" else min(batch, capacity)
    texts = numbered(30) | {where: "a poison text\n"}
    reports: list[RepositoryReport] = []
    async with memory_sweeps(kind, tmp_path, texts, rules, batch=batch, capacity=capacity) as (engine, sweep):
        while not reports or reports[-1].outcome != "complete":
            reports.append(await sweep())
            assert len(reports) < 12
        asked = engine.log.requests
        again = await sweep()
        assert (again.outcome, again.provider_calls, engine.log.requests) == ("complete", 0, asked)

    last = reports[-1]
    assert (last.fenced, last.chunks, last.documents, last.outstanding) == (1, 30, 31, 0)
    assert [report.outcome for report in reports[:-1]] == ["deferred"] * (len(reports) - 1)
    # One timeout a sweep: the halvings, the first time alone, and the second behind a control. None in the last.
    timeouts = [request for request in requests if any("poison" in text for text in request.texts)]
    assert len(timeouts) == len(reports) - 1 <= width.bit_length() + 1
    assert [len(request.texts) for request in timeouts[-2:]] == [1, 1]
    assert Counter(text for request in requests for text in request.texts)[CONTROL] == 1
    answered = [record for record in engine.log.records if record.outcome == "answered"]
    bought = Counter(hash_ for record in answered for hash_ in record.hashes)
    assert len(bought) == 31  # the control among them
    assert set(bought.values()) == {1}


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    alive=st.lists(st.booleans(), max_size=12),
    batch=st.sampled_from([1, 2, 5]),
    capacity=st.integers(1, 3),
    changes=st.lists(st.integers(0, 4), min_size=12, max_size=12),
)
async def test_a_dead_engine_fences_nothing_however_often_it_dies(
    alive: list[bool], batch: int, capacity: int, changes: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    at = place(tmp_path_factory.mktemp("at"), numbered(4) | POISON, batch=batch, capacity=capacity)
    for is_alive, change in zip(alive, changes, strict=False):
        write_tree(at.root, {f"file{change:03}.txt": f"changed while {is_alive}\n"})
        provider = FakeProvider(poisonous if is_alive else dead)
        await at.sweep(provider)
        if not is_alive:
            assert len(provider.calls) <= 1
    for _ in range(12):
        provider = FakeProvider(poisonous)
        report = await at.sweep(provider)
        if report.outcome == "complete":
            break
    assert (report.outcome, report.fenced, at.fences) == ("complete", 1, [TIMEOUT])
    held = {row[2]: row[8].strip() for row in content_of(at.store).chunks}
    assert held == {path.name: path.read_text().strip() for path in at.root.iterdir() if path.name != "poison.txt"}


# -- cancelled at awkward moments ------------------------------------------------------------------------------------


class CancelAtStep(trio.abc.Instrument):
    """Cancels ``scope`` just before the task step of this number, counted from 1."""

    def __init__(self, step: int, scope: trio.CancelScope, provider: FakeProvider) -> None:
        self.steps = 0
        self.answered: list[str] = []
        self._at = step
        self._scope = scope
        self._provider = provider

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps += 1
        if self.steps == self._at:
            self.answered = list(self._provider.answered)
            self._scope.cancel()


async def under_suspicion(folder: Path) -> Place:
    """A repository with a text that has timed out alone once, and two that are new since."""
    at = place(folder, POISON, batch=1)
    await at.sweep(FakeProvider(poisonous))
    write_tree(at.root, {"new.txt": "new\n", "newer.txt": "newer\n"})
    return at


async def cancelled(at: Place, step: int) -> tuple[FakeProvider, CancelAtStep, bool]:
    """The sweep of the trial, cancelled at a step; also says whether it was over before."""
    provider = FakeProvider(poisonous)
    scope = trio.CancelScope()
    instrument = CancelAtStep(step, scope, provider)
    over = False
    async with (
        opened(at.store, provider, batch=1) as engine,
        open_sweep(engine, [tenant("acme", one=at.root)], all=True) as sweep,
    ):
        trio.lowlevel.add_instrument(instrument)
        with scope:
            await sweep.run()
            over = True
        trio.lowlevel.remove_instrument(instrument)
    return provider, instrument, over


async def check(model: Place, folder: Path, step: int) -> bool:
    """One cell of the matrix; whether ``step`` lies behind the sweep's end."""
    shutil.copytree(model.root.parent, folder)
    at = attrs.evolve(model, root=folder / "root", store=folder / "store.sqlite3")
    provider, instrument, over = await cancelled(at, step)
    tried = [text for text in provider.inputs if "poison" in text]
    assert len(at.fences) <= len(tried) <= 1
    assert len(at.fences) + len(at.marks) == 1  # in any case it is known
    for _ in range(3):
        again = FakeProvider(poisonous)
        report = await at.sweep(again)
        assert not (set(again.answered) - {CONTROL}) & set(instrument.answered), "bought is kept"
        if report.outcome == "complete":
            break
    assert (report.outcome, report.fenced, report.chunks) == ("complete", 1, 2)
    assert (at.fences, at.marks) == ([TIMEOUT], [])
    assert paths_in(at.store) == ["new.txt", "newer.txt", "poison.txt"]
    return over


async def test_a_trial_that_is_cancelled_at_some_steps(tmp_path: Path) -> None:
    model = await under_suspicion(tmp_path / "model")
    shutil.copytree(tmp_path / "model", tmp_path / "whole")
    whole = attrs.evolve(model, root=tmp_path / "whole" / "root", store=tmp_path / "whole" / "store.sqlite3")
    _, instrument, over = await cancelled(whole, 10**9)
    assert over
    steps = instrument.steps
    # The trial is the end of it.
    for step in sorted({*random.Random(1).sample(range(1, steps), 6), *range(steps - 24, steps, 2)}):
        await check(model, tmp_path / str(step), step)


@pytest.mark.soak
async def test_a_trial_that_is_cancelled_at_every_step(tmp_path: Path) -> None:
    model = await under_suspicion(tmp_path / "model")
    step = 1
    while not await check(model, tmp_path / str(step), step):
        step += 1
    assert step > 50
