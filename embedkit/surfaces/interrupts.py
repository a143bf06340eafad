"""Ctrl-C, SIGTERM, SIGHUP: the work is cancelled, what was stored stays, and the process is gone within two seconds."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NoReturn

import attrs
import trio

from embedkit.ask.children import end_groups_now
from embedkit.surfaces.exits import INTERRUPTED

_PATIENCE_SECONDS = 1.6


@attrs.define
class Interrupt:
    """Whether a signal ended the block."""

    came: bool = False


@asynccontextmanager
async def interruptible() -> AsyncGenerator[Interrupt]:
    """Run the block until it ends or a signal comes; then ``came`` is true and the block was cancelled.

    Cancellation:
        Passes on; the signals' former handlers are back.
    """
    interrupt = Interrupt()
    failed: Exception | None = None
    async with trio.open_nursery() as nursery:
        work = trio.CancelScope()
        await nursery.start(_listen, interrupt, work)
        with work:
            try:
                yield interrupt
            except Exception as error:
                failed = error  # kept aside, so that the nursery does not wrap it in a group
        nursery.cancel_scope.cancel()
    if failed is not None:
        raise failed


async def _listen(
    interrupt: Interrupt, work: trio.CancelScope, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        task_status.started()
        async for _ in signals:
            if interrupt.came:
                _leave()  # asked twice: at once. The store is whole at any moment.
            interrupt.came = True
            _bound_the_end()
            work.cancel()


def _bound_the_end() -> None:
    """Cancelling waits for worker threads, and one may hang (a dead network file system): do not wait with it."""
    signal.signal(signal.SIGALRM, lambda *_: _leave())
    signal.setitimer(signal.ITIMER_REAL, _PATIENCE_SECONDS)


def _leave() -> NoReturn:
    end_groups_now()  # programs that were asked have sessions of their own, and would go on
    os._exit(INTERRUPTED)
