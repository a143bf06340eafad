"""An engine to test against: a real HTTP/1.1 server on a loopback socket, which does what its script says.

::

    async with open_scripted_engine(slots=1, rules=[Rule(nth(1), hold(released))]) as engine:
        provider = OpenAICompatibleProvider("local", engine.openai_url, "scripted")
        ...
        await engine.wait_for_requests(1)

Virtual time. Service times are ``trio.sleep``, so under an autojump clock they cost nothing. The clock jumps
when every task is blocked and no socket is ready. On Linux a loopback send is readable for its peer before
``send`` returns, so nothing is under way at that moment, but no standard promises that, and a loaded machine
can delay it: a test that asserts instants, and not only order, is better off with ``open_memory_engine``, the
same engine without sockets, or with an ``autojump_threshold`` of some milliseconds.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

import trio

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
from embedkit.testing.engine_http import HttpRequest, NotHttpError, RequestReader, chunk, response_head
from embedkit.testing.engine_log import EngineLog
from embedkit.testing.engine_rules import Rule
from embedkit.testing.engine_wire import Base64

_HOST = "127.0.0.1"
_READ = 65536


class ScriptedEngine:
    """A running engine. Made by ``open_scripted_engine``.

    Attributes:
        log: What it saw and did.
    """

    def __init__(self, core: EngineCore, nursery: trio.Nursery) -> None:
        self._core = core
        self._nursery = nursery
        self._port = 0
        self._server = trio.CancelScope()
        self._stopped = trio.Event()
        self.log: EngineLog = core.log

    @property
    def base_url(self) -> str:
        """``http://127.0.0.1:port``: what Ollama's clients are given."""
        return f"http://{_HOST}:{self._port}"

    @property
    def openai_url(self) -> str:
        """``base_url`` with ``/v1``: what OpenAI's clients are given."""
        return f"{self.base_url}/v1"

    @property
    def gemini_url(self) -> str:
        """``base_url`` with ``/v1beta``: what Gemini's clients are given."""
        return f"{self.base_url}/v1beta"

    @property
    def queued(self) -> int:
        """Units of work that wait in the engine for a slot."""
        return self._core.queued

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

    async def start(self) -> None:
        """Listen: on a free port the first time, on the same one after ``kill``.

        Cancellation:
            The engine may or may not listen.
        """
        self._server = trio.CancelScope()
        self._stopped = trio.Event()
        listeners = await trio.open_tcp_listeners(self._port, host=_HOST)
        self._port = listeners[0].socket.getsockname()[1]
        self._nursery.start_soon(self._serve, listeners)

    async def kill(self) -> None:
        """Close the listener and every connection, as the end of the process would; ``start`` brings it back.

        Cancellation:
            The engine is ended all the same; only the wait for it is cut short.
        """
        self._core.stop_all()
        self._server.cancel()
        await self._stopped.wait()

    async def _serve(self, listeners: list[trio.SocketListener]) -> None:
        try:
            with self._server:
                await trio.serve_listeners(self._connection, listeners)
        finally:
            self._stopped.set()

    async def _connection(self, stream: trio.SocketStream) -> None:
        self.log.connections += 1
        self.log.open_connections += 1
        try:
            await _Conversation(self._core, stream).run()
        except (trio.BrokenResourceError, trio.ClosedResourceError, NotHttpError):
            pass  # the client is gone, or speaks no HTTP: its connection ends, and the engine does not
        finally:
            self.log.open_connections -= 1
            self.log.changed()


