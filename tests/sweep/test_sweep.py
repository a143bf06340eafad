from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from fakes import FakeCall, FakeProvider, Script, numbered, opened, tenant, until, write_tree
from store_content import content_of, paths_in

from embedkit.engine import Engine
from embedkit.errors import (
    ConnectionRefused,
    EmbedkitError,
    ProviderAuthError,
    ProviderTimeout,
    SpaceMismatch,
    StoreFull,
)
from embedkit.knowledge.sources.source import open_source
from embedkit.knowledge.storing.leases import Lease
from embedkit.knowledge.storing.store import SqliteStore
from embedkit.settings import RepositorySettings, TenantSettings
from embedkit.sweep import repository_run
from embedkit.sweep.outcome import SweepReport
from embedkit.sweep.schedule import jitter
from embedkit.sweep.sweep import Sweep, open_sweep

OPEN = "KB_VECTOR_EMBED_PROVIDER_CIRCUIT_OPEN"
TIMEOUT = "KB_VECTOR_EMBED_PROVIDER_TIMEOUT"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite3"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "root", numbered(6))


def raising(make: Callable[[], EmbedkitError], *, after: int = 0) -> Script:
    """Answer ``after`` calls, then fail each one."""

    async def script(call: FakeCall) -> None:
        if call.number > after:
            raise make()

    return script


async def sweep_once(engine: Engine, *tenants: TenantSettings, every: bool = True, **options: Any) -> SweepReport:
    async with open_sweep(engine, tenants, all=every, **options) as sweep:
        return await sweep.run()


async def swept(
    store: Path, *tenants: TenantSettings, provider: FakeProvider | None = None, every: bool = True, **settings: Any
) -> SweepReport:
    async with opened(store, provider, **settings) as engine:
        return await sweep_once(engine, *tenants, every=every)


async def test_a_cold_run_an_unchanged_one_and_one_after_a_change(store: Path, root: Path) -> None:
    provider = FakeProvider()
    acme = tenant("acme", api=root)
    first = await swept(store, acme, provider=provider)
    (report,) = first.repositories
    assert (first.status, report.outcome, report.code) == ("completed", "complete", None)
    assert (report.documents, report.chunks, report.embedded, report.provider_calls) == (6, 6, 6, 3)
    assert len(provider.inputs) == 6

    second = await swept(store, acme, provider=provider)
    (again,) = second.repositories
    assert len(provider.calls) == 3
    assert second.run != first.run
    assert (again.revision, again.embedded, again.reused, again.provider_calls) == (report.revision, 0, 0, 0)
    assert (again.documents, again.chunks) == (6, 6)

    (root / "file003.txt").write_text("changed\n")
    (changed,) = (await swept(store, acme, provider=provider)).repositories
    assert [text.strip() for text in provider.inputs[6:]] == ["changed"]
    assert (changed.embedded, changed.deleted, changed.chunks) == (1, 1, 6)
    assert changed.revision != report.revision


async def test_equal_texts_are_bought_once_for_a_tenant_and_again_for_another(store: Path, root: Path) -> None:
    provider = FakeProvider()
    await swept(store, tenant("acme", api=root), provider=provider)
    (report,) = (await swept(store, tenant("acme", copy=root), provider=provider)).repositories
    assert (report.embedded, report.reused, len(provider.inputs)) == (0, 6, 6)
    (report,) = (await swept(store, tenant("other", api=root), provider=provider)).repositories
    assert (report.embedded, report.reused, len(provider.inputs)) == (6, 0, 12)


async def test_a_timeout_ends_the_run_and_only_its_own_repository_bears_its_code(store: Path, root: Path) -> None:
    provider = FakeProvider()
    acme = tenant("acme", **dict.fromkeys(("a", "b", "c", "d"), root))
    told: list[Exception] = []
    async with opened(store, provider, concurrency=1) as engine:

        async def slow_from_the_second_on(call: FakeCall) -> None:
            if call.number > 1:
                await until(lambda: engine.lane().statistics().totals.queued)
                raise ProviderTimeout("slow")

        provider.script = slow_from_the_second_on
        report = await sweep_once(engine, acme, on_provider_timeout=told.append)
        records = await (await engine.knowledge()).repositories()
    assert report.status == "deferred"
    assert report.circuit is not None
    assert (report.circuit.provider, report.circuit.code) == ("fake", TIMEOUT)
    assert len(told) == 1
    by_name = {item.name: item for item in report.repositories}
    slow = by_name.pop(report.circuit.name)
    assert (slow.outcome, slow.code) == ("deferred", TIMEOUT)
    assert slow.embedded == 2
    for other in by_name.values():
        assert (other.outcome, other.code, other.provider_calls) == ("deferred", OPEN, 0)
    # They had not begun: nothing of them has changed.
    assert [record.name for record in records if record.last is not None] == [report.circuit.name]
    # What was out when it tripped was dispatched; nothing was afterwards.
    assert len(provider.calls) == 2
    assert report.circuit.shed == 1


