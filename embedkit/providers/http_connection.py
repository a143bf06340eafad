"""One connection to one engine, as an httpx transport; part of the HTTP room.

httpcore speaks HTTP over a stream that it is given, which is how its network backends work. Ours differs from its own
in two things that a small request pays for: a request's head and body leave in one write, and no timer is set for each
read and write, since the attempt's scope bounds them all. There is no pool: its owner has one request at a time.
"""

from __future__ import annotations

import select
import ssl
import sys
from contextlib import suppress
from typing import Any

import httpcore
import httpx
import trio


class SlotTransport(httpx.AsyncBaseTransport):
    """At most one connection, opened by the first request, and again where the server has closed it meanwhile.

    Args:
        url: The engine's; only its scheme, host and port matter.
        ssl_context: For ``https``.
    """

    def __init__(self, url: httpx.URL, ssl_context: ssl.SSLContext) -> None:
        self._host = url.host
        self._origin = httpcore.Origin(url.raw_scheme, url.raw_host, url.port or (443 if url.scheme == "https" else 80))
        self._ssl_context = ssl_context if url.scheme == "https" else None
        self._connection: httpcore.AsyncHTTP11Connection | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send ``request``, and give its reply once its head is there.

        Raises:
            OSError: No connection could be opened.
            httpcore.NetworkError: It broke.
            httpcore.ProtocolError: What came is no HTTP.

        Cancellation:
            The connection is closed, or ``aclose`` closes it.
        """
        connection = await self._opened()
        url = request.url
        reply = await connection.handle_async_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                headers=request.headers.raw,
                content=request.stream,
            )
        )
        return httpx.Response(reply.status, headers=reply.headers, stream=_Reply(reply))

    async def aclose(self) -> None:
        """Close the connection, if there is one.

        Cancellation:
            It is closed all the same.
        """
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()

    async def _opened(self) -> httpcore.AsyncHTTP11Connection:
        if self._connection is not None and (self._connection.is_closed() or self._connection.has_expired()):
            await self.aclose()
        if self._connection is None:
            self._connection = httpcore.AsyncHTTP11Connection(self._origin, await self._stream())
        return self._connection

    async def _stream(self) -> _Stream:
        plain = await trio.open_tcp_stream(self._host, self._origin.port)
        if self._ssl_context is None:
            return _Stream(plain, plain.socket)
        secure = trio.SSLStream(plain, self._ssl_context, server_hostname=self._host, https_compatible=True)
        try:
            await secure.do_handshake()
        except BaseException:
            await trio.aclose_forcefully(secure)
            raise
        return _Stream(secure, plain.socket)


class _Reply(httpx.AsyncByteStream):
    """The body of a reply: httpcore's stream under httpx's type."""

    def __init__(self, reply: httpcore.Response) -> None:
        self._stream: Any = reply.stream

    def __aiter__(self) -> Any:
        return self._stream.__aiter__()

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Stream(httpcore.AsyncNetworkStream):
    """A trio stream for httpcore, which keeps what is written until it is asked to read."""

    def __init__(self, stream: trio.abc.Stream, socket: trio.socket.SocketType) -> None:
        self._inner = stream
        self._socket = socket
        self._held: list[bytes] = []

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Send what is held, then wait for bytes; ``b""`` at the end.

        Cancellation:
            Some of what was held may have been sent.
        """
        try:
            if self._held:
                held, self._held = b"".join(self._held), []
                # A server may refuse a request before it has read it, and its refusal can still be read.
                with suppress(trio.BrokenResourceError):
                    await self._inner.send_all(held)
            return bytes(await self._inner.receive_some(max_bytes))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise httpcore.ReadError(str(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Keep ``buffer`` until the next ``read``; not a checkpoint.

        Cancellation:
            Never comes out.
        """
        if buffer:
            self._held.append(buffer)

    async def aclose(self) -> None:
        """Close the socket, without a farewell: the peer is not waited for.

        Cancellation:
            It is closed all the same.
        """
        await trio.aclose_forcefully(self._inner)

    def get_extra_info(self, info: str) -> Any:
        """``is_readable``, which of an idle connection means that the server has closed it."""
        return _is_readable(self._socket.fileno()) if info == "is_readable" else None


def _is_readable(descriptor: int) -> bool:
    if descriptor < 0:
        return True
    if sys.platform == "win32":
        return bool(select.select([descriptor], [], [], 0)[0])
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
