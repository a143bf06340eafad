"""``embedkit run``: the schedule. Sweeps what is due, and drains, for ever; ``--once`` is one sweep.

SIGTERM, SIGHUP and Ctrl-C end it cleanly. SIGUSR1 reads the settings again, once the sweep that goes on has ended; a
second one does not wait for that. Settings that cannot be used leave those in force that are.

Tests: tests/surfaces/test_run_command.py.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Awaitable, Callable

import attrs
import trio

from embedkit.engine import open_engine
from embedkit.errors import EmbedkitError, UsageError
from embedkit.settings import Settings, load_settings
from embedkit.surfaces import sync_command
from embedkit.surfaces.engine_words import words_shown
from embedkit.surfaces.exits import DONE, INTERRUPTED, show_error
from embedkit.surfaces.interrupts import interruptible
from embedkit.surfaces.notify import notify
from embedkit.surfaces.sync_command import show
from embedkit.surfaces.terminal import watching
from embedkit.sweep.scheduling import Schedule, open_schedule

Work = Callable[[], Awaitable[None]]


async def run(given: argparse.Namespace, settings: Settings) -> int:
    """Sweep until interrupted.

    Cancellation:
        What was stored stays.
    """
    if given.once:
        return await sync_command.run(given, settings)
    _check(settings)
    async with interruptible() as interrupt, trio.open_nursery() as nursery:
        reloading = _Reloading(given, settings)
        await nursery.start(reloading.listen)
        while reloading.next is not None:
            await _run_one(given, reloading)
        nursery.cancel_scope.cancel()
    notify("STOPPING=1")
    return INTERRUPTED if interrupt.came else DONE


async def _run_one(given: argparse.Namespace, reloading: _Reloading) -> None:
    """One engine with its schedule, until other settings are read."""
    settings, reloading.next = reloading.next, None
    assert settings is not None

    def waits(holder: str) -> None:
        sys.stderr.write(f"embedkit: {holder} runs the schedule of {settings.store.path}; standing by\n")
        sys.stderr.flush()

    with watching(sys.stderr) as on_progress, trio.CancelScope() as scope:
        async with (
            open_engine(settings, reserve=0, show_words=words_shown(given)) as engine,
            open_schedule(
                engine,
                on_progress=on_progress,
                on_wait=waits,
                on_report=lambda report: show(report, as_json=given.json),
            ) as schedule,
        ):
            reloading.running = (schedule, scope)
            notify("READY=1")
            await _beside(engine.drain.run, schedule.run)


async def _beside(drain: Work, work: Work) -> None:
    """Drain for as long as the work goes on; what either raises comes out as it is."""
    failed: list[Exception] = []

    async def contained(some: Work) -> None:
        try:
            await some()
        except Exception as error:  # kept aside, so that the nursery makes no group of it
            failed.append(error)
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(contained, drain)
        await contained(work)
        nursery.cancel_scope.cancel()
    if failed:
        raise failed[0]


def _check(settings: Settings) -> None:
    if not any(item.enabled for tenant in settings.tenants for item in tenant.repositories):
        where = f"{settings.file} has no tenants" if settings.file is not None else "there is no embedkit.toml"
        raise UsageError(f"nothing to run: {where}; describe tenants in it, or use `embedkit sync FOLDER`")


@attrs.define(eq=False)
class _Reloading:
    """The settings that are to be in force next, and what goes on under those that are.

    Attributes:
        given: The arguments.
        next: ``None``: the command ends with what goes on.
        running: The schedule, and the scope in which it works.
    """

    given: argparse.Namespace
    next: Settings | None
    running: tuple[Schedule, trio.CancelScope] | None = None

    async def listen(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with trio.open_signal_receiver(signal.SIGUSR1) as signals:
            task_status.started()
            async for _ in signals:
                self._reload()

    def _reload(self) -> None:
        is_again = self.next is not None
        try:
            settings = load_settings(self.given.config).overridden(provider=self.given.provider, store=self.given.store)
            _check(settings)
        except EmbedkitError as error:
            show_error(error, as_json=False)
            return
        self.next = settings
        if self.running is not None:
            schedule, scope = self.running
            schedule.finish()
            if is_again:
                scope.cancel()
