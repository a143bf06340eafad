"""Which process wrote a row, and whether that process is still alive.

The system reuses process ids, so an id is stored with the time at which the process started, the boot in which it
started, and the namespace that its id belongs to: two containers on one machine, with the same host name, each have a
process 1. Pure, except that it reads what the system says. Whatever the system says, nothing here raises: a writer that
cannot find out who is alive still has to write.

Tests: tests/activity/test_process.py.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

import attrs

from embedkit.activity.rows import name

_PROC = Path("/proc")


@attrs.frozen
class Process:
    """A process, identified so that no other process ever has the same identity.

    Attributes:
        host: The machine's (or container's) name.
        boot: The kernel's id of this boot and, after a slash, the namespace of process ids (``?`` if that is not told);
            ``""`` if the system has none.
        pid: Process id.
        started: When it started, in the kernel's ticks since boot; ``""`` if the system does not tell.
    """

    host: str
    boot: str
    pid: int
    started: str


def this_process() -> Process:
    """The process that calls this."""
    pid = os.getpid()
    state = _state(pid)
    # A host's name is bytes to the kernel, and may not be UTF-8.
    return Process(name(platform.node()), _boot(), pid, state[1] if state else "")


def can_be_asked(process: Process, here: Process) -> bool:
    """Whether ``here`` can see that ``process`` lives or has ended."""
    return process.host == here.host and process.boot == here.boot and not here.boot.endswith("?")


def is_dead(process: Process, here: Process) -> bool:
    """Whether ``process`` has provably ended, as seen from ``here``.

    False if that cannot be known: the process is on another host or in another container, or the system does not tell.
    Nor does another boot prove anything: two machines that share a folder may share a name.
    """
    if not can_be_asked(process, here):
        return False
    state = _state(process.pid)
    if state is None:
        return not _answers(process.pid)
    run_state, started = state
    # A zombie is a dead process that its parent has not collected yet.
    return run_state in "ZX" or started != process.started


def _boot() -> str:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    try:
        # ``pid:[4026531836]``: its number is given again only when the namespace is gone, with all processes in it.
        return f"{boot}/{name(os.readlink(_PROC / 'self/ns/pid'))}"
    except OSError:
        return f"{boot}/?"


def _state(pid: int) -> tuple[str, str] | None:
    """Run state and start time (fields 3 and 22 of stat in proc(5)), or ``None`` if they cannot be read."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command, field 2, is in parentheses and may contain anything, parentheses and blanks included.
    fields = stat.rpartition(")")[2].split()
    # An emulated /proc may know fewer fields, and a process that is just ending has been seen with none.
    return (fields[0], fields[19]) if len(fields) > 19 else None


def _answers(pid: int) -> bool:
    """Whether a process has this id, for systems without /proc and for those that hide other users' processes in it."""
    if os.name != "posix":
        return True  # elsewhere 0 is a real signal, so it must not be sent
    if pid <= 0:
        return False  # to kill(2) these are groups of processes, not one
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # larger than any id of this system
        return False
    except OSError:  # it is there, and another user's
        return True
    return True
