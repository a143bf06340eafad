from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import attrs
import pytest

from embedkit.activity.process import Process, _state, is_dead, this_process

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="start times are read from /proc")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_the_process_that_asks_is_alive() -> None:
    assert not is_dead(this_process(), this_process())


def test_another_boot_is_dead_and_another_host_cannot_be_told() -> None:
    here = this_process()
    assert is_dead(attrs.evolve(here, boot="before"), here)
    assert not is_dead(attrs.evolve(here, host="elsewhere", boot="before", pid=1), here)


@linux
def test_an_id_that_was_given_again_does_not_keep_the_dead_alive() -> None:
    here = this_process()
    assert is_dead(attrs.evolve(here, started="1"), here)


@linux
def test_a_killed_process_is_dead_even_before_its_parent_asks(child: subprocess.Popen[bytes]) -> None:
    here = this_process()
    living = named(child.pid, here)
    assert not is_dead(living, here)
    child.kill()
    # Waits for its end without collecting it: it is a zombie, and its id still answers.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_dead(living, here)
    child.wait()
    assert is_dead(living, here)


def named(pid: int, here: Process) -> Process:
    state = _state(pid)
    assert state is not None
    return attrs.evolve(here, pid=pid, started=state[1])
