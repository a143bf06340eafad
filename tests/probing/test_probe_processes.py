"""P-2: real processes on one machine, with an engine that counts what reaches it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

import embedkit
from embedkit.testing.scripted_engine import ScriptedEngine, open_scripted_engine

PROGRAM = Path(__file__).with_name("polling_process.py")
PROBE = hashlib.sha256(b"probe").hexdigest()
PROCESSES = 2
POLLS = 20


class Poller:
    """One such process, line by line."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self._read = b""

    async def said(self) -> str:
        assert self.process.stdout is not None
        while b"\n" not in self._read:
            part = await self.process.stdout.receive_some()
            assert part, "it ended early"
            self._read += part
        line, _, self._read = self._read.partition(b"\n")
        return line.decode()

    async def tell(self) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send_all(b"\n")


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(embedkit.__file__).parents[1])}


@asynccontextmanager
async def pollers(engine: ScriptedEngine, store: Path, *, fresh: float, work: int) -> AsyncGenerator[list[Poller]]:
    """Two processes, ready, that have done their real work."""
    command = [sys.executable, str(PROGRAM), str(store), engine.openai_url, str(fresh), str(work), str(POLLS)]
    run = partial(
        trio.run_process, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), check=True
    )
    async with trio.open_nursery() as nursery:
        opened = [Poller(await nursery.start(run)) for _ in range(PROCESSES)]
        for expected in ("ready", "worked"):
            for poller in opened:
                assert await poller.said() == expected
            if expected == "ready":
                for poller in opened:
                    await poller.tell()
        yield opened


async def ask_all(opened: list[Poller]) -> list[dict[str, Any]]:
    for poller in opened:
        await poller.tell()
    return [json.loads(await poller.said()) for poller in opened for _ in range(POLLS)]


def probes(engine: ScriptedEngine) -> int:
    return sum(record.hashes == (PROBE,) for record in engine.log.records)


async def test_p_2_the_pollers_of_two_processes_cost_one_call(tmp_path: Path) -> None:
    async with open_scripted_engine(slots=4, service=0.1) as engine:
        async with pollers(engine, tmp_path / "store.sqlite3", fresh=60.0, work=0) as opened:
            verdicts = await ask_all(opened)
        assert probes(engine) == 1
        assert [verdict["verdict"] for verdict in verdicts] == ["healthy"] * PROCESSES * POLLS
        assert [verdict["shared"] for verdict in verdicts].count(False) == 1


async def test_p_2_two_processes_share_one_budget(tmp_path: Path) -> None:
    work = 8
    async with open_scripted_engine(slots=4) as engine:
        async with pollers(engine, tmp_path / "store.sqlite3", fresh=0.0, work=work) as opened:
            verdicts = await ask_all(opened)
        dispatches = PROCESSES * work
        assert len(engine.log.records) - probes(engine) == dispatches
        # Each process alone has paid for two, and by itself it could not know of the other's work or calls.
        assert probes(engine) == dispatches / 4
        assert {verdict["verdict"] for verdict in verdicts} == {"healthy"}
        assert "over-budget" in {verdict["reason"] for verdict in verdicts}
