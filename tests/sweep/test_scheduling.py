"""The schedule by itself, in virtual time: days of it in moments."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from fakes import FakeCall, FakeProvider, numbered, opened, settings_of, tenant, write_tree
from trio.testing import MockClock

from embedkit.engine import Engine, open_engine
from embedkit.errors import ConnectionRefused, ProviderTimeout, SpaceMismatch, StoreLocked, StoreMoved
from embedkit.knowledge.storing.store import SqliteStore
from embedkit.settings import TenantSettings
from embedkit.sweep.outcome import SweepReport
from embedkit.sweep.scheduling import Schedule, open_schedule

START = 1_700_000_000.0
HOUR = 3600.0


def wall_clock() -> float:
    return START + trio.current_time()


async def comes(condition: Callable[[], object]) -> None:
    """Wait, in virtual time, for what has no event of its own."""
    while not condition():  # noqa: ASYNC110
        await trio.sleep(1.0)


@attrs.define
class Watched:
    """The reports of a schedule, and when each sweep had ended."""

    reports: list[SweepReport] = attrs.field(factory=list)
    ended_at: list[float] = attrs.field(factory=list)

    def told(self, report: SweepReport) -> None:
        self.reports.append(report)
        self.ended_at.append(wall_clock() - START)


@asynccontextmanager
async def scheduled(
    engine: Engine, *tenants: TenantSettings, **options: Any
) -> AsyncGenerator[tuple[Schedule, Watched]]:
    """A schedule that runs beside the block."""
    watched = Watched()
    async with (
        open_schedule(engine, tenants, on_report=watched.told, wall_clock=wall_clock, **options) as schedule,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(schedule.run)
        yield schedule, watched
        nursery.cancel_scope.cancel()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite3"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "root", numbered(3))


async def test_it_sweeps_at_the_cadence_and_sees_what_has_changed(
    store: Path, root: Path, patient_clock: MockClock
) -> None:
    provider = FakeProvider()
    async with opened(store, provider, cadence=1800.0) as engine, scheduled(engine, tenant("acme", api=root)) as run:
        _, watched = run
        await trio.sleep(5 * HOUR)
        sweeps = len(watched.reports)
        assert 8 <= sweeps <= 11
        assert len(provider.inputs) == 3
        gaps = [after - before for before, after in zip(watched.ended_at, watched.ended_at[1:], strict=False)]
        assert min(gaps) >= 1800.0
        (root / "new.txt").write_text("new\n")
        await trio.sleep(1900.0)
        assert [text.strip() for text in provider.inputs[3:]] == ["new"]
    assert {report.status for report in watched.reports} == {"completed"}


async def test_an_engine_that_recovers_is_noticed_by_one_probe_and_used_at_once(
    store: Path, root: Path, patient_clock: MockClock
) -> None:
    healed = trio.Event()

    async def script(call: FakeCall) -> None:
        if not healed.is_set():
            raise ConnectionRefused("nobody listens")

    provider = FakeProvider(script)
    async with opened(store, provider, cadence=7200.0) as engine, scheduled(engine, tenant("acme", api=root)) as run:
        _, watched = run
        await comes(lambda: watched.reports)
        assert watched.reports[0].status == "deferred"
        healed.set()
        await trio.sleep(HOUR / 2)
        assert [report.status for report in watched.reports] == ["deferred", "completed"]
        assert watched.ended_at[1] < 7200.0


async def test_an_engine_that_stays_away_is_asked_seldom(store: Path, root: Path, patient_clock: MockClock) -> None:
    async def script(call: FakeCall) -> None:
        raise ConnectionRefused("nobody listens")

    provider = FakeProvider(script)
    tenants = [tenant(name, api=root) for name in ("acme", "globex")]
    async with opened(store, provider, cadence=1800.0) as engine, scheduled(engine, *tenants) as run:
        await trio.sleep(8 * HOUR)
        _, watched = run
    # Each sweep asks once a repository, and one probe follows: some 30 sweeps, not one a second.
    assert 8 < len(watched.reports) < 40, len(watched.reports)
    assert len(provider.calls) < 5 * len(watched.reports)


async def test_a_hung_engine_is_not_fed_by_those_whom_the_circuit_kept_from_beginning(
    store: Path, root: Path, patient_clock: MockClock
) -> None:
    async def script(call: FakeCall) -> None:
        raise ProviderTimeout("it hangs")

    provider = FakeProvider(script)
    tenants = [tenant(f"t{number}", api=root) for number in range(6)]
    async with opened(store, provider, cadence=1800.0, concurrency=1) as engine, scheduled(engine, *tenants) as run:
        await trio.sleep(HOUR)
        _, watched = run
    assert len(provider.calls) < 20
    assert len(watched.reports) < 15


async def test_other_tenants_are_swept_from_the_next_sweep_on(
    store: Path, root: Path, patient_clock: MockClock
) -> None:
    async with opened(store) as engine, scheduled(engine, tenant("acme", api=root)) as (schedule, watched):
        await trio.sleep(60.0)
        schedule.reload([tenant("globex", api=root)])
        await trio.sleep(60.0)
        names = [[item.tenant for item in report.repositories] for report in watched.reports]
        assert names == [["acme"], ["globex"]]


async def test_it_ends_when_it_is_told_to(store: Path, root: Path, patient_clock: MockClock) -> None:
    async with (
        opened(store) as engine,
        open_schedule(engine, [tenant("a", api=root)], wall_clock=wall_clock) as schedule,
    ):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(schedule.run)
            await trio.sleep(60.0)
            schedule.finish()
        assert not schedule.is_leading


async def test_two_schedules_on_one_store_are_one(store: Path, root: Path, patient_clock: MockClock) -> None:
    told: list[str] = []
    provider = FakeProvider()
    acme = tenant("acme", api=root)
    async with (
        opened(store, provider, cadence=1800.0) as first,
        opened(store, provider, cadence=1800.0) as second,
        scheduled(first, acme) as (leading, watched),
    ):
        await comes(lambda: watched.reports)
        async with scheduled(second, acme, on_wait=told.append) as (standing_by, other):
            await trio.sleep(3 * HOUR)
            assert (leading.is_leading, standing_by.is_leading) == (True, False)
            assert (other.reports, len(told)) == ([], 1)
            leading.finish()
            await comes(lambda: standing_by.is_leading)
            await trio.sleep(HOUR)
            assert other.reports
    assert len(provider.inputs) == 3


async def test_a_store_that_is_locked_for_a_while_is_waited_for(
    store: Path, root: Path, patient_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = SqliteStore.repositories
    failures = 3

    async def repositories(self: SqliteStore) -> Any:
        nonlocal failures
        if failures:
            failures -= 1
            raise StoreLocked("another process holds it")
        return await read(self)

    monkeypatch.setattr(SqliteStore, "repositories", repositories)
    async with opened(store) as engine, scheduled(engine, tenant("acme", api=root)) as (_, watched):
        await trio.sleep(300.0)
        assert [report.status for report in watched.reports] == ["completed"]
    assert failures == 0


async def ends_with(
    kind: type[Exception], engine: Engine, root: Path, then: Callable[[], object] | None = None
) -> None:
    async with open_schedule(engine, [tenant("acme", api=root)], wall_clock=wall_clock) as schedule:
        if then is not None:
            then()
        with pytest.raises(kind):
            await schedule.run()


async def test_what_waiting_does_not_mend_ends_it(store: Path, root: Path, patient_clock: MockClock) -> None:
    async with opened(store) as engine, scheduled(engine, tenant("acme", api=root)) as (_, watched):
        await comes(lambda: watched.reports)
    other = FakeProvider(model="another")
    async with open_engine(settings_of(store), reserve=0, providers={"fake": other}) as engine:
        await ends_with(SpaceMismatch, engine, root)
    async with opened(store) as engine:
        await ends_with(StoreMoved, engine, root, store.unlink)
