"""One client's connection: h11 above a stream, requests one after the other, with bounds on size and time.

How it works
------------
A request is read whole before anything is decided about it: its head within ``max_header`` bytes, its body within
``max_body``, all of it within ``read_timeout`` of its first byte. What cannot be read is refused by name where the
client can still be answered, and then the connection ends: nobody can say where the next request would begin.

Shapes that two readers could understand differently (a length and chunks at once, two lengths, a folded header) are
refused, though nothing of a head is ever passed on as bytes: what the engine gets is written anew.

While a request waits, somebody has to notice that its client has left. No HTTP client closes one half of its
connection, so the end of its stream is its leaving (``until_gone``). What a client sends ahead of its answer is kept,
up to the bound on a head; more is no pipelining but a flood, and counts as leaving.

An answer is written by one task at a time: by the connection's own, or by the slot that has the ticket while the
connection's own task waits for it.

Tested in ``tests/gateway/test_inbound.py`` and ``tests/gateway/test_parser_edges.py``.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from http import HTTPStatus

import attrs
import h11
import trio

from embedkit.gateway.refusals import Refusal, bad
from embedkit.settings import GatewaySettings

Header = tuple[bytes, bytes]

_READ = 1 << 16
_PIECE = 1 << 16
_REASONS = {int(status): status.phrase.encode("ascii") for status in HTTPStatus}
_HEAD_END = re.compile(rb"\n\r?\n")
_FOLDED = re.compile(rb"\n[ \t]")
# Seconds that a connection may be idle between two requests.
IDLE_SECONDS = 120.0
# What is still read of a request that was refused, so that the refusal arrives: a close with something unread is a
# reset, which takes the answer with it.
_LINGER_BYTES = 1 << 20
_LINGER_SECONDS = 2.0


class ClientGoneError(Exception):
    """There is nobody to answer.

    Attributes:
        has_stalled: It did not leave, but stopped reading.
    """

    def __init__(self, *, has_stalled: bool = False) -> None:
        super().__init__("the client stopped reading" if has_stalled else "the client has left")
        self.has_stalled = has_stalled


@attrs.frozen
class Request:
    """A request's head.

    Attributes:
        method: The verb.
        path: Without its query.
        headers: Names in lower case; of a name that comes twice, all values joined with a comma.
    """

    method: str
    path: str
    headers: Mapping[str, str] = attrs.field(repr=False)


class Inbound:
    """A client's connection.

    Args:
        stream: The client's.
        settings: The bounds.
        is_local: Whether it came over a unix socket.

    Attributes:
        is_local: As given.
    """

    def __init__(self, stream: trio.abc.Stream, settings: GatewaySettings, *, is_local: bool = False) -> None:
        self.is_local = is_local
        self._stream = stream
        self._settings = settings
        self._state = h11.Connection(h11.SERVER, max_incomplete_event_size=settings.max_header)
        # Bytes of the head that is being read, to see its shape; empty within a body.
        self._head = bytearray()
        self._ahead = 0
        self._size = 0
        self._is_head_request = False
        # When the request that is being read must be there; infinite while there is none.
        self._scope: trio.CancelScope | None = None
        self._is_resting = False

    async def next_request(self) -> Request | None:
        """The head of the next request; ``None`` when the client has no more.

        Raises:
            Refusal: What came is no request that is borne.

        Cancellation:
            The connection is of no use.
        """
        self._head = bytearray()
        self._ahead = 0
        self._size = 0
        with trio.CancelScope(deadline=trio.current_time() + IDLE_SECONDS) as scope:
            self._scope = scope
            self._is_resting = True
            # Of a client that sent its next request ahead, the first bytes are there already.
            if self._state.trailing_data[0]:
                self._note_head(self._state.trailing_data[0])
            event = await self._next_event()
            self._is_resting = False
            if not isinstance(event, h11.Request):
                return None
            self._is_head_request = event.method == b"HEAD"
            return self._request_of(event)
        self._is_resting = False
        if self._head:
            raise Refusal(408, "request_timeout", f"the request's head did not arrive in {self._patience}")
        return None

    def end_rest(self) -> None:
        """If it waits for its client's next request, of which nothing has come: end that."""
        if self._is_resting and not self._head and self._scope is not None:
            self._scope.cancel()

    async def read_body(self) -> bytes:
        """The body of the request, whole.

        Raises:
            Refusal: It is too large, takes too long, or is not what its head says.
            ClientGoneError: The client left before its end.

        Cancellation:
            The connection is of no use.
        """
        assert self._scope is not None
        parts: list[bytes] = []
        if not self._state.they_are_waiting_for_100_continue and self._take_body(parts):
            return parts[0] if len(parts) == 1 else b"".join(parts)  # nearly always: it came with its head
        with trio.CancelScope(deadline=self._scope.deadline):
            if self._state.they_are_waiting_for_100_continue:
                await self._send(self._state.send(h11.InformationalResponse(status_code=100, headers=[])))
            while not self._take_body(parts):
                await self._receive()
            return parts[0] if len(parts) == 1 else b"".join(parts)
        raise Refusal(408, "request_timeout", f"the request's body did not arrive in {self._patience}")

    async def answer(self, status: int, headers: Sequence[Header], body: bytes) -> None:
        """Write a whole answer.

        Raises:
            ClientGoneError: The client has left, or reads no more.

        Cancellation:
            It may have been written in part.
        """
        head = self._begin(status, [*headers, (b"content-length", b"%d" % len(body))])
        if self._is_head_request:
            body = b""
        if len(body) <= _PIECE:
            await self._send(head + self._data(body) + self._end())
            return
        await self._send(head)
        for start in range(0, len(body), _PIECE):
            await self._send(self._data(body[start : start + _PIECE]))
        await self._send(self._end())

    async def begin(self, status: int, headers: Sequence[Header], first: bytes) -> None:
        """Write the head of an answer that comes in pieces, with the first of them.

        Raises:
            ClientGoneError: The client has left, or reads no more.

        Cancellation:
            It may have been written in part.
        """
        await self._send(self._begin(status, headers) + self._data(first))

    async def send(self, piece: bytes) -> None:
        """Write the next piece. Returns when the client's socket has taken it: whoever makes pieces goes at its pace.

        Raises:
            ClientGoneError: The client has left, or reads no more.

        Cancellation:
            It may have been written in part.
        """
        await self._send(self._data(piece))

    async def finish(self) -> None:
        """The answer that came in pieces is whole.

        Raises:
            ClientGoneError: The client has left, or reads no more.

        Cancellation:
            The client may take the answer for cut short.
        """
        await self._send(self._end())

    def begin_next(self) -> bool:
        """Be ready for another request; false if this was the last."""
        state = self._state
        if state.our_state is not h11.DONE or state.their_state is not h11.DONE:
            return False
        state.start_next_cycle()
        return True

    @property
    def can_answer(self) -> bool:
        """Whether nothing of an answer to the current request has been written."""
        return self._state.our_state in (h11.IDLE, h11.SEND_RESPONSE)

    @property
    def has_left(self) -> bool:
        """Whether the client's end is known to the system by now. Over TLS nobody can say without reading."""
        if not isinstance(self._stream, trio.SocketStream) or not self._stream.socket.is_readable():
            return False
        # Something is there: its end, or what it sends ahead. Trio's own sockets cannot look without a checkpoint.
        with socket.fromfd(self._stream.socket.fileno(), socket.AF_INET, socket.SOCK_STREAM) as found:
            try:
                return found.recv(1, socket.MSG_PEEK) == b""
            except OSError:  # reset
                return True

    async def until_gone(self) -> None:
        """Return when the client has left. What it sends ahead is kept for its next request.

        Cancellation:
            Nothing is lost.
        """
        try:
            while data := await self._stream.receive_some(_READ):
                self._ahead += len(data)
                if self._ahead > self._settings.max_header:
                    return
                self._state.receive_data(bytes(data))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return

    async def linger(self) -> None:
        """Say that nothing more comes, and read a little of what still does, so that the last answer arrives.

        Cancellation:
            The connection is of no use.
        """
        with trio.move_on_after(_LINGER_SECONDS):
            try:
                if isinstance(self._stream, trio.abc.HalfCloseableStream):
                    await self._stream.send_eof()
                read = 0
                while read < _LINGER_BYTES and (data := await self._stream.receive_some(_READ)):
                    read += len(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return

    async def aclose(self) -> None:
        """Close the connection.

        Cancellation:
            It is closed.
        """
        # What of an answer is missing is missing: TLS is not asked to wait for its peer either.
        await trio.aclose_forcefully(self._stream)

    # Reading.

    @property
    def _patience(self) -> str:
        return f"{self._settings.read_timeout:g} s (gateway.read_timeout)"

    def _too_large(self) -> Refusal:
        message = f"the body is larger than {self._settings.max_body} bytes (gateway.max_body)"
        return Refusal(413, "body_too_large", message)

    async def _next_event(self) -> object:
        while (event := self._event_now()) is h11.NEED_DATA:
            await self._receive()
        return event

    def _event_now(self) -> object:
        try:
            return self._state.next_event()
        except h11.RemoteProtocolError as error:
            raise self._not_http(error) from None

    async def _receive(self) -> None:
        try:
            data = await self._stream.receive_some(_READ)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise ClientGoneError from None
        if not data:
            raise ClientGoneError
        if self._state.their_state is h11.IDLE:
            self._note_head(bytes(data))
        self._state.receive_data(bytes(data))

    def _take_body(self, parts: list[bytes]) -> bool:
        """Move what has arrived of the body into ``parts``; whether that is all of it."""
        while isinstance(event := self._event_now(), h11.Data):
            parts.append(bytes(event.data))
            self._size += len(event.data)
            if self._size > self._settings.max_body:
                raise self._too_large()
        return isinstance(event, h11.EndOfMessage)

    def _note_head(self, data: bytes) -> None:
        if not self._head and self._scope is not None:
            self._scope.deadline = trio.current_time() + self._settings.read_timeout
        self._head += data[: max(self._settings.max_header - len(self._head), 0)]

    def _not_http(self, error: h11.RemoteProtocolError) -> Refusal:
        if error.error_status_hint == 431:
            message = f"the request's head is larger than {self._settings.max_header} bytes (gateway.max_header)"
            return Refusal(431, "head_too_large", message)
        # h11's own words may quote what was sent.
        return bad("what was sent is no request of HTTP/1.1", code="not_http", status=error.error_status_hint)

    def _request_of(self, event: h11.Request) -> Request:
        if event.http_version not in (b"1.0", b"1.1"):
            raise bad("this speaks HTTP/1.1, and no other version", code="http_version", status=505)
        end = _HEAD_END.search(self._head)
        if _FOLDED.search(self._head, 0, end.start() + 1 if end else len(self._head)):
            raise bad("a header is folded over two lines, which nobody may do any more", code="not_http")
        headers: dict[str, str] = {}
        for raw_name, raw_value in event.headers:
            name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        if "content-length" in headers and "transfer-encoding" in headers:
            raise bad("the request has a length and chunks at once", code="not_http")
        length = headers.get("content-length", "0")
        if len(length) > 15 or int(length) > self._settings.max_body:
            raise self._too_large()
        target = event.target.decode("latin-1")
        return Request(event.method.decode("latin-1"), target.partition("?")[0], headers)

    # Writing.

    def _begin(self, status: int, headers: Sequence[Header]) -> bytes:
        if status != 200 and self._state.their_state is not h11.DONE:
            headers = [*headers, (b"connection", b"close")]  # it was not read whole: what follows is no request
        reason = _REASONS.get(status, b"")
        return self._state.send(h11.Response(status_code=status, headers=list(headers), reason=reason)) or b""

    def _data(self, data: bytes) -> bytes:
        return self._state.send(h11.Data(data=data)) or b"" if data else b""

    def _end(self) -> bytes:
        return self._state.send(h11.EndOfMessage()) or b""

    async def _send(self, data: bytes) -> None:
        try:
            with trio.move_on_after(self._settings.write_stall) as scope:
                await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise ClientGoneError from None
        if scope.cancelled_caught:
            raise ClientGoneError(has_stalled=True)
