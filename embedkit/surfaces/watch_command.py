"""``embedkit watch``: sync, and sync again whenever files change or something is due."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import attrs
import trio

from embedkit.engine import Engine, open_engine
from embedkit.errors import UsageError
from embedkit.knowledge.sources.relevance import Relevance
from embedkit.knowledge.sources.source import printable_path
from embedkit.settings import RepositorySettings, Settings, TenantSettings
from embedkit.surfaces.engine_words import words_shown
from embedkit.surfaces.exits import DONE, INTERRUPTED
from embedkit.surfaces.folder_changes import Changed, tell_changes, watcher
from embedkit.surfaces.interrupts import interruptible
from embedkit.surfaces.sync_command import check_arguments, chosen_tenants, show
from embedkit.surfaces.terminal import watching
from embedkit.sweep.outcome import SweepReport
from embedkit.sweep.repository_run import selection_of
from embedkit.sweep.sweep import open_sweep

Sync = Callable[[Sequence[TenantSettings]], Awaitable[SweepReport]]

_LEAST_WAIT_SECONDS = 1.0  # what is due again at once is tried again after it


async def run(given: argparse.Namespace, settings: Settings) -> int:
    """Sync until interrupted.

    Cancellation:
        What was stored stays.
    """
    watch = watcher()
    check_arguments(given, settings)
    if not given.paths:
        _check_roots(settings.tenants)
    async with (
        interruptible() as interrupt,
        open_engine(settings, reserve=0, show_words=words_shown(given)) as engine,
        trio.open_nursery() as nursery,
    ):
        tenants = await chosen_tenants(given, engine)
        send, changes = trio.open_memory_channel[Changed](math.inf)

        async def sync(some: Sequence[TenantSettings]) -> SweepReport:
            return await _sync(engine, some, as_json=given.json)

        # It looks from its first step on; the sweep takes many before it looks at a file. So no change falls between.
        nursery.start_soon(tell_changes, watch, _watched(tenants, settings), settings.store.path, send)
        await keep_synced(tenants, changes, sync)
    return INTERRUPTED if interrupt.came else DONE


async def keep_synced(
    tenants: Sequence[TenantSettings], changes: trio.MemoryReceiveChannel[Changed], sync: Sync
) -> None:
    """Sync all of ``tenants``, and each repository again when it changes or is due, until nothing more can change.

    Cancellation:
        What was stored stays.
    """
    due: dict[tuple[str, str], float] = {}
    _note_due(due, await sync(tenants))
    while True:
        changed: Changed | None = None
        with trio.move_on_at(min(due.values(), default=math.inf)):
            try:
                changed = await changes.receive()
            except trio.EndOfChannel:
                return
        if changed is not None:
            touched = _changed_in(tenants, _all_so_far(changed, changes))
        else:
            touched = _due_by(tenants, due, trio.current_time())
        if touched:
            _note_due(due, await sync(touched))


def _note_due(due: dict[tuple[str, str], float], report: SweepReport) -> None:
    for item in report.repositories:
        wait = math.inf if item.next_due_in is None else max(item.next_due_in, _LEAST_WAIT_SECONDS)
        due[(item.tenant, item.name)] = trio.current_time() + wait


async def _sync(engine: Engine, tenants: Sequence[TenantSettings], *, as_json: bool) -> SweepReport:
    with watching(sys.stderr) as on_progress:
        async with open_sweep(engine, tenants, all=True, on_progress=on_progress) as sweep:
            report = await sweep.run()
    show(report, as_json=as_json)
    return report


def _check_roots(tenants: Sequence[TenantSettings]) -> None:
    """Before anything is opened.

    Raises:
        UsageError: A folder is not there, or there is none: a git address cannot be watched.
    """
    named = [item.path for item in _folders(tenants) if item.path is not None]
    missing = [path for path in named if not path.is_dir()]
    if missing:
        raise UsageError(f"{printable_path(str(missing[0]))} is no folder; name a folder that is there")
    if not named:
        raise UsageError("nothing to watch: no repository of the settings is an enabled folder; try `embedkit sync`")


def _watched(tenants: Sequence[TenantSettings], settings: Settings) -> list[Relevance]:
    return [
        Relevance(root, selection_of(item, settings.sweep))
        for item in _folders(tenants)
        if (root := _root_of(item)) is not None
    ]


def _folders(tenants: Iterable[TenantSettings]) -> list[RepositorySettings]:
    return [item for tenant in tenants for item in tenant.repositories if item.enabled and item.path is not None]


def _root_of(item: RepositorySettings) -> Path | None:
    """The folder without symbolic links in its path, as changes in it are told."""
    return item.path.resolve() if item.enabled and item.path is not None else None


def _all_so_far(first: Changed, changes: trio.MemoryReceiveChannel[Changed]) -> Changed:
    """What changed during the last sync is one sync's work."""
    found = set(first)
    with suppress(trio.WouldBlock):
        while True:
            found |= changes.receive_nowait()
    return found


def _changed_in(tenants: Sequence[TenantSettings], roots: Changed) -> list[TenantSettings]:
    return _only(tenants, lambda _, item: _root_of(item) in roots)


def _due_by(
    tenants: Sequence[TenantSettings], due: Mapping[tuple[str, str], float], now: float
) -> list[TenantSettings]:
    return _only(tenants, lambda tenant, item: due.get((tenant.name, item.name), math.inf) <= now)


def _only(
    tenants: Sequence[TenantSettings], is_meant: Callable[[TenantSettings, RepositorySettings], bool]
) -> list[TenantSettings]:
    """The tenants with only those repositories that are meant."""
    found = []
    for tenant in tenants:
        chosen = tuple(item for item in tenant.repositories if item.enabled and is_meant(tenant, item))
        if chosen:
            found.append(attrs.evolve(tenant, repositories=chosen))
    return found
