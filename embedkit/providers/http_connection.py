"""One connection to one engine; part of the HTTP room. h11 reads and writes HTTP, trio the socket.

A small request is what most of an engine's clients send, and a general client spends more on one than the engine does:
on locks, pools, timers and traces that a slot, which has one request at a time and one scope around it, has no use for.
A request's head and body leave in one write.
"""

from __future__ import annotations

import select
import ssl
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

import attrs
import h11
import trio

_READ = 65_536
Headers = list[tuple[bytes, bytes]]


class TooLargeError(Exception):
    """The reply's body is larger than its reader allows."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


@attrs.frozen
class RawReply:
    """A whole reply.

    Attributes:
        status: HTTP status.
        headers: As they came, names in lower case.
        body: Its bytes.
    """

    status: int
    headers: Sequence[tuple[bytes, bytes]] = attrs.field(repr=False)
    body: bytes = attrs.field(repr=False)


class DirectConnection:
    """A connection that is opened by the first request, and again where the server has closed it meanwhile.

    Args:
        host: Name or address.
        port: Port.
        ssl_context: Speaks TLS, where given.
    """

    def __init__(self, host: str, port: int, ssl_context: ssl.SSLContext | None) -> None:
        self._host = host
        self._port = port
        self._ssl_context = ssl_context
        self._http = h11.Connection(h11.CLIENT)
        self._stream: trio.abc.Stream | None = None
        self._is_readable: Callable[[], bool] | None = None

    async def exchange(self, method: str, target: str, headers: Headers, body: bytes, limit: int) -> RawReply:
        """Send one request and read its whole reply.

        Args:
            method: ``GET``, ``POST``.
            target: Path and query.
            headers: All of them, the body's length included.
            body: May be empty.
            limit: Bytes of a body that are read at most.

        Raises:
            OSError: No connection could be opened.
            trio.BrokenResourceError: It broke.
            h11.RemoteProtocolError: What came is no HTTP, or is cut short.
            TooLargeError: The body has more than ``limit`` bytes.

        Cancellation:
            Half a request may have been sent: whoever gets it calls ``aclose``, as after every error.
        """
        stream = await self._opened()
        http = self._http
        sent = http.send(h11.Request(method=method, target=target, headers=headers)) or b""
        if body:
            sent += http.send(h11.Data(data=body)) or b""
        # A server may refuse a request before it has read it, and its refusal can still be read.
        with suppress(trio.BrokenResourceError):
            await stream.send_all(sent + (http.send(h11.EndOfMessage()) or b""))
        reply = await self._read(stream, limit)
        if http.our_state is h11.DONE and http.their_state is h11.DONE:
            http.start_next_cycle()
        else:
            await self.aclose()
        return reply

    async def aclose(self) -> None:
        """Close the connection, if there is one, without a farewell: the peer is not waited for.

        Cancellation:
            It is closed all the same.
        """
        stream, self._stream, self._is_readable = self._stream, None, None
        if stream is not None:
            await trio.aclose_forcefully(stream)

    async def _read(self, stream: trio.abc.Stream, limit: int) -> RawReply:
        http = self._http
        head: h11.Response | None = None
        parts: list[bytes] = []
        size = 0
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(bytes(await stream.receive_some(_READ)))
            elif isinstance(event, h11.Data):
                assert head is not None
                size += len(event.data)
                if size > limit:
                    raise TooLargeError(head.status_code)
                parts.append(bytes(event.data))
            elif isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.EndOfMessage):
                assert head is not None
                return RawReply(head.status_code, list(head.headers), parts[0] if len(parts) == 1 else b"".join(parts))
            elif not isinstance(event, h11.InformationalResponse):
                raise h11.RemoteProtocolError("the server hung up in place of a reply")

    async def _opened(self) -> trio.abc.Stream:
        if self._is_readable is not None and self._is_readable():
            # Nothing was asked, so what can be read of it is its end.
            await self.aclose()
        if self._stream is None:
            self._http = h11.Connection(h11.CLIENT)
            plain = await trio.open_tcp_stream(self._host, self._port)
            self._stream = plain if self._ssl_context is None else await self._secured(plain, self._ssl_context)
            self._is_readable = _reader_of(plain.socket.fileno())
        return self._stream

    async def _secured(self, plain: trio.SocketStream, context: ssl.SSLContext) -> trio.abc.Stream:
        secure = trio.SSLStream(plain, context, server_hostname=self._host, https_compatible=True)
        try:
            await secure.do_handshake()
        except BaseException:
            await trio.aclose_forcefully(plain)
            raise
        return secure


def _reader_of(descriptor: int) -> Callable[[], bool]:
    """Says whether there is something to read, without waiting for it."""
    if sys.platform == "win32":
        return lambda: bool(select.select([descriptor], [], [], 0)[0])
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return lambda: bool(poll.poll(0))
