"""One HTTP/1.1 connection: h11 above a stream, one request at a time, and how it is opened.

h11 knows the protocol; here its events are moved. A connection has no lock and no state of its own: one slot's task
uses it, and after anything that went wrong it is closed and never asked again.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence

import attrs
import h11

from embedkit.providers.connection_failures import NoReply
from embedkit.providers.sockets import Stream, open_stream

Header = tuple[bytes, bytes]

_READ = 1 << 16
_LARGEST_HEAD = 100 * 1024
_PAST_GOOD = 300


@attrs.frozen
class ProxyWay:
    """A proxy that every request goes through.

    Attributes:
        host: Where it is.
        port: Where it is.
        tls: How it is spoken to securely, if it is.
        headers: What it wants to know, its credentials among it.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None
    headers: Sequence[Header] = attrs.field(repr=False)


@attrs.frozen
class Way:
    """How an engine is reached.

    Attributes:
        host: Where it is.
        port: Where it is.
        tls: How it is spoken to securely, if it is.
        proxy: What stands before it.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None
    proxy: ProxyWay | None


class Http1:
    """A connection that is open. See ``open_http1``."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._state = h11.Connection(h11.CLIENT, max_incomplete_event_size=_LARGEST_HEAD)

    @property
    def has_expired(self) -> bool:
        """Whether the peer closed it while it was idle."""
        return self._stream.is_readable

    @property
    def is_spent(self) -> bool:
        """Whether it is good for no further request: its peer was not given, or did not read, all of the last one."""
        return self._stream.is_cut

    async def ask(self, request: h11.Request, body: bytes | None) -> h11.Response:
        """Send a request, and give the head of the reply; its body is to be read next.

        Raises:
            NoReply: The connection broke, or what came is no HTTP.

        Cancellation:
            The request may have been sent in part.
        """
        state = self._state
        try:
            parts = [state.send(request), b"" if body is None else state.send(h11.Data(data=body))]
            parts.append(state.send(h11.EndOfMessage()))
        except h11.LocalProtocolError as error:
            raise NoReply("other") from error
        self._stream.write(b"".join([part for part in parts if part]))
        event = await self._next_event()
        while type(event) is not h11.Response:  # "continue", and other heads that announce one
            event = await self._next_event()
        return event

    async def read_body(self, limit: int, on_part: Callable[[bytes], object] | None = None) -> tuple[bytes, bool]:
        """The body of the reply up to ``limit`` bytes, and whether that is all of it.

        Args:
            limit: In bytes.
            on_part: Called with each part as it arrives, undecoded. It must not raise.

        Raises:
            NoReply: The connection broke before its end.

        Cancellation:
            Nothing of it is kept.
        """
        parts: list[bytes] = []
        size = 0
        while type(event := await self._next_event()) is h11.Data:
            parts.append(event.data)
            if on_part is not None:
                on_part(bytes(event.data))
            size += len(event.data)
            if size > limit:
                return b"".join(parts)[:limit], False
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts), True

    async def receive(self) -> bytes:
        """The next piece of the reply's body, as it comes; nothing at its end.

        Raises:
            NoReply: The connection broke before its end.

        Cancellation:
            The connection is of no use.
        """
        event = await self._next_event()
        return bytes(event.data) if type(event) is h11.Data else b""

    def has_reply_too_many(self) -> bool:
        """Whether the reply came before its request was sent: it was in the last one's packet."""
        return self._stream.has_unsent

    def begin_next(self) -> bool:
        """Be ready for another request; false if the peer said that this reply was its last."""
        state = self._state
        if state.our_state is not h11.DONE or state.their_state is not h11.DONE:
            return False
        state.start_next_cycle()
        return True

    async def aclose(self) -> None:
        """Close the socket.

        Cancellation:
            It is closed.
        """
        await self._stream.aclose()

    async def _next_event(self) -> h11.Event | type[h11.PAUSED]:
        state = self._state
        while True:
            try:
                event = state.next_event()
            except h11.ProtocolError as error:
                raise NoReply("reading") from error
            if event is not h11.NEED_DATA:
                return event  # type: ignore[return-value]  # mypy does not follow h11's sentinels
            data = await self._stream.read(_READ)
            if not data and state.their_state is h11.SEND_RESPONSE:
                raise NoReply("reading")
            state.receive_data(data)


async def open_http1(way: Way) -> Http1:
    """Connect, through the proxy where there is one.

    Raises:
        NoReply: No connection came about.

    Cancellation:
        Nothing is open.
    """
    proxy = way.proxy
    if proxy is None:
        return Http1(await _open_stream(way.host, way.port, way.tls))
    stream = await _open_stream(proxy.host, proxy.port, proxy.tls)
    if way.tls is None:
        return Http1(stream)
    try:
        await _open_tunnel(Http1(stream), way, proxy)
    except BaseException:
        await stream.aclose()
        raise
    return Http1(await stream.secured(way.tls, way.host))


async def _open_stream(host: str, port: int, tls: ssl.SSLContext | None) -> Stream:
    stream = await open_stream(host, port)
    return stream if tls is None else await stream.secured(tls, host)


async def _open_tunnel(connection: Http1, way: Way, proxy: ProxyWay) -> None:
    target = f"[{way.host}]:{way.port}" if ":" in way.host else f"{way.host}:{way.port}"
    headers = [(b"Host", target.encode("ascii")), *proxy.headers]
    reply = await connection.ask(h11.Request(method=b"CONNECT", target=target, headers=headers), None)
    if reply.status_code >= _PAST_GOOD:
        raise NoReply("proxy")
