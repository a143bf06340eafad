"""``embedkit run`` in a process of its own: ready, two of them one, reload, and signals."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_line import COMMAND, Shell, environment
from fakes import numbered, write_tree

from embedkit.surfaces.notify import notify

HASHED = f"""
import sys
from command_line import HashModel
from embedkit.providers import local
local._load = HashModel
{COMMAND[2]}
"""


def settings_of(folder: Path, *names: str, cadence: float = 1800.0) -> None:
    for name in names:
        write_tree(folder / name, numbered(2, name))
    repositories = ", ".join(f'{{ name = "{name}", path = "{name}", cadence = {cadence} }}' for name in names)
    (folder / "embedkit.toml").write_text(f'version = 1\n[[tenants]]\nname = "acme"\nrepositories = [{repositories}]\n')


class Running:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []

    def until(self, *parts: str) -> str:
        """Read standard output and error until a line has these parts."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if all(part in line for part in parts):
                return line
        raise AssertionError(f"{parts} never came: {self.lines}")


@contextmanager
def running(folder: Path, **more: str) -> Iterator[Running]:
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", HASHED, "run"],
        cwd=folder, env=environment(PYTHONPATH=os.pathsep.join(filter(None, sys.path)), **more), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    with process:
        try:
            yield Running(process)
        finally:
            process.kill()


def test_it_is_ready_sweeps_reloads_and_ends_on_a_signal(tmp_path: Path) -> None:
    settings_of(tmp_path, "one")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as service:
        service.bind(str(tmp_path / "n"))
        service.settimeout(20)
        with running(tmp_path, NOTIFY_SOCKET=str(tmp_path / "n")) as run:
            assert service.recv(100) == b"READY=1"
            run.until("acme/one: complete; 2 documents")
            run.until("sync completed")
            (tmp_path / "embedkit.toml").write_text("version = 7\n")
            run.process.send_signal(signal.SIGUSR1)
            run.until("embedkit.toml", "version")  # one line, and the old ones stay
            settings_of(tmp_path, "one", "two")
            run.process.send_signal(signal.SIGUSR1)
            assert service.recv(100) == b"READY=1"
            run.until("acme/two: complete; 2 documents")
            with running(tmp_path) as other:
                other.until(f"process {run.process.pid} on ", "runs the schedule", "standing by")
                began = time.monotonic()
                run.process.send_signal(signal.SIGHUP)
                assert run.process.wait(10) == 130
                assert time.monotonic() - began < 3
                assert service.recv(100) == b"STOPPING=1"
                other.process.send_signal(signal.SIGTERM)
                assert other.process.wait(10) == 130
    assert "Traceback" not in "".join(run.lines + other.lines)


def test_without_tenants_there_is_nothing_to_run(shell: Shell) -> None:
    ended = shell("run")
    assert ended.code == 2
    ended.check_one_line("nothing to run", "embedkit sync FOLDER")


def test_once_is_one_sync_of_what_is_due(shell: Shell) -> None:
    settings_of(shell.folder, "one")
    ended = shell("run", "--once", "--json")
    assert (ended.code, ended.json["status"]) == (0, "completed")
    assert shell("run", "--once", "--json").json["repositories"][0]["outcome"] == "not-due"


@pytest.mark.parametrize("address", ["", "/nowhere/at/all", "@embedkit-nobody", "x" * 500])
def test_a_socket_that_takes_nothing_is_no_reason_not_to_work(address: str) -> None:
    notify("READY=1", {"NOTIFY_SOCKET": address})


def test_an_abstract_socket_is_told(tmp_path: Path) -> None:
    name = f"embedkit-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as service:
        service.bind("\0" + name)
        service.settimeout(5)
        notify("READY=1", {"NOTIFY_SOCKET": "@" + name})
        assert service.recv(100) == b"READY=1"
