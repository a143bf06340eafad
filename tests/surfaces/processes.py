"""Commands in processes of their own, beside whatever this one does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import attrs
import trio
from command_line import COMMAND, environment

# A fork of a process that has imported everything is a process like any other, but there at once.
FORK_SERVER = """
import json, os, sys
import httpx, numpy, sqlite3
from command_line import HashModel
from embedkit.knowledge.indexing import indexing
from embedkit.knowledge.storing import store
from embedkit.providers import local
from embedkit.surfaces.cli import main

def run(folder, arguments, out, err, encoding):
    os.chdir(folder)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
    os.dup2(os.open(err, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    if out == "/dev/stdin":  # nothing can be written there: whoever read it has left
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, 1)
    sys.stdout = open(1, "w", encoding=encoding, closefd=False)
    local._load = HashModel
    sys.exit(main(arguments))

for line in sys.stdin:
    what, *given = json.loads(line)
    if what == "wait":
        print(os.waitstatus_to_exitcode(os.waitpid(*given, 0)[1]), flush=True)
        continue
    pid = os.fork()
    if pid == 0:
        run(*given)
    print(pid, flush=True)
"""

NOBODY = Path("/dev/stdin")
"""As ``out``: a pipe whose reader has left."""


@attrs.frozen
class Started:
    """A command that was started: where its output goes, and how it is told things."""

    pid: int
    out_file: Path
    err_file: Path
    _server: ForkServer

    @property
    def json(self) -> Any:
        """The one document on standard output."""
        text = self.out_file.read_text(encoding="utf-8")
        assert text.count("\n") == 1, text
        return json.loads(text)

    @property
    def err(self) -> str:
        return self.err_file.read_text(encoding="utf-8")

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    async def wait(self) -> int:
        """Its exit code; negative: the signal that ended it."""
        return await trio.to_thread.run_sync(self.wait_here)

    def wait_here(self) -> int:
        """``wait``, where nothing else is to be done meanwhile."""
        return self._server._ask("wait", self.pid)


class ForkServer:
    """Starts commands."""

    def __enter__(self) -> ForkServer:
        path = os.pathsep.join([environment()["PYTHONPATH"], str(Path(__file__).parent)])
        self._process = subprocess.Popen(
            [sys.executable, "-c", FORK_SERVER],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(PYTHONPATH=path),
        )  # fmt: skip
        self._started = 0
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def start(self, folder: Path, *arguments: str, out: Path | None = None, encoding: str = "utf-8") -> Started:
        """Start a command in ``folder``; its output goes to files beside that."""
        self._started += 1
        out = folder.parent / f"out{self._started}" if out is None else out
        err = folder.parent / f"err{self._started}"
        pid = self._ask("start", str(folder), arguments, str(out), str(err), encoding)
        return Started(pid, out, err, self)

    def _ask(self, *request: object) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@attrs.define(eq=False)
class Running:
    """A command whose output is read while it runs."""

    process: trio.Process
    out: bytearray = attrs.field(factory=bytearray)
    grew: trio.Event = attrs.field(factory=trio.Event)

    async def json(self, number: int) -> Any:
        """The document in line ``number`` of standard output, counted from 0, once it is there."""
        while self.out.count(b"\n") <= number:
            await self.grew.wait()
        return json.loads(self.out.splitlines()[number])

    async def read(self) -> None:
        assert self.process.stdout is not None
        async for some in self.process.stdout:
            self.out += some
            self.grew.set()
            self.grew = trio.Event()


@asynccontextmanager
async def running(folder: Path, *arguments: str) -> AsyncGenerator[Running]:
    """A command, killed when the block ends if it still runs then."""
    async with trio.open_nursery() as nursery:
        process = await trio.lowlevel.open_process(
            [*COMMAND, *arguments], cwd=folder, stdout=subprocess.PIPE, env=environment()
        )
        command = Running(process)
        nursery.start_soon(command.read)
        try:
            yield command
        finally:
            if process.poll() is None:
                process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()


async def within(seconds: float, wait: Callable[[], Any]) -> Any:
    """What ``wait`` gives, which must not take longer than ``seconds``."""
    began = trio.current_time()
    result = await wait()
    assert trio.current_time() - began < seconds
    return result
