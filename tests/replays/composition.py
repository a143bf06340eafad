"""Two repositories, a sweep, a lane of one slot, HTTP and a scripted engine: the whole composition, for replays."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from embedkit.admission.ticket import TimeoutHook
from embedkit.engine import Engine, open_engine
from embedkit.settings import (
    EmbeddingSettings,
    ProviderSettings,
    RepositorySettings,
    Settings,
    StoreSettings,
    SweepSettings,
    TenantSettings,
)
from embedkit.sweep.outcome import RepositoryReport, SweepReport
from embedkit.sweep.sweep import Sweep, open_sweep
from embedkit.testing.scripted_engine import ScriptedEngine

TIMEOUT = 60.0


def two_repositories(folder: Path, scripted: ScriptedEngine, kind: str, *, texts: int = 1) -> Settings:
    """Settings: one tenant, repositories ``one`` and ``two`` of ``texts`` documents each, one input a ticket."""
    repositories = []
    for name in ("one", "two"):
        root = folder / name
        root.mkdir()
        for number in range(texts):
            (root / f"{number}.txt").write_text(f"text {number} of repository {name}\n", encoding="utf-8")
        repositories.append(RepositorySettings(name=name, path=root))
    url = scripted.base_url if kind == "ollama" else scripted.openai_url
    return Settings(
        providers={"box": ProviderSettings(kind=kind, base_url=url, model="scripted", timeout=TIMEOUT)},  # type: ignore[arg-type]  # a kind's name
        embedding=EmbeddingSettings(provider="box", batch=1),
        store=StoreSettings(path=folder / "store.sqlite3"),
        sweep=SweepSettings(concurrency=2, tenant_concurrency=2),
        tenants=(TenantSettings(name="acme", repositories=tuple(repositories)),),
    )


@asynccontextmanager
async def a_sweep(settings: Settings, hook: TimeoutHook | None = None) -> AsyncGenerator[tuple[Engine, Sweep]]:
    async with (
        open_engine(settings, reserve=0) as engine,
        open_sweep(engine, all=True, on_provider_timeout=hook) as sweep,
    ):
        yield engine, sweep


async def first_times_out(
    settings: Settings, scripted: ScriptedEngine, clock: MockClock, hook: TimeoutHook | None = None
) -> SweepReport:
    """Sweep: one repository is on the wire, the other is queued; then the limit of the first one passes."""
    async with a_sweep(settings, hook) as (engine, sweep):
        reports: list[SweepReport] = []

        async def run() -> None:
            reports.append(await sweep.run())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await scripted.wait_for_requests(1)
            while engine.lane().statistics().totals.queued < 1:
                await wait_all_tasks_blocked(0.005)  # the other repository still comes through its worker threads
            assert engine.lane().statistics().tickets_in_flight == 1
            clock.jump(TIMEOUT)
    (report,) = reports
    return report


def the_one_that_timed_out(report: SweepReport) -> tuple[RepositoryReport, RepositoryReport]:
    """The repository that tripped the circuit, and the other one."""
    assert report.circuit is not None
    first, second = report.repositories
    return (first, second) if first.name == report.circuit.name else (second, first)
