"""Sweeps by themselves: whenever something is due, for ever. One schedule a store; a second one stands by.

What is done next is decided in ``agenda``; here it is waited for and done.

Tests: tests/sweep/test_scheduling.py.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import attrs
import trio

from embedkit.admission.ticket import TimeoutHook
from embedkit.engine import Engine
from embedkit.engine.role import run_as
from embedkit.errors import EmbedkitError, StoreFull, StoreLocked
from embedkit.settings import TenantSettings
from embedkit.sweep.agenda import Agenda, Key
from embedkit.sweep.outcome import SweepReport
from embedkit.sweep.progress import OnProgress
from embedkit.sweep.sweep import open_sweep

ROLE: Final = "schedule"

_log = logging.getLogger("embedkit.schedule")

# Records are looked at again after so long at most: another process may have changed them, or the clock was put.
_LOOK_SECONDS = 60.0
_STORE_SECONDS = 30.0


class Schedule:
    """See ``open_schedule``, which makes it.

    Attributes:
        tenants: What is swept; set by ``reload``.
        is_leading: Whether it is this schedule that sweeps; else it stands by.
    """

    def __init__(
        self,
        engine: Engine,
        tenants: Sequence[TenantSettings],
        *,
        on_report: Callable[[SweepReport], object] | None,
        on_progress: OnProgress | None,
        on_wait: Callable[[str], object] | None,
        on_provider_timeout: TimeoutHook | None,
        wall_clock: Callable[[], float],
    ) -> None:
        self.tenants = tenants
        self.is_leading = False
        self._engine = engine
        self._on_report = on_report
        self._on_progress = on_progress
        self._on_wait = on_wait
        self._on_provider_timeout = on_provider_timeout
        self._now = wall_clock
        probe = engine.settings.probe
        self._agenda = Agenda(pause=probe.failing, hold=probe.failing_cap)
        self._is_ending = False
        self._stirred = trio.Event()

    async def run(self) -> None:
        """Sweep whenever something is due, until cancelled or told to ``finish``.

        A store that is locked or full for a while is waited for.

        Raises:
            UsageError: A key that is unset, a model that the engine does not have, or a store of another space.
            StoreError: The store cannot be used: it was moved, is damaged, or cannot be written.

        Cancellation:
            What was stored stays; another schedule of the store takes over at once.
        """
        database = await self._engine.database()
        await run_as(database, ROLE, self._lead, on_wait=self._on_wait)

    def reload(self, tenants: Sequence[TenantSettings]) -> None:
        """Sweep these tenants from the next sweep on."""
        self.tenants = tenants
        self._stirred.set()

    def finish(self) -> None:
        """End ``run`` once the sweep that goes on has ended: at once if there is none."""
        self._is_ending = True
        self._stirred.set()

    async def _lead(self) -> None:
        self.is_leading = True
        try:
            while not self._is_ending:
                try:
                    await self._turn()
                except (StoreLocked, StoreFull) as error:
                    _log.warning("the schedule goes on in %.0f s: %s", _STORE_SECONDS, error)
                    await self._wait(_STORE_SECONDS)
        finally:
            self.is_leading = False

    async def _turn(self) -> None:
        """Do what is to be done now, or wait until there is something."""
        records = await self._records()
        now = self._now()
        due = self._agenda.due(records, now)
        if due:
            await self._sweep(due)
        elif self._agenda.probe_at <= now:
            await self._probe()
        else:
            await self._wait(min(self._agenda.next_at(records) - now, _LOOK_SECONDS))

    async def _wait(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self._stirred.wait()
        self._stirred = trio.Event()

    async def _records(self) -> dict[Key, float | None]:
        """When each enabled repository is due, as the store has it."""
        store = await self._engine.knowledge()
        known = {(record.tenant, record.name): record.next_due_at for record in await store.repositories()}
        named = ((tenant.name, item.name) for tenant in self.tenants for item in tenant.repositories if item.enabled)
        return {key: known.get(key) for key in named}

    async def _sweep(self, due: set[Key]) -> None:
        async with open_sweep(
            self._engine,
            _only(self.tenants, due),
            all=True,  # whose turn it is was decided here
            on_progress=self._on_progress,
            on_provider_timeout=self._on_provider_timeout,
            wall_clock=self._now,
        ) as sweep:
            report = await sweep.run()
        self._agenda.note(report, self._now())
        if self._on_report is not None:
            self._on_report(report)

    async def _probe(self) -> None:
        try:
            verdict = await self._engine.probe()
        except EmbedkitError as error:
            _log.info("the recovery probe failed: %s", error)
            self._agenda.probed(healthy=False)
        else:
            self._agenda.probed(healthy=verdict.verdict == "healthy")


def _only(tenants: Sequence[TenantSettings], chosen: set[Key]) -> list[TenantSettings]:
    found = []
    for tenant in tenants:
        repositories = tuple(item for item in tenant.repositories if (tenant.name, item.name) in chosen)
        if repositories:
            found.append(attrs.evolve(tenant, repositories=repositories))
    return found


@asynccontextmanager
async def open_schedule(
    engine: Engine,
    tenants: Sequence[TenantSettings] | None = None,
    *,
    on_report: Callable[[SweepReport], object] | None = None,
    on_progress: OnProgress | None = None,
    on_wait: Callable[[str], object] | None = None,
    on_provider_timeout: TimeoutHook | None = None,
    wall_clock: Callable[[], float] = time.time,
) -> AsyncGenerator[Schedule]:
    """A schedule over an engine's knowledge base: ``await schedule.run()`` sweeps until it is cancelled.

    Args:
        engine: Whose lanes and knowledge base it uses.
        tenants: Which; else those of the settings.
        on_report: Told of each sweep that has ended, synchronously.
        on_progress: Told of each step of a sweep, synchronously.
        on_wait: Told who it is, if another schedule has the store: this one then stands by.
        on_provider_timeout: As of ``open_sweep``.
        wall_clock: Seconds since 1970, by which repositories are due.

    Raises:
        StoreError: The knowledge base cannot be opened.

    Cancellation:
        Nothing was begun.
    """
    await engine.knowledge()
    schedule = Schedule(
        engine,
        engine.settings.tenants if tenants is None else tenants,
        on_report=on_report,
        on_progress=on_progress,
        on_wait=on_wait,
        on_provider_timeout=on_provider_timeout,
        wall_clock=wall_clock,
    )
    try:
        yield schedule
    finally:
        schedule.finish()