class _Conversation:
    """The requests of one connection, one after the other."""

    def __init__(self, core: EngineCore, stream: trio.SocketStream) -> None:
        self._core = core
        self._stream = stream
        self._requests = RequestReader()

    async def run(self) -> None:
        while (request := await self._next_request()) is not None:
            asked = self._core.ask(request.method, request.target.partition("?")[0], request.headers, request.body)
            if not await self._answer(asked) or request.is_last:
                return

    async def _next_request(self) -> HttpRequest | None:
        while (request := self._requests.next()) is None:
            data = await self._stream.receive_some(_READ)
            if not data:
                return None
            self._requests.feed(data)
        return request

    async def _answer(self, asked: Job | EngineReply) -> bool:
        """Send the reply; whether the connection is good for another request."""
        if isinstance(asked, EngineReply):
            await self._send_whole(asked)
            return True
        if not asked.done.is_set():
            await self._watch_client(asked)
        if asked.record.client_left:
            return False
        reply = self._core.reply_of(asked)
        return await self._send(reply, asked)

    async def _send(self, reply: EngineReply, job: Job) -> bool:
        how = reply.behaviour
        try:
            if reply.pieces:
                await self._send_pieces(reply, half=how.sends == "half")
            elif how.sends == "all":
                await self._send_whole(reply)
            else:
                await self._send_part(reply)
        except trio.BrokenResourceError:
            self._core.leave(job)
            raise
        self._core.answered(job, whole=how.sends == "all")
        if how.then == "stall":
            await self._until_client_leaves()
            self._core.leave(job)
        elif how.then == "reset":
            # Lingering for no time makes close() send a reset in place of a FIN.
            self._stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return how.then == "keep"

    async def _watch_client(self, job: Job) -> None:
        """Wait until ``job`` is done or its client has closed the connection."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._report_leaving, job, nursery.cancel_scope)
            await job.done.wait()
            nursery.cancel_scope.cancel()

    async def _report_leaving(self, job: Job, scope: trio.CancelScope) -> None:
        await self._until_client_leaves()
        self._core.leave(job)
        scope.cancel()

    async def _until_client_leaves(self) -> None:
        try:
            while data := await self._stream.receive_some(_READ):
                self._requests.feed(data)
        except trio.BrokenResourceError:
            pass  # a reset is one way of leaving

    async def _send_whole(self, reply: EngineReply) -> None:
        # In one write, as servers do for small replies.
        await self._stream.send_all(response_head(reply.status, reply.headers, len(reply.body)) + reply.body)

    async def _send_pieces(self, reply: EngineReply, *, half: bool) -> None:
        """A stream, a piece at a time, as far as its client reads it."""
        await self._stream.send_all(response_head(reply.status, reply.headers, None))
        pieces = reply.pieces[: len(reply.pieces) // 2] if half else reply.pieces
        for piece in pieces:
            await self._stream.send_all(chunk(piece))
            if reply.behaviour.every:
                await trio.sleep(reply.behaviour.every)
        if not half:
            await self._stream.send_all(chunk(b""))

    async def _send_part(self, reply: EngineReply) -> None:
        if reply.behaviour.sends != "nothing":
            await self._stream.send_all(response_head(reply.status, reply.headers, len(reply.body)))
        if reply.behaviour.sends == "half":
            await self._stream.send_all(reply.body[: len(reply.body) // 2])


@asynccontextmanager
async def open_scripted_engine(
    *,
    slots: int = 1,
    service: Service = 0.0,
    split: bool = False,
    rules: Sequence[Rule] = (),
    on_leave: OnLeave = "stop",
    dimension: int = 8,
    models: tuple[str, ...] = ("scripted",),
    base64: Base64 = "gives",
    api_key: str | None = None,
    says: Says = repeat_question,
) -> AsyncGenerator[ScriptedEngine]:
    """A scripted engine, listening on a free loopback port for as long as the block lasts.

    The parameters are those of ``EngineScript``.

    Cancellation:
        The engine ends; whatever it computes is dropped.
    """
    script = EngineScript(slots, service, split, rules, on_leave, dimension, models, base64, api_key, says)
    async with trio.open_nursery() as nursery:
        engine = ScriptedEngine(EngineCore(script, nursery), nursery)
        await engine.start()
        try:
            yield engine
        finally:
            nursery.cancel_scope.cancel()
