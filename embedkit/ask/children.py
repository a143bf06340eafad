"""Child processes: started in a group of their own, fed, read within bounds, and ended with all that they started.

Theory of operation. A child has a session, so that one signal reaches everything it starts that stays in its group. It
has ended when its process has; its pipes may be held open by a grandchild for ever, so after that they are read for
``DRAIN_SECONDS`` and no longer. Whatever the end, and whoever is cancelled: SIGTERM to the group if the child still
runs, ``GRACE_SECONDS`` for it to go, then SIGKILL to the group always. That part is shielded; it is bounded by the
grace.

The group may be signalled after its leader was reaped: its number belongs to the group for as long as one process is
in it, and if none is, there is nobody to signal.

What a child writes is read to its end however much it is, so that it never stands still on a full pipe; only the first
``LARGEST_OUTPUT`` bytes of its output and the last ``LARGEST_ERRORS`` of its errors are kept.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

import attrs
import trio

GRACE_SECONDS: Final = 1.0
DRAIN_SECONDS: Final = 1.0
LARGEST_OUTPUT: Final = 16 << 20
LARGEST_ERRORS: Final = 64 << 10
_READ: Final = 1 << 16

# Groups that are running now, for ``end_groups_now``. Written by ``run_child`` alone.
_running: set[int] = set()


@attrs.frozen
class Ended:
    """How a child ended.

    Attributes:
        returncode: Its exit status; minus the signal's number if one ended it.
        output: What it wrote to standard output, at most ``LARGEST_OUTPUT`` bytes.
        errors: The end of what it wrote to standard error.
        was_killed: Whether it was ended here, having had its time.
        is_cut: Whether it wrote more than is kept.
    """

    returncode: int
    output: bytes = attrs.field(repr=False)
    errors: bytes = attrs.field(repr=False)
    was_killed: bool
    is_cut: bool

    @property
    def text(self) -> str:
        """Its output; half a character, at its end or where it was cut, is U+FFFD."""
        return self.output.decode("utf-8", "replace")


async def run_child(command: Sequence[str], *, given: bytes, environ: Mapping[str, str], limit: float) -> Ended:
    """Run ``command`` to its end, or for ``limit`` seconds.

    Args:
        command: The program, by path, and its arguments.
        given: Written to its standard input, which is closed then.
        environ: All of its environment.
        limit: Seconds until it is ended.

    Raises:
        OSError: It cannot be started.

    Cancellation:
        The child was ended, and everything in its group with it, before Cancelled leaves.
    """
    process = await trio.lowlevel.open_process(
        list(command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(environ),
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    output, errors = _Head(), _Tail()
    _running.add(process.pid)
    try:
        async with trio.open_nursery() as nursery:
            both = _Pipes()
            nursery.start_soon(_feed, process.stdin, given)
            nursery.start_soon(both.read, process.stdout, output)
            nursery.start_soon(both.read, process.stderr, errors)
            with trio.move_on_after(limit):
                await process.wait()
            was_killed = process.returncode is None
            if was_killed:
                await _end(process)
            with trio.move_on_after(DRAIN_SECONDS):
                await both.closed()
            nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            await _end(process)
            _running.discard(process.pid)
            for pipe in (process.stdin, process.stdout, process.stderr):
                await pipe.aclose()
    assert process.returncode is not None
    return Ended(process.returncode, bytes(output.kept), bytes(errors.kept), was_killed, output.is_cut)


def end_groups_now() -> None:
    """SIGKILL to every group that runs, for a process that is about to end at once and cannot wait for a grace."""
    for group in _running:
        _signal(group, signal.SIGKILL)


async def _end(process: trio.Process) -> None:
    """End the whole group; at most ``GRACE_SECONDS`` after this, nothing of it runs any more."""
    with trio.CancelScope(shield=True):
        if process.returncode is None:
            _signal(process.pid, signal.SIGTERM)
            with trio.move_on_after(GRACE_SECONDS):
                await process.wait()
        _signal(process.pid, signal.SIGKILL)
        await process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        pass  # nobody is left
    except PermissionError:
        pass  # what is left has become somebody else's


async def _feed(pipe: trio.abc.SendStream, given: bytes) -> None:
    try:
        async with pipe:
            await pipe.send_all(given)
    except trio.BrokenResourceError:
        pass  # it does not want its input, or has ended


class _Pipes:
    """Both of a child's outputs, and when they are closed."""

    def __init__(self) -> None:
        self._open = 2
        self._closed = trio.Event()

    async def read(self, pipe: trio.abc.ReceiveStream, kept: _Head | _Tail) -> None:
        while data := await pipe.receive_some(_READ):
            kept.add(data)
        self._open -= 1
        if not self._open:
            self._closed.set()

    async def closed(self) -> None:
        await self._closed.wait()


@attrs.define
class _Head:
    """The beginning of what is written."""

    kept: bytearray = attrs.field(factory=bytearray)
    is_cut: bool = False

    def add(self, data: bytes | bytearray) -> None:
        room = LARGEST_OUTPUT - len(self.kept)
        self.is_cut = self.is_cut or len(data) > room
        self.kept += data[:room]


@attrs.define
class _Tail:
    """The end of what is written."""

    kept: bytearray = attrs.field(factory=bytearray)

    def add(self, data: bytes | bytearray) -> None:
        self.kept += data
        del self.kept[: max(len(self.kept) - LARGEST_ERRORS, 0)]
