"""Helpers that fetch from git servers: child processes, since a fetch that hangs can be ended in no other way.

A server that says nothing is waited for within a bound, and whoever waits can leave at once: the helper is killed, with
all that it has started. A helper whose job is done takes the next one, so that many repositories cost few processes.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from embedkit.errors import SourceError
from embedkit.knowledge.sources.git_fetch import SILENT_SECONDS, Refs, redacted

if TYPE_CHECKING:
    from dulwich.refs import Ref

LONGEST_SECONDS: Final = 1800.0
"""How long a fetch may take though bytes are coming."""

_LOOK_UP_SECONDS = 0.1
_END_SECONDS = 1.0
_IDLE = 4
_MODULE = "embedkit.knowledge.sources.git_helper"


class Damaged(Exception):
    """The cache is at fault, or may be."""


class GitHelpers:
    """Helper processes, started when they are needed. May be used from several threads.

    Args:
        silent: Seconds that a server may say nothing.
        longest: Seconds that a fetch may take in all.
    """

    def __init__(self, *, silent: float = SILENT_SECONDS, longest: float = LONGEST_SECONDS) -> None:
        self._silent = silent
        self._longest = longest
        self._idle: list[_Helper] = []
        self._is_closed = False

    def fetch(self, address: str, wanted: Sequence[Ref], folder: Path, check: Callable[[], object]) -> Refs:
        """Fetch into the bare repository at ``folder``; see ``git_fetch.fetch``.

        Args:
            address: Of a server.
            wanted: Names, the likeliest first.
            folder: Made if it is not there.
            check: Called now and then; may raise, which ends the fetch.

        Raises:
            SourceError: The server, or the way to it, failed, or said nothing for too long.
            Damaged: What is in ``folder`` may be at fault.
        """
        helper = self._take()
        try:
            job = {"address": address, "folder": str(folder), "wanted": [name.hex() for name in wanted]}
            answer = helper.ask(job, self._silent, self._longest, check)
        except BaseException:
            helper.end()
            raise
        if self._is_closed or len(self._idle) >= _IDLE:
            helper.end()
        else:
            self._idle.append(helper)
        return _refs(address, answer)

    def close(self) -> None:
        """End the helpers that are idle; one that is busy ends with its job, or with whoever waits for it."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().end()

    def _take(self) -> _Helper:
        while self._idle:
            with suppress(IndexError):  # other threads take, too
                helper = self._idle.pop()
                if helper.is_alive:
                    return helper
                helper.end()
        return _Helper()


class _Helper:
    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603  # our own module; the address goes in by standard input
            # -P: the folder that we were started in may be a tenant's, and nothing in it is to be imported.
            [sys.executable, "-P", "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,  # killed with all that it started; and a Ctrl-C is ours to hear, not its
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        self._buffer = b""

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, job: dict[str, Any], silent: float, longest: float, check: Callable[[], object]) -> dict[str, Any]:
        """Hand it a job and wait for the answer.

        Raises:
            SourceError: None came in time.
        """
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        shown = redacted(job["address"])
        gone = f"{shown}: cannot be fetched: the process that was to fetch it has ended"
        try:
            process.stdin.write(json.dumps(job).encode() + b"\n")
        except OSError as error:
            raise SourceError(gone) from error
        began = heard = time.monotonic()
        with selectors.DefaultSelector() as ready:
            ready.register(process.stdout, selectors.EVENT_READ)
            while True:
                check()
                now = time.monotonic()
                if now - heard > silent:
                    raise SourceError(f"{shown}: cannot be fetched: its server has said nothing for {silent:g} s")
                if now - began > longest:
                    raise SourceError(f"{shown}: cannot be fetched: it was not done in {longest:g} s")
                if not ready.select(_LOOK_UP_SECONDS):
                    continue
                heard = time.monotonic()
                some = os.read(process.stdout.fileno(), 1 << 16)
                if not some:
                    raise SourceError(gone)
                self._buffer += some
                *lines, self._buffer = self._buffer.split(b"\n")
                for line in lines:
                    if line != b".":
                        found: dict[str, Any] = json.loads(line)
                        return found

    def end(self) -> None:
        """Kill it, with all that it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        with suppress(subprocess.TimeoutExpired):  # it sits in a call of the system that even a kill waits for
            self._process.wait(_END_SECONDS)


def _refs(address: str, answer: dict[str, Any]) -> Refs:
    from dulwich.objects import ObjectID
    from dulwich.refs import Ref

    if "error" in answer:
        message = f"{redacted(address)}: cannot be fetched: {answer['error']}"
        raise SourceError(message) if answer["far"] else Damaged(message)
    names = {Ref(bytes.fromhex(name)): ObjectID(commit.encode()) for name, commit in answer["names"].items()}
    return Refs(names, answer["others"])
