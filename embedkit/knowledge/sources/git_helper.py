"""A child process that fetches: ``python -m embedkit.knowledge.sources.git_helper``.

A fetch can hang where no timeout reaches: in a name server, in an ssh that waits, at a server that has accepted and
says nothing. A thread in such a call cannot be ended; a child can be killed.

It reads a job a line from standard input and answers each with a line; while bytes come or go it writes a ``.`` now and
then. It ends with its standard input, whatever it is doing then.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from embedkit.knowledge.sources.git_fetch import SILENT_SECONDS, bare, fetch, is_far, reason_of

_TELL_SECONDS = 0.5


class _Voice:
    """Standard output, whose only writer this is."""

    def __init__(self) -> None:
        self._told_at = 0.0
        # Whatever a library prints goes nowhere.
        self._out = os.fdopen(os.dup(1), "wb", buffering=0)
        os.dup2(2, 1)

    def active(self, count: int, kind: str) -> None:
        """Bytes came or went."""
        if time.monotonic() - self._told_at >= _TELL_SECONDS:
            self._told_at = time.monotonic()
            self._out.write(b".\n")

    def answer(self, found: dict[str, Any]) -> None:
        """The job is done."""
        self._out.write(json.dumps(found).encode() + b"\n")


def _done(job: dict[str, Any], voice: _Voice) -> dict[str, Any]:
    from dulwich.refs import Ref

    address = job["address"]
    try:
        repository = bare(Path(job["folder"]))
        try:
            names = [Ref(bytes.fromhex(name)) for name in job["wanted"]]
            found = fetch(address, names, repository, voice.active)
        finally:
            repository.close()
    except Exception as error:  # whatever it is, it is the answer
        return {"error": reason_of(address, error), "far": is_far(error)}
    return {"names": {name.hex(): commit.decode() for name, commit in found.names.items()}, "others": found.others}


def _read(jobs: queue.SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        jobs.put(line)
    os._exit(0)  # whoever would have the answer has gone


def main() -> None:
    """Do one job after the other."""
    socket.setdefaulttimeout(SILENT_SECONDS)
    voice = _Voice()
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(jobs,), daemon=True).start()
    while True:
        voice.answer(_done(json.loads(jobs.get()), voice))


if __name__ == "__main__":
    main()
