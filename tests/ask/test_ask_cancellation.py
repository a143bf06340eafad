"""A-6: ``ask_one`` cancelled in every phase, for each adapter; afterwards no process, socket, slot or file remains.

What an adapter has no part in is no phase of it: a program has no headers, and only programs are drained.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import attrs
import pytest
import trio
from asking_world import ADAPTERS, KEYS, asking, provider_of
from child_programs import environ_of, is_running, write_program
from fakes import until
from scripted_sockets import Heard, Say, serving, whole
from trio.testing import MockClock, wait_all_tasks_blocked

from embedkit.ask import ask_one
from embedkit.engine import Engine
from embedkit.settings import ProviderSettings
from embedkit.testing import Rule, open_scripted_engine
from embedkit.testing.engine_rules import (
    Behaviour,
    busy,
    nth,
    stall_after_headers,
    stall_before_reply,
    stall_mid_body,
)

LIMIT = 20.0  # of an attempt
HTTP_PHASES: dict[str, Behaviour] = {
    "sent": stall_before_reply(),
    "headers": stall_after_headers(),
    "body": stall_mid_body(),
    "retry sleep": busy(retry_after="15"),
}
# What the program does, and how much time passes until the phase begins, after it says that it is there.
PROGRAM_PHASES: dict[str, tuple[str, float]] = {
    "running": ("ready(); forever()", 0.0),
    "half its answer": ("sys.stdout.write('{\"type\": '); sys.stdout.flush(); ready(); forever()", 0.0),
    "recovery": ("ready(); forever()", LIMIT + 1.0),
    "ending": ("signal.signal(signal.SIGTERM, signal.SIG_IGN); ready(); forever()", LIMIT + 120.0),
    "drain": ("codex('ok')\nif os.fork() == 0: ready('grandchild'); forever()\nready()", 0.0),
    "retry sleep": ("ready()", 0.0),
}


@pytest.fixture
def autojump_clock() -> MockClock:
    # Real sockets: a moment's grace before the clock jumps.
    return MockClock(autojump_threshold=0.02)


def sockets() -> int:
    """Sockets that this process has open."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
        except FileNotFoundError:
            continue  # the listing's own
    return found


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def cancelled(ask: Callable[[], Awaitable[object]], in_its_phase: Callable[[], Awaitable[object]]) -> bool:
    """Ask, and cancel once the phase has begun; whether the question was cut off by that."""
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:

            async def stop() -> None:
                await in_its_phase()
                scope.cancel()

            nursery.start_soon(stop)
            await ask()
        assert scope.cancel_called
        nursery.cancel_scope.cancel()
    return scope.cancelled_caught


async def nothing_is_left(engine: Engine, kind: str, before: int, count: Callable[[], int]) -> None:
    if kind == "ollama":
        await trio.sleep(LIMIT + 1.0)  # the provider owns the settlement: a call that is out ends at its limit
    await wait_all_tasks_blocked(0.01)
    assert sum(row.in_flight + row.queued for row in engine.ledger.report()) == 0
    for lane in engine.lanes:
        totals = lane.statistics().totals
        assert (totals.queued, totals.in_flight) == (0, 0)
    await until(lambda: count() == before)


@pytest.mark.parametrize("kind", ADAPTERS)
@pytest.mark.parametrize("phase", HTTP_PHASES)
async def test_over_http(kind: str, phase: str, autojump_clock: MockClock) -> None:
    async with (
        open_scripted_engine(rules=[Rule(nth(1), HTTP_PHASES[phase])]) as served,
        asking({"box": provider_of(kind, served, timeout=LIMIT)}) as engine,
    ):
        before = sockets()

        async def in_its_phase() -> None:
            await served.wait_for_requests(1)
            await wait_all_tasks_blocked(0.01)

        assert await cancelled(lambda: ask_one(engine, "q", "box"), in_its_phase)
        await nothing_is_left(engine, kind, before, sockets)
        assert served.log.open_connections == 0


@pytest.mark.parametrize("kind", ADAPTERS)
async def test_over_http_before_it_begins(kind: str, autojump_clock: MockClock) -> None:
    async with open_scripted_engine() as served, asking({"box": provider_of(kind, served)}) as engine:
        before = sockets()
        with trio.CancelScope() as scope:
            scope.cancel()
            await ask_one(engine, "q", "box")
        assert scope.cancelled_caught
        await nothing_is_left(engine, kind, before, sockets)
        assert served.log.connections == 0


