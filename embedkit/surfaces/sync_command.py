"""``embedkit sync``: one sweep, over folders or over the settings' tenants."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import attrs
import trio

from embedkit.engine import Engine, open_engine
from embedkit.errors import UsageError
from embedkit.settings import Settings, TenantSettings
from embedkit.surfaces.engine_words import words_shown
from embedkit.surfaces.exits import DONE, FAILED, INTERRUPTED, WORK_LEFT, print_json, print_text
from embedkit.surfaces.folders import TENANT, Known, folders_of, tenant_of
from embedkit.surfaces.interrupts import interruptible
from embedkit.surfaces.report_text import report_text
from embedkit.surfaces.terminal import watching
from embedkit.sweep.outcome import Status, SweepReport
from embedkit.sweep.sweep import open_sweep

if TYPE_CHECKING:
    from embedkit.knowledge.storing.protocol import Store
    from embedkit.knowledge.storing.repositories import RepositoryRecord

_EXITS: dict[Status, int] = {
    "completed": DONE,
    "failed": FAILED,
    "starved": FAILED,
    "deferred": WORK_LEFT,
    "partial": WORK_LEFT,
    "aborted": WORK_LEFT,
}


async def run(given: argparse.Namespace, settings: Settings) -> int:
    """Sweep once, and say what came of it.

    Cancellation:
        What was stored stays.
    """
    check_arguments(given, settings)
    report: SweepReport | None = None
    async with interruptible() as interrupt, open_engine(settings, reserve=0, show_words=words_shown(given)) as engine:
        tenants = await chosen_tenants(given, engine)
        with watching(sys.stderr) as on_progress:
            every = bool(given.paths) or given.all
            async with open_sweep(
                engine,
                tenants,
                all=every,
                on_progress=on_progress,
                allow_empty=given.allow_empty,
                retry_fenced=given.retry_fenced,
                again=True,
            ) as sweep:
                try:
                    await sweep.run()
                finally:
                    report = sweep.report()
    if report is not None:
        show(report, as_json=given.json, list_left_out=given.list_skipped, go_on=go_on_with(given))
    if interrupt.came:
        return INTERRUPTED
    assert report is not None
    return _EXITS[report.status]


def check_arguments(given: argparse.Namespace, settings: Settings) -> None:
    """Before anything is opened or made.

    Raises:
        UsageError: Nothing is named, or a path that cannot be swept.
    """
    name = getattr(given, "name", None)
    if name is not None and (len(given.paths) != 1 or not name.strip() or not name.isprintable()):
        raise UsageError("--name gives the repository of one folder a name in one line: name one folder with it")
    if given.paths:
        folders_of(given.paths)
    elif not any(tenant.repositories for tenant in settings.tenants):
        where = f"{settings.file} has no tenants" if settings.file is not None else "there is no embedkit.toml"
        raise UsageError(f"nothing to sync: no folder is named and {where}; try `embedkit sync FOLDER`")


async def chosen_tenants(given: argparse.Namespace, engine: Engine) -> Sequence[TenantSettings]:
    """What is to be swept: the folders, under the names that the store knows them by, or the settings' tenants.

    Raises:
        UsageError: A path cannot be swept, or ``--name`` belongs to another folder.
        StoreError: The store cannot be read.

    Cancellation:
        Nothing was changed.
    """
    tenants: Sequence[TenantSettings] = engine.settings.tenants
    if given.paths:
        name = getattr(given, "name", None)
        store = await engine.knowledge()
        known = [_known(store, record) for record in await store.repositories() if record.tenant == TENANT]
        naming = partial(tenant_of, folders_of(given.paths), known, name=name)
        tenants = [await trio.to_thread.run_sync(naming)]
    return [_selecting(tenant, tuple(given.include), tuple(given.exclude)) for tenant in tenants]


def _known(store: Store, record: RepositoryRecord) -> Known:
    def hashes() -> dict[str, str]:
        stored = trio.from_thread.run(store.stored, record)
        return {path: content_hash for path, (content_hash, _) in stored.items()}

    return Known(record.name, record.root, hashes)


def _selecting(tenant: TenantSettings, include: tuple[str, ...], exclude: tuple[str, ...]) -> TenantSettings:
    """The tenant, with what ``--include`` and ``--exclude`` say of each of its repositories."""
    if not include and not exclude:
        return tenant
    repositories = tuple(
        attrs.evolve(item, include=include or item.include, exclude=(*item.exclude, *exclude))
        for item in tenant.repositories
    )
    return attrs.evolve(tenant, repositories=repositories)


def go_on_with(given: argparse.Namespace) -> str:
    """The command that goes on at once with what is left, whatever is due."""
    words = ["embedkit", "sync"]
    for option in ("config", "store", "provider"):
        if getattr(given, option) is not None:
            words += [f"--{option}", str(getattr(given, option))]
    for option in ("include", "exclude"):
        words += [word for glob in getattr(given, option) for word in (f"--{option}", glob)]
    if given.name is not None:
        words += ["--name", given.name]
    return shlex.join([*words, *(str(path) for path in given.paths)] if given.paths else [*words, "--all"])


def show(report: SweepReport, *, as_json: bool, list_left_out: bool = False, go_on: str | None = None) -> None:
    """Print a report, and how to go on with what is left."""
    if as_json:
        print_json(report.as_json())
    else:
        print_text(report_text(report, list_left_out=list_left_out, go_on=go_on))
