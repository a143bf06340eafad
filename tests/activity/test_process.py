from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from embedkit.activity import process
from embedkit.activity.process import Process, _state, can_be_asked, is_dead, this_process

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="start times are read from /proc")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as running:
        yield running
        running.kill()


def test_the_process_that_asks_is_alive() -> None:
    assert not is_dead(this_process(), this_process())


def test_another_boot_or_host_or_container_cannot_be_told() -> None:
    """Two containers that share a volume and a host name, each with its own process ids, took each other for dead."""
    here = this_process()
    boot, _, namespace = here.boot.partition("/")
    assert namespace.startswith("pid:[") or not sys.platform.startswith("linux")
    for elsewhere in ({"host": "elsewhere"}, {"boot": "before"}, {"boot": f"{boot}/pid:[1]"}, {"boot": f"{boot}/?"}):
        other = attrs.evolve(here, pid=2**22 + 1, started="1", **elsewhere)
        assert not can_be_asked(other, here)
        assert not is_dead(other, here)
    assert is_dead(attrs.evolve(here, pid=2**22 + 1, started="1"), here)


@linux
def test_a_system_that_hides_its_namespaces_proves_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_text("b-1\n")
    monkeypatch.setattr(process, "_PROC", tmp_path)
    here = this_process()
    assert here.boot == "b-1/?"
    assert not is_dead(attrs.evolve(here, pid=2**22 + 1), here)


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


@pytest.mark.parametrize("stat", ["", "7 (a) b", "7 (python) S 1 2 3", ") ) )"])
def test_a_system_that_says_little_is_one_that_cannot_tell(tmp_path: Path, monkeypatch: Any, stat: str) -> None:
    pid = os.getpid()
    (tmp_path / str(pid)).mkdir()
    (tmp_path / str(pid) / "stat").write_text(stat)
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_bytes(b"\xff")
    monkeypatch.setattr(process, "_PROC", tmp_path)
    here = this_process()
    assert (here.boot, here.started) == ("", "")
    assert not is_dead(here, here)


@pytest.mark.parametrize("pid", [2**70, 0, -1, -(2**70)])
def test_what_can_be_no_process_is_dead(pid: int) -> None:
    here = this_process()
    assert is_dead(attrs.evolve(here, pid=pid), here)


def test_a_host_s_name_can_be_stored_whatever_its_bytes(monkeypatch: Any) -> None:
    monkeypatch.setattr("platform.node", lambda: "b\udcffx")
    assert this_process().host == "b\\udcffx"


def named(pid: int, here: Process) -> Process:
    state = _state(pid)
    assert state is not None
    return attrs.evolve(here, pid=pid, started=state[1])