@contextmanager
def nobody_accepts() -> Iterator[int]:
    """A port where connecting neither succeeds nor fails: its backlog is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = []
        for _ in range(2):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
            waiting.append(one)
        yield listener.getsockname()[1]
        for one in waiting:
            one.close()


@pytest.mark.parametrize("kind", ADAPTERS)
async def test_over_http_while_it_connects(kind: str, autojump_clock: MockClock) -> None:
    with nobody_accepts() as port:
        address = f"http://127.0.0.1:{port}" + ("" if kind == "ollama" else "/v1")
        described = ProviderSettings(kind=kind, base_url=address, model="m", timeout=LIMIT)  # type: ignore[arg-type]
        async with asking({"box": described}) as engine:
            before = sockets()

            async def in_its_phase() -> None:
                await until(lambda: sockets() == before + 1)
                await wait_all_tasks_blocked(0.01)

            assert await cancelled(lambda: ask_one(engine, "q", "box"), in_its_phase)
            await nothing_is_left(engine, kind, before, sockets)


@attrs.define(eq=False)
class Program:
    """One of a vendor's programs, played by a script."""

    folder: Path
    kind: str

    @asynccontextmanager
    async def asked(self, body: str) -> AsyncGenerator[Engine]:
        write_program(self.folder, "codex" if self.kind == "codex" else "gemini", body)
        described = ProviderSettings(kind=self.kind, timeout=LIMIT)  # type: ignore[arg-type]
        async with asking({"cli": described}, environ=environ_of(self.folder)) as engine:
            await trio.to_thread.run_sync(int)  # the thread that starts processes
            yield engine

    def running(self) -> list[int]:
        found = [int(path.read_text()) for path in self.folder.iterdir() if path.name in ("ready", "grandchild")]
        return [pid for pid in found if is_running(pid)]


@pytest.mark.parametrize("kind", ["codex", "gemini-cli"])
@pytest.mark.parametrize("phase", PROGRAM_PHASES)
async def test_of_a_program(kind: str, phase: str, tmp_path: Path, mock_clock: MockClock) -> None:
    body, later = PROGRAM_PHASES[phase]
    program = Program(tmp_path, kind)
    async with program.asked(body) as engine:
        before = descriptors()

        async def in_its_phase() -> None:
            await until((tmp_path / "ready").exists)
            await wait_all_tasks_blocked(0.05)
            mock_clock.jump(later)
            await wait_all_tasks_blocked(0.05)

        async def past_its_grace() -> None:
            # Whoever ignores SIGTERM has its second, which passes here in the test's own time.
            await in_its_phase()
            mock_clock.rate = 20.0

        assert await cancelled(
            lambda: ask_one(engine, "q", "cli"), past_its_grace if phase == "ending" else in_its_phase
        )
        await nothing_is_left(engine, kind, before, descriptors)
    await until(lambda: not program.running())


@pytest.mark.parametrize("kind", ["codex", "gemini-cli"])
async def test_of_a_program_before_it_begins(kind: str, tmp_path: Path, mock_clock: MockClock) -> None:
    program = Program(tmp_path, kind)
    async with program.asked("ready(); forever()") as engine:
        before = descriptors()
        with trio.CancelScope() as scope:
            scope.cancel()
            await ask_one(engine, "q", "cli")
        assert scope.cancelled_caught
        await nothing_is_left(engine, kind, before, descriptors)
    assert not (tmp_path / "ready").exists()


@pytest.mark.parametrize("phase", ["files", "responses", "DELETE"])
async def test_of_groks_files(phase: str, tmp_path: Path, mock_clock: MockClock) -> None:
    (tmp_path / "a.txt").write_text("a")
    files: set[str] = set()
    reached = trio.Event()
    released = trio.Event()

    async def script(request: Heard, say: Say) -> None:
        is_phase = phase in (request.method, request.path.rpartition("/")[2])
        if request.path == "/v1/files":
            files.add("f-1")
        if is_phase:
            reached.set()
            if phase != "DELETE":
                await trio.sleep_forever()
            await released.wait()
        if request.method == "DELETE":
            files.clear()
        output = [{"type": "message", "content": [{"type": "output_text", "text": "It is a."}]}]
        await say(whole({"id": "f-1", "output": output}))

    async with serving(script) as server:
        described = ProviderSettings(kind="grok", base_url=server.base_url, model="m")
        async with asking({"box": described}, environ=KEYS) as engine:
            await trio.to_thread.run_sync(int)
            before = sockets()

            async def in_its_phase() -> None:
                await reached.wait()
                released.set()

            was_cut = await cancelled(lambda: ask_one(engine, "q", "box", files=[tmp_path / "a.txt"]), in_its_phase)
            assert was_cut == (phase != "DELETE")  # an answer that is there is not lost to the removal
            await nothing_is_left(engine, "grok", before, sockets)
            # An upload that was cut off has no id here to be removed by; it expires.
            assert files == ({"f-1"} if phase == "files" else set())
