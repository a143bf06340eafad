"""``embedkit watch``: sync, and sync again whenever files change."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import attrs
import trio

from embedkit.engine import Engine, open_engine
from embedkit.errors import UsageError
from embedkit.settings import RepositorySettings, Settings, TenantSettings
from embedkit.surfaces.exits import DONE, INTERRUPTED
from embedkit.surfaces.interrupts import interruptible
from embedkit.surfaces.sync_command import chosen_tenants, show
from embedkit.surfaces.terminal import watching
from embedkit.sweep.sweep import open_sweep

Watch = Callable[..., AsyncGenerator[set[tuple[Any, str]], None]]

# Editors write a file in several steps: take them as one change.
_DEBOUNCE_MS = 400


async def run(given: argparse.Namespace, settings: Settings) -> int:
    """Sync until interrupted.

    Cancellation:
        What was stored stays.
    """
    watch = _watcher()
    tenants = chosen_tenants(given, settings)
    roots = sorted({item.path for tenant in tenants for item in tenant.repositories if item.path is not None})
    store_folder = settings.store.path.parent
    async with interruptible() as interrupt, open_engine(settings, reserve=0) as engine, trio.open_nursery() as nursery:
        send, changes = trio.open_memory_channel[set[Path]](math.inf)
        # It looks from its first step on; the sweep below takes many before it looks at a file. So no change falls
        # between the two.
        nursery.start_soon(_tell_changes, watch, roots, store_folder, send)
        await _sync(engine, tenants, given)
        async for changed in changes:
            touched = _touched(tenants, _all_so_far(changed, changes))
            if touched:
                await _sync(engine, touched, given)
    return INTERRUPTED if interrupt.came else DONE


async def _sync(engine: Engine, tenants: Sequence[TenantSettings], given: argparse.Namespace) -> None:
    with watching(sys.stderr) as on_progress:
        async with open_sweep(engine, tenants, all=True, on_progress=on_progress) as sweep:
            report = await sweep.run()
    show(report, as_json=given.json)


def _watcher() -> Watch:
    try:
        import watchfiles
    except ImportError:
        raise UsageError("`embedkit watch` needs the watch extra: pip install 'embedkit[watch]'") from None
    return watchfiles.awatch


async def _tell_changes(
    watch: Watch, roots: Sequence[Path], store_folder: Path, send: trio.MemorySendChannel[set[Path]]
) -> None:
    def is_ours(change: object, path: str) -> bool:
        return not Path(path).is_relative_to(store_folder)

    async with send, aclosing(watch(*roots, watch_filter=is_ours, debounce=_DEBOUNCE_MS)) as changes:
        async for some in changes:
            send.send_nowait({Path(path) for _, path in some})


def _all_so_far(first: set[Path], changes: trio.MemoryReceiveChannel[set[Path]]) -> set[Path]:
    """What changed during the last sync is one sync's work."""
    found = set(first)
    with suppress(trio.WouldBlock):
        while True:
            found |= changes.receive_nowait()
    return found


def _touched(tenants: Sequence[TenantSettings], changed: set[Path]) -> list[TenantSettings]:
    """The tenants with only those repositories that something changed in."""
    found = []
    for tenant in tenants:
        hit = tuple(item for item in tenant.repositories if _holds(item, changed))
        if hit:
            found.append(attrs.evolve(tenant, repositories=hit))
    return found


def _holds(repository: RepositorySettings, changed: set[Path]) -> bool:
    if repository.path is None:
        return False
    root = repository.path.resolve()
    return any(path.is_relative_to(root) for path in changed)