async def test_a_hook_that_raises_does_not_keep_the_circuit_closed(store: Path, root: Path) -> None:
    def fails(error: Exception) -> None:
        raise ValueError("a defect in the hook")

    provider = FakeProvider(raising(lambda: ProviderTimeout("slow")))
    async with opened(store, provider) as engine:
        report = await sweep_once(engine, tenant("acme", a=root), on_provider_timeout=fails)
    assert report.circuit is not None
    assert len(provider.calls) == 1


async def test_the_next_sweep_has_a_fresh_circuit_and_buys_only_what_is_missing(store: Path, root: Path) -> None:
    provider = FakeProvider(raising(lambda: ProviderTimeout("slow"), after=2))
    async with opened(store, provider) as engine:
        await sweep_once(engine, tenant("acme", a=root))
        provider.script = answering
        report = await sweep_once(engine, tenant("acme", a=root))
    assert (report.status, report.circuit) == ("completed", None)
    assert report.repositories[0].embedded == 2
    assert sorted(provider.answered) == sorted(set(provider.answered))
    assert len(paths_in(store)) == 6


async def test_a_refusal_ends_its_repository_and_the_next_is_still_tried(store: Path, root: Path) -> None:
    provider = FakeProvider(raising(lambda: ConnectionRefused("nobody listens")))
    acme = tenant("acme", a=root, b=root)
    report = await swept(store, acme, provider=provider, concurrency=1)
    assert (report.status, report.circuit) == ("deferred", None)
    for item in report.repositories:
        assert (item.outcome, item.code) == ("deferred", "KB_VECTOR_EMBED_CONNECTION_REFUSED")
        assert 1 <= item.provider_calls <= 2  # those that were offered when the first one failed
    assert content_of(store).vectors == []


