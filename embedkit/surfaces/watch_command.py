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
from embedkit.knowledge.sources.filters import NEVER_INDEXED
from embedkit.knowledge.sources.source import printable_path
from embedkit.settings import RepositorySettings, Settings, TenantSettings
from embedkit.surfaces.exits import DONE, INTERRUPTED
from embedkit.surfaces.interrupts import interruptible
from embedkit.surfaces.sync_command import chosen_tenants, show
from embedkit.surfaces.terminal import watching
from embedkit.sweep.sweep import open_sweep

Watch = Callable[..., AsyncGenerator[set[tuple[Any, str]], None]]

# Editors write a file in several steps: take them as one change.
_DEBOUNCE_MS = 400
# The watching thread looks so often whether it is still wanted; its own five seconds are too long for a Ctrl-C.
_LOOK_UP_MS = 200


async def run(given: argparse.Namespace, settings: Settings) -> int:
    """Sync until interrupted.

    Cancellation:
        What was stored stays.
    """
    watch = _watcher()
    tenants = chosen_tenants(given, settings)
    roots = _roots(tenants)
    async with interruptible() as interrupt, open_engine(settings, reserve=0) as engine, trio.open_nursery() as nursery:
        send, changes = trio.open_memory_channel[set[Path]](math.inf)
        # It looks from its first step on; the sweep below takes many before it looks at a file. So no change falls
        # between the two.
        nursery.start_soon(_tell_changes, watch, roots, settings.store.path, send)
        await _sync(engine, tenants, given)
        async for changed in changes:
            touched = _touched(tenants, _all_so_far(changed, changes))
            if touched:
                await _sync(engine, touched, given)
    return INTERRUPTED if interrupt.came else DONE


def _roots(tenants: Sequence[TenantSettings]) -> list[Path]:
    """The folders to watch, without symbolic links in their paths, as changes in them are told.

    Raises:
        UsageError: One is not there, or there is none: a git address cannot be watched.
    """
    named = [item.path for tenant in tenants for item in tenant.repositories if item.enabled and item.path is not None]
    missing = [path for path in named if not path.is_dir()]
    if missing:
        raise UsageError(f"{printable_path(str(missing[0]))} is no folder; name a folder that is there")
    if not named:
        raise UsageError("nothing to watch: no repository of the settings is an enabled folder; try `embedkit sync`")
    return sorted({path.resolve() for path in named})


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
    watch: Watch, roots: Sequence[Path], store: Path, send: trio.MemorySendChannel[set[Path]]
) -> None:
    # The store's own files, its log and index among them: their names begin with its.
    own = str(await trio.Path(store).resolve())

    def may_be_indexed(change: object, path: str) -> bool:
        place = Path(path)
        inner = [place.relative_to(root).parts for root in roots if place.is_relative_to(root)]
        return not path.startswith(own) and any(NEVER_INDEXED.isdisjoint(parts) for parts in inner)

    watched = watch(*roots, watch_filter=may_be_indexed, debounce=_DEBOUNCE_MS, rust_timeout=_LOOK_UP_MS)
    async with send, aclosing(watched) as changes:
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
    if repository.path is None or not repository.enabled:
        return False
    root = repository.path.resolve()
    return any(path.is_relative_to(root) for path in changed)
