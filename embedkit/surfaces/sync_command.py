"""``embedkit sync``: one sweep, over folders or over the settings' tenants."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from embedkit.engine import open_engine
from embedkit.errors import UsageError
from embedkit.settings import Settings, TenantSettings
from embedkit.surfaces.exits import DONE, FAILED, INTERRUPTED, WORK_LEFT, print_json, print_text
from embedkit.surfaces.folders import tenant_of
from embedkit.surfaces.interrupts import interruptible
from embedkit.surfaces.report_text import report_text
from embedkit.surfaces.terminal import watching
from embedkit.sweep.outcome import Status, SweepReport
from embedkit.sweep.sweep import open_sweep

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
    tenants = chosen_tenants(given, settings)
    report: SweepReport | None = None
    async with interruptible() as interrupt, open_engine(settings, reserve=0) as engine:
        with watching(sys.stderr) as on_progress:
            every = bool(given.paths) or given.all
            async with open_sweep(
                engine, tenants, all=every, on_progress=on_progress, allow_empty=given.allow_empty
            ) as sweep:
                try:
                    await sweep.run()
                finally:
                    report = sweep.report()
    if report is not None:
        show(report, as_json=given.json)
    if interrupt.came:
        return INTERRUPTED
    assert report is not None
    return _EXITS[report.status]


def chosen_tenants(given: argparse.Namespace, settings: Settings) -> Sequence[TenantSettings]:
    """What is to be swept.

    Raises:
        UsageError: Nothing is named, or a path that cannot be swept.
    """
    if given.paths:
        return [tenant_of(given.paths)]
    if not any(tenant.repositories for tenant in settings.tenants):
        where = f"{settings.file} has no tenants" if settings.file is not None else "there is no embedkit.toml"
        raise UsageError(f"nothing to sync: no folder is named and {where}; try `embedkit sync FOLDER`")
    return settings.tenants


def show(report: SweepReport, *, as_json: bool) -> None:
    """Print a report."""
    if as_json:
        print_json(report.as_json())
    else:
        print_text(report_text(report))
