"""A look at a source, in a thread that can be left behind: a disk or a mount may never answer.

Tests: tests/sweep/test_silent_servers.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs
import trio

from embedkit.errors import EmbedkitError, SourceError, UsageError
from embedkit.knowledge.sources.source import Sighting, Snapshot

if TYPE_CHECKING:
    from embedkit.knowledge.sources.source import Source

SILENT_SECONDS: Final = 120.0
"""How long nothing may be heard of a look: it is told of every folder and every file that is read."""

_REASON = 200  # characters of a foreign exception that are shown


@attrs.define
class _Pulse:
    """When something was last heard of a look, in real time. Written by its thread alone."""

    at: float = attrs.field(factory=time.monotonic)

    def beat(self) -> None:
        self.at = time.monotonic()
        trio.from_thread.check_cancelled()


async def look(open_: Callable[[], Source], known: Mapping[str, Sighting], limiter: trio.CapacityLimiter) -> Snapshot:
    """List a source as it is now.

    Args:
        open_: Gives the source of a repository.
        known: What was seen at an earlier look.
        limiter: Bounds the threads. One that is left behind keeps its place in it.

    Raises:
        SourceError: It cannot be listed, or nothing was heard of it for too long. Whatever a source raises is this.

    Cancellation:
        At once. A thread that hangs is left behind; it ends, without effect, when what it waits for answers.
    """
    pulse = _Pulse()
    found: list[Snapshot] = []
    failed: list[EmbedkitError] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_leave_if_silent, pulse, nursery.cancel_scope)
        work = partial(_snapshot, open_, known, pulse)
        try:
            found.append(await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=limiter))
        except Exception as error:  # kept aside, so that the nursery makes no group of it
            failed.append(_named(error))
        nursery.cancel_scope.cancel()
    if failed:
        raise failed[0]
    if not found:
        raise SourceError(f"nothing was heard of its files for {SILENT_SECONDS:g} s: is its disk or mount in order?")
    return found[0]


def _snapshot(open_: Callable[[], Source], known: Mapping[str, Sighting], pulse: _Pulse) -> Snapshot:
    return open_().snapshot(known, check=pulse.beat)


async def _leave_if_silent(pulse: _Pulse, looking: trio.CancelScope) -> None:
    await trio.sleep(SILENT_SECONDS / 4)  # most looks are over by then
    # From here in real time, as the thread's pulse is: the trio clock of a test runs ahead while threads work.
    ended = threading.Event()
    try:
        while (left := pulse.at + SILENT_SECONDS - time.monotonic()) > 0:
            await trio.to_thread.run_sync(ended.wait, left, abandon_on_cancel=True)
        looking.cancel()
    finally:
        ended.set()


def _named(error: Exception) -> EmbedkitError:
    if isinstance(error, UsageError):
        # On the command line a path that is missing is the caller's to mend; in a sweep it is the repository's own
        # failure, and the others go on.
        named: EmbedkitError = SourceError(str(error))
    elif isinstance(error, EmbedkitError):
        return error
    else:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        named = SourceError(f"cannot be listed ({reason[:_REASON]})", code="KB_SOURCE_DEFECT")
    named.__cause__ = error
    return named
