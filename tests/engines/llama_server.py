"""A real llama.cpp server in a process of its own: ``xllamacpp`` runs it inside whoever imports it.

As a script it serves until standard input ends, and so ends with its parent; its first line is its address.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs


@attrs.define(eq=False)
class LlamaServer:
    """How to start one, and the one that runs.

    Attributes:
        model: The GGUF file.
        alias: What it calls its model.
        slots: Inputs at once.
        window: Tokens that one input may have.
        batch: Tokens of the physical batch; llama.cpp refuses an input that has more.
        port: 0: a free one, the same again after a restart.
        embeds: Whether it gives vectors; else it chats.
    """

    model: Path
    alias: str = "tiny"
    slots: int = 4
    window: int = 4096
    batch: int = 4096
    port: int = 0
    embeds: bool = True
    _process: subprocess.Popen[str] | None = attrs.field(init=False, default=None)

    @property
    def openai_url(self) -> str:
        """What ``base_url`` is set to."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = {
            "model": self.model,
            "alias": self.alias,
            "slots": self.slots,
            "window": self.window,
            "batch": self.batch,
            "port": self.port,
            "embeds": int(self.embeds),
        }
        arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        self._process = subprocess.Popen(
            [sys.executable, __file__, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        address = self._process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:"), f"llama.cpp did not start with {self.model}"
        self.port = int(address.rpartition(":")[2])

    def kill(self) -> None:
        """End it as a crash would, in the middle of whatever it does."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                stream.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--alias", required=True)
    for name in ("--slots", "--window", "--batch", "--port", "--embeds"):
        parser.add_argument(name, type=int, required=True)
    given = parser.parse_args()
    xllamacpp: Any = importlib.import_module("xllamacpp")
    parameters = xllamacpp.CommonParams()
    parameters.model.path = given.model
    parameters.model_alias = {given.alias}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = given.port
    parameters.embedding = bool(given.embeds)
    parameters.n_parallel = given.slots
    parameters.n_ctx = given.slots * given.window
    parameters.n_batch = parameters.n_ubatch = given.batch
    parameters.cpuparams.n_threads = 1
    parameters.n_threads_http = 16
    parameters.warmup = False
    server = xllamacpp.Server(parameters)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
