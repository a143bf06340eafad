"""An engine whose answers come in pieces when a test says so, as much as it says, and that sees who reads."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import trio

from embedkit.testing.engine_http import RequestReader, chunk, response_head


@attrs.define(eq=False)
class Call:
    """One request to the engine.

    Attributes:
        send: Pieces of its answer; closing it ends the answer.
        sent: Bytes that the engine's socket has taken.
        has_left: Whether whoever asked closed the connection.
        broken: Set to end the connection in the middle of the answer.
    """

    send: trio.MemorySendChannel[bytes]
    _pieces: trio.MemoryReceiveChannel[bytes]
    sent: int = 0
    has_left: trio.Event = attrs.field(factory=trio.Event)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    def break_off(self) -> None:
        self.scope.cancel()


@attrs.define(eq=False)
class StreamingEngine:
    """See the module."""

    url: str = ""
    calls: list[Call] = attrs.field(factory=list)
    _arrived: trio.Event = attrs.field(factory=trio.Event)

    async def call(self, number: int) -> Call:
        """Request ``number``, counted from 0, once it is there."""
        with trio.fail_after(10):
            while len(self.calls) <= number:
                await self._arrived.wait()
        return self.calls[number]

    async def serve(self, stream: trio.SocketStream) -> None:
        try:
            await self._converse(stream)
        except* trio.BrokenResourceError:
            pass

    async def _converse(self, stream: trio.SocketStream) -> None:
        requests = RequestReader()
        while True:
            while requests.next() is None:
                data = await stream.receive_some(65536)
                if not data:
                    return
                requests.feed(data)
            send, receive = trio.open_memory_channel[bytes](10_000)
            call = Call(send, receive)
            self.calls.append(call)
            self._arrived.set()
            self._arrived = trio.Event()
            with call.scope:
                await self._answer(stream, call)
            if call.has_left.is_set() or call.scope.cancelled_caught:
                return

    async def _answer(self, stream: trio.SocketStream, call: Call) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, stream, call, nursery.cancel_scope)
            await stream.send_all(response_head(200, [("Content-Type", "text/event-stream")], None))
            async for piece in call._pieces:
                await stream.send_all(chunk(piece))
                call.sent += len(piece)
            await stream.send_all(chunk(b""))
            nursery.cancel_scope.cancel()

    async def _watch(self, stream: trio.SocketStream, call: Call, scope: trio.CancelScope) -> None:
        try:
            while await stream.receive_some(65536):
                pass
        except trio.BrokenResourceError:
            pass
        call.has_left.set()
        scope.cancel()


@asynccontextmanager
async def open_streaming_engine() -> AsyncGenerator[StreamingEngine]:
    engine = StreamingEngine()
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        engine.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"

        async def serve(stream: trio.SocketStream) -> None:
            async with stream:
                await engine.serve(stream)

        nursery.start_soon(trio.serve_listeners, serve, listeners)
        try:
            yield engine
        finally:
            nursery.cancel_scope.cancel()
