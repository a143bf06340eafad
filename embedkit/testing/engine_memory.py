"""A scripted engine without sockets: the adapters speak to it as to HTTP, and virtual time is exact.

::

    async with open_memory_engine(slots=4, service=0.2) as engine:
        provider = OllamaProvider("local", "http://memory", "scripted", open_exchange=engine.open_exchange)
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Literal

import trio

from embedkit import Exchange, Reply, TransportClosed
from embedkit.testing.engine_core import (
    EngineCore,
    EngineReply,
    EngineScript,
    Job,
    OnLeave,
    Says,
    Service,
    repeat_question,
)
from embedkit.testing.engine_log import EngineLog
from embedkit.testing.engine_rules import Rule
from embedkit.testing.engine_wire import Base64


class MemoryEngine:
    """A running engine. Made by ``open_memory_engine``.

    Attributes:
        log: What it saw and did.
    """

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self.log: EngineLog = core.log

    @property
    def queued(self) -> int:
        """Units of work that wait in the engine for a slot."""
        return self._core.queued

    @asynccontextmanager
    async def open_exchange(self) -> AsyncGenerator[Exchange]:
        """A connection, to be given to a provider.

        Cancellation:
            The connection is closed.
        """
        self.log.connections += 1
        self.log.open_connections += 1
        try:
            yield MemoryExchange(self._core)
        finally:
            self.log.open_connections -= 1
            self.log.changed()

    async def wait_for_requests(self, count: int) -> None:
        """Wait until ``count`` embedding requests have arrived.

        Cancellation:
            Nothing changes.
        """
        await self.log.wait_until(lambda log: log.requests >= count)

    async def wait_until(self, happened: Callable[[EngineLog], bool]) -> None:
        """See ``EngineLog.wait_until``.

        Cancellation:
            Nothing changes.
        """
        await self.log.wait_until(happened)


class MemoryExchange:
    """See ``Exchange``."""

    peer = "memory:0"

    def __init__(self, core: EngineCore) -> None:
        self._core = core

    async def send(
        self, method: Literal["GET", "POST"], path: str, body: bytes | None = None, *, max_bytes: int | None = None
    ) -> Reply:
        """See ``Exchange.send``.

        Cancellation:
            To the engine the client has left.
        """
        await trio.lowlevel.checkpoint()
        asked = self._core.ask(method, _full_path(path), {}, body or b"")
        if isinstance(asked, EngineReply):
            return _received(asked)
        return await self._reply_to(asked)

    async def _reply_to(self, job: Job) -> Reply:
        try:
            await job.done.wait()
            reply = self._core.reply_of(job)
            if reply.behaviour.then == "stall":
                await trio.sleep_forever()
        except trio.Cancelled:
            self._core.leave(job)
            raise
        whole = reply.behaviour.sends == "all"
        self._core.answered(job, whole=whole)
        if not whole:
            raise TransportClosed(f"engine {self.peer}: the connection broke before the end of the reply")
        return _received(reply)


@asynccontextmanager
async def open_memory_engine(
    *,
    slots: int = 1,
    service: Service = 0.0,
    split: bool = False,
    rules: Sequence[Rule] = (),
    on_leave: OnLeave = "stop",
    dimension: int = 8,
    models: tuple[str, ...] = ("scripted",),
    base64: Base64 = "gives",
    says: Says = repeat_question,
) -> AsyncGenerator[MemoryEngine]:
    """The engine that ``open_scripted_engine`` opens, without sockets; keys are not asked for.

    Cancellation:
        The engine ends; whatever it computes is dropped.
    """
    script = EngineScript(slots, service, split, rules, on_leave, dimension, models, base64, says=says)
    async with trio.open_nursery() as nursery:
        try:
            yield MemoryEngine(EngineCore(script, nursery))
        finally:
            nursery.cancel_scope.cancel()


def _full_path(path: str) -> str:
    """The adapters' paths are relative to their base address, which says the version of the language."""
    path = path.partition("?")[0]
    if path.startswith("/api/"):
        return path
    return f"/v1beta{path}" if path.startswith("/models/") else f"/v1{path}"


def _received(reply: EngineReply) -> Reply:
    return Reply(reply.status, {name.lower(): value for name, value in reply.headers}, reply.body)