class WallClock:
    """The wall clock that due times are read from, set by hand."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def time(self) -> float:
        return self.now


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    clock = WallClock()
    make = Sweep.__init__

    def made(self: Sweep, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **{**options, "wall_clock": clock.time})

    monkeypatch.setattr(Sweep, "__init__", made)
    return clock


@attrs.frozen
class Ends:
    """How one sweep ends, and what follows: outcome, streak, seconds until the repository is due."""

    script: Script
    outcome: str
    streak: int
    due_in: float
    settings: Mapping[str, Any] = attrs.field(factory=dict)


JITTER = jitter("acme", "a", 1800.0)
REFUSED = raising(lambda: ConnectionRefused("nobody listens"))
DENIED = raising(lambda: ProviderAuthError("no key"))


async def answering(call: FakeCall) -> None:
    pass


async def test_streak_and_backoff_follow_the_table(
    store: Path, root: Path, wall: WallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = FakeProvider()
    acme = tenant("acme", a=root)
    turns = [
        Ends(REFUSED, "deferred", 0, 1800.0 + JITTER),
        Ends(DENIED, "failed", 1, 2 * (1800.0 + JITTER)),
        Ends(DENIED, "failed", 2, 7200.0),
        Ends(REFUSED, "deferred", 2, 7200.0),
        Ends(DENIED, "failed", 3, 7200.0),
        Ends(answering, "partial-progress", 0, 0.0, {"slice": 1e-9}),
        Ends(DENIED, "failed", 1, 2 * (1800.0 + JITTER)),
        Ends(answering, "complete", 0, 1800.0),
    ]
    for turn in turns:
        provider.script = turn.script
        report = await swept(store, acme, provider=provider, every=False, **turn.settings)
        (item,) = report.repositories
        assert item.outcome == turn.outcome
        assert item.next_due_in == pytest.approx(turn.due_in)
        async with opened(store) as engine:
            (record,) = await (await engine.knowledge()).repositories()
        assert (record.streak, record.last and record.last.outcome) == (turn.streak, turn.outcome)
        assert record.succeeded == (turn.outcome == "complete")
        assert (record.revision is not None) == (turn.outcome == "complete")
        if turn.due_in:
            calls = len(provider.calls)
            wall.now += turn.due_in - 1.0
            (early,) = (await swept(store, acme, provider=provider, every=False)).repositories
            assert (early.outcome, len(provider.calls)) == ("not-due", calls)
            assert early.next_due_in == pytest.approx(1.0)
            wall.now += 1.0


async def test_what_was_never_attempted_is_starved_and_what_succeeded_once_is_not(
    store: Path, root: Path, wall: WallClock
) -> None:
    acme = tenant("acme", a=root)
    await swept(store, acme, provider=FakeProvider(DENIED))
    assert (await swept(store, acme, every=False)).status == "starved"
    await swept(store, acme)
    report = await swept(store, acme, every=False)
    assert (report.status, report.repositories[0].outcome) == ("completed", "not-due")
    assert (report.repositories[0].documents, report.repositories[0].chunks) == (6, 6)


async def test_a_failed_update_holds_the_checkpoint_and_the_old_text_serves(store: Path, root: Path) -> None:
    acme = tenant("acme", a=root)
    (before,) = (await swept(store, acme)).repositories
    content = content_of(store)
    (root / "file000.txt").write_text("changed\n")
    (after,) = (await swept(store, acme, provider=FakeProvider(DENIED))).repositories
    assert (after.outcome, after.revision) == ("failed", before.revision)
    assert content_of(store) == content
    (again,) = (await swept(store, acme)).repositories
    assert (again.outcome, again.embedded) == ("complete", 1)


async def test_concurrency_is_bounded_in_all_and_within_a_tenant(store: Path, tmp_path: Path) -> None:
    tenants = []
    for name in ("a", "b", "c"):
        folders = {
            f"r{number}": write_tree(tmp_path / name / str(number), numbered(3, f"{name} {number}"))
            for number in range(3)
        }
        tenants.append(tenant(name, **folders))
    running: set[tuple[str, str]] = set()
    most = {"all": 0, "a": 0, "b": 0, "c": 0}

    def watch(progress: Any) -> None:
        key = (progress.tenant, progress.name)
        running.discard(key) if progress.report is not None else running.add(key)
        most["all"] = max(most["all"], len(running))
        for name in ("a", "b", "c"):
            most[name] = max(most[name], sum(1 for tenant, _ in running if tenant == name))

    async with opened(store, concurrency=3, tenant_concurrency=2) as engine:
        report = await sweep_once(engine, *tenants, on_progress=watch)
    assert report.status == "completed"
    assert most["all"] <= 3
    assert max(most["a"], most["b"], most["c"]) <= 2
    assert [(item.tenant, item.name) for item in report.repositories] == [
        (name, f"r{number}") for name in "abc" for number in range(3)
    ]


async def test_two_sweeps_of_one_repository_one_is_in_and_the_other_is_put_off(store: Path, root: Path) -> None:
    asked, go_on = trio.Event(), trio.Event()

    async def wait(call: FakeCall) -> None:
        asked.set()
        await go_on.wait()

    first: list[SweepReport] = []
    acme = tenant("acme", a=root)

    async def slow() -> None:
        first.append(await swept(store, acme, provider=FakeProvider(wait)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(slow)
        await asked.wait()
        report = await swept(store, acme)
        go_on.set()
    (item,) = report.repositories
    assert (report.status, item.outcome, item.code) == ("deferred", "deferred", "KB_REPOSITORY_LEASED")
    assert item.provider_calls == 0
    assert first[0].status == "completed"
    async with opened(store) as engine:
        (record,) = await (await engine.knowledge()).repositories()
    assert record.last is not None
    assert record.last.outcome == "complete"


async def test_who_loses_the_lease_commits_nothing_more(store: Path, root: Path) -> None:
    provider = FakeProvider()
    stood: list[tuple[int, int]] = []
    async with opened(store, provider, batch=1) as engine:
        knowledge = await engine.knowledge()
        assert isinstance(knowledge, SqliteStore)

        async def steal(call: FakeCall) -> None:
            if call.number == 3:
                await knowledge._database.write(lambda connection: connection.execute("DELETE FROM leases"))
                record = await knowledge.repository("acme", "a")
                await knowledge.lease(record)
                stood.append(await knowledge.count(record))

        provider.script = steal
        report = await sweep_once(engine, tenant("acme", a=root))
    (item,) = report.repositories
    assert (report.status, item.outcome, item.code) == ("aborted", "aborted", "KB_REPOSITORY_LEASED")
    held = content_of(store)
    assert [(len(held.documents), len(held.vectors))] == stood
    assert stood[0][0] < 6
    async with opened(store) as engine:
        (record,) = await (await engine.knowledge()).repositories()
    assert (record.last, record.revision, record.streak) == (None, None, 0)


class FullOnRenewal(SqliteStore):
    """A store whose disk is full when a lease is renewed."""

    def __init__(self, store: SqliteStore, renewed: threading.Event) -> None:
        super().__init__(store._database)
        self._renewed = renewed

    async def renew(self, lease: Lease) -> None:
        self._renewed.set()
        raise StoreFull("full")


async def test_a_lease_that_cannot_be_renewed_while_files_are_listed_is_a_failure(
    store: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed = threading.Event()

    class Slow:
        def __init__(self, **described: Any) -> None:
            self._source = open_source(**described)

        def snapshot(self, known: Any, *, check: Any) -> Any:
            snapshot = self._source.snapshot(known)
            assert renewed.wait(10)
            return snapshot

    monkeypatch.setattr(repository_run, "LEASE_SECONDS", 0.003)
    monkeypatch.setattr(repository_run, "open_source", lambda **described: Slow(**described))
    async with opened(store) as engine, open_sweep(engine, [tenant("acme", a=root)], all=True) as sweep:
        assert isinstance(sweep.store, SqliteStore)
        sweep.store = FullOnRenewal(sweep.store, renewed)
        (item,) = (await sweep.run()).repositories
    assert (item.outcome, item.code) == ("failed", "KB_STORE_FULL")
    assert paths_in(store) == []
    async with opened(store) as engine:
        (record,) = await (await engine.knowledge()).repositories()
    assert record.revision is None


async def test_a_path_that_is_gone_is_its_own_repositorys_failure(store: Path, root: Path, tmp_path: Path) -> None:
    report = await swept(store, tenant("acme", a=root, gone=tmp_path / "gone"))
    outcomes = {item.name: (item.outcome, item.reason) for item in report.repositories}
    assert report.status == "failed"
    assert outcomes["a"][0] == "complete"
    assert outcomes["gone"][0] == "failed"
    assert str(tmp_path / "gone") in str(outcomes["gone"][1])


async def test_a_disabled_repository_is_no_part_of_the_run(store: Path, root: Path) -> None:
    off = TenantSettings(name="acme", repositories=(RepositorySettings(name="a", path=root, enabled=False),))
    report = await swept(store, off)
    assert (report.status, report.repositories) == ("completed", [])


async def test_another_model_is_refused_before_anything_starts(store: Path, root: Path) -> None:
    await swept(store, tenant("acme", a=root))
    provider = FakeProvider(model="another")
    with pytest.raises(SpaceMismatch, match="another"):
        await swept(store, tenant("acme", a=root), provider=provider)
    assert provider.calls == []


async def test_another_dimension_shows_with_the_first_reply_and_ends_the_run(store: Path, root: Path) -> None:
    acme = tenant("acme", a=root)
    await swept(store, acme)
    before = content_of(store)
    write_tree(root, {"new.txt": "new\n"})
    with pytest.raises(SpaceMismatch, match="16 dimensions"):
        await swept(store, acme, provider=FakeProvider(dimension=16))
    assert content_of(store) == before
    async with opened(store) as engine:
        (record,) = await (await engine.knowledge()).repositories()
    assert record.streak == 0


async def test_the_report_before_the_run_is_over_says_so(store: Path, root: Path) -> None:
    async with opened(store) as engine, open_sweep(engine, [tenant("acme", a=root)]) as sweep:
        assert (sweep.report().status, sweep.report().repositories) == ("aborted", [])
        assert (await sweep.run()).status == "completed"


async def test_the_sweep_that_has_ended_is_told_of_no_late_timeout(store: Path, root: Path) -> None:
    go_on = trio.Event()
    told: list[Exception] = []

    async def slow(call: FakeCall) -> None:
        await go_on.wait()
        raise ProviderTimeout("slow")

    provider = FakeProvider(slow)
    async with opened(store, provider) as engine:
        async with (
            open_sweep(engine, [tenant("acme", a=root)], on_provider_timeout=told.append) as sweep,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(sweep.run)
            await until(lambda: provider.calls)
            nursery.cancel_scope.cancel()
        go_on.set()
        await until(lambda: not engine.lane().statistics().tickets_in_flight)
    assert told == []
    assert sweep.circuit.cause is None
