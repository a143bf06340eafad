"""A server that sends what a script says, piece by piece: for streams, and for interfaces that no engine here has."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import attrs
import trio


@attrs.frozen
class Heard:
    """A request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


Say = Callable[[bytes], Awaitable[None]]
Script = Callable[[Heard, Say], Awaitable[None]]


@attrs.define(eq=False)
class Server:
    """Where it is, what it heard, and how many connections are open."""

    script: Script
    base_url: str = ""
    heard: list[Heard] = attrs.field(factory=list)
    open: int = 0

    async def talk(self, stream: trio.SocketStream) -> None:
        self.open += 1
        try:
            async with stream:
                early: bytes | None = b""
                while early is not None and (request := await self._next(stream, early)) is not None:
                    self.heard.append(request)
                    early = await self._answer(request, stream)
        except trio.BrokenResourceError:
            pass  # the client has left
        finally:
            self.open -= 1

    async def _answer(self, request: Heard, stream: trio.SocketStream) -> bytes | None:
        """As the script says, until the client leaves.

        Returns:
            What has come of the next request: a client that has its answer may be quicker than the end of the script.
            ``None`` if no other may follow.
        """
        early: bytes | None = b""
        has_begun = False
        async with trio.open_nursery() as nursery:

            async def say(part: bytes) -> None:
                nonlocal has_begun
                has_begun = True
                await stream.send_all(part)

            async def watch() -> None:
                nonlocal early
                early = None
                with suppress(trio.BrokenResourceError):  # a reset is one way of leaving
                    early = await stream.receive_some(1) or None
                if early is None:
                    nursery.cancel_scope.cancel()
                else:
                    assert has_begun, "a request before its time"

            watched = trio.CancelScope()

            async def watch_for_a_while() -> None:
                nonlocal early
                with watched:
                    await watch()
                if watched.cancelled_caught:
                    early = b""

            nursery.start_soon(watch_for_a_while)
            try:
                await self.script(request, say)
            except trio.BrokenResourceError:
                nursery.cancel_scope.cancel()
                return None
            watched.cancel()
        return early

    async def _next(self, stream: trio.SocketStream, data: bytes) -> Heard | None:
        while b"\r\n\r\n" not in data:
            part = await stream.receive_some(1 << 16)
            if not part:
                return None
            data += part
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        while len(body) < int(headers.get("content-length", 0)):
            part = await stream.receive_some(1 << 16)
            if not part:
                return None
            body += part
        method, path, _ = first.split(" ")
        return Heard(method, path, headers, body)


@asynccontextmanager
async def serving(script: Script) -> AsyncGenerator[Server]:
    server = Server(script)
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        server.base_url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/v1"
        nursery.start_soon(trio.serve_listeners, server.talk, [listener])
        yield server
        nursery.cancel_scope.cancel()


def whole(document: object, status: int = 200) -> bytes:
    """A reply in one piece."""
    body = json.dumps(document).encode()
    return (
        f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    )


def begun(kind: str = "text/event-stream") -> bytes:
    """The head of a reply in pieces."""
    return f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()


def piece(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


END = b"0\r\n\r\n"


def pieces(*parts: bytes | float, kind: str = "text/event-stream", ends: bool = True) -> Script:
    """A reply of these parts; a number is a wait of so many seconds. Without its end, the connection is closed."""

    async def script(request: Heard, say: Say) -> None:
        await say(begun(kind))
        for part in parts:
            if isinstance(part, bytes):
                await say(piece(part))
            else:
                await trio.sleep(part)
        if not ends:
            raise trio.BrokenResourceError
        await say(END)

    return script


def events(*documents: object) -> Sequence[bytes]:
    """Server-sent events of these documents."""
    return [b"data: " + json.dumps(document).encode() + b"\n\n" for document in documents]


def delta(text: str | None, finish: str | None = None) -> dict[str, Any]:
    return {"model": "scripted", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}
