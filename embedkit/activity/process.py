"""Which process wrote a row, and whether it still lives.

A process id alone is given again to others, so it goes with the moment when the process started and with the
boot it started in. Pure but for reading what the system says.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

import attrs

_PROC = Path("/proc")


@attrs.frozen
class Process:
    """A process, named so that no other one ever has the same name.

    Attributes:
        host: The machine's (or container's) name.
        boot: The kernel's id of this boot; ``""`` where the system has none.
        pid: Process id.
        started: When it started, in the kernel's ticks since boot; ``""`` where the system does not say.
    """

    host: str
    boot: str
    pid: int
    started: str


def this_process() -> Process:
    """The process that asks."""
    pid = os.getpid()
    state = _state(pid)
    return Process(platform.node(), _boot(), pid, state[1] if state else "")


def is_dead(process: Process, here: Process) -> bool:
    """Whether ``process`` is known to have ended, seen from ``here``.

    False where it cannot be told: a process of another host, or a system that cannot be asked.
    """
    if process.host != here.host:
        return False
    if process.boot != here.boot:
        return True
    state = _state(process.pid)
    if state is None:
        return not _answers(process.pid)
    run_state, started = state
    # A zombie is a dead process that its parent has not asked about yet.
    return run_state in "ZX" or started != process.started


def _boot() -> str:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _state(pid: int) -> tuple[str, str] | None:
    """Run state and start time (fields 3 and 22 of proc(5)'s stat), or ``None`` where they cannot be read."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command, field 2, stands in brackets and may hold anything, brackets and blanks included.
    fields = stat.rpartition(")")[2].split()
    return fields[0], fields[19]


def _answers(pid: int) -> bool:
    """Whether a process has this id, for systems that have no /proc or hide other users' processes in it."""
    if os.name != "posix":
        return True  # signal 0 is a real signal elsewhere, so it is not asked
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
