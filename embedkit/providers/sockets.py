"""One connection's bytes, over trio: one write a request, and no timers.

An attempt has one scope, from dispatch to the last byte, so there are no timeouts here. What is written is kept until
something is read: head and body are one packet, and a request that is cancelled before that never reaches the engine.

A peer may answer before it has read the whole request (too large, no key), and then read no more. So a request that is
larger than a socket takes at once is sent while somebody listens: the first byte of an answer ends the sending. That
happens below TLS, which takes what was not sent for sent and goes on reading; the connection is good for one answer.
"""

from __future__ import annotations

import ssl

import trio

from embedkit.providers.connection_failures import NoReply

_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")  # an alert, a handshake
_AT_ONCE = 1 << 14  # bytes that any socket's buffer takes without waiting for its peer


class _Socket(trio.abc.HalfCloseableStream):
    """A socket whose sending can be ended from another task, so that whoever sends goes on as if all were sent."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.is_cut = False
        self._sending = trio.CancelScope()

    def cut(self) -> None:
        """Send nothing more."""
        self.is_cut = True
        self._sending.cancel()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        if self.is_cut:
            await trio.lowlevel.checkpoint()
            return
        try:
            if len(data) <= _AT_ONCE:
                await self.stream.send_all(data)
                return
            # Made anew: one that was cancelled stays so, and is never entered again.
            with trio.CancelScope() as self._sending:
                await self.stream.send_all(data)
        except trio.BrokenResourceError:
            # The peer has closed, perhaps after an answer: whoever reads sees it.
            self.is_cut = True

    async def wait_send_all_might_not_block(self) -> None:
        await self.stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self.stream.send_eof()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self.stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self.stream.aclose()


async def open_stream(host: str, port: int) -> Stream:
    """Connect to the first of the host's addresses that answers.

    Raises:
        NoReply: None does; from what the system said.

    Cancellation:
        Nothing is open.
    """
    try:
        return Stream(await trio.open_tcp_stream(host, port))
    except (OSError, UnicodeError) as error:  # the second: a name that is none
        raise NoReply("opening") from error


class Stream:
    """One connection. Only its own slot's task uses it."""

    def __init__(self, socket: trio.SocketStream | _Socket, secured: trio.SSLStream[_Socket] | None = None) -> None:
        self._socket = socket if isinstance(socket, _Socket) else _Socket(socket)
        self._stream: trio.abc.Stream = self._socket if secured is None else secured
        self._unsent: list[bytes] = []
        self._is_new = secured is None

    @property
    def has_unsent(self) -> bool:
        """Whether something was written, and nothing read since."""
        return bool(self._unsent)

    @property
    def is_cut(self) -> bool:
        """Whether an answer came, or the peer left, before all was sent."""
        return self._socket.is_cut

    @property
    def is_readable(self) -> bool:
        """Of an idle connection: whether its peer has closed it, since there is nothing else to come."""
        return self._socket.stream.socket.is_readable()

    def write(self, data: bytes) -> None:
        """Have ``data`` sent before the next read."""
        self._unsent.append(data)

    async def read(self, max_bytes: int) -> bytes:
        """What comes next, after what is unsent was sent; nothing at the end.

        Raises:
            NoReply: The connection broke, or what came first is a record of TLS.

        Cancellation:
            What was unsent may be sent in part: the connection is of no use.
        """
        try:
            received = await self._exchange(max_bytes) if self._unsent else await self._stream.receive_some(max_bytes)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise NoReply("reading") from error
        if self._is_new and received:
            self._is_new = False
            if received.startswith(_TLS_RECORDS):
                raise NoReply("not-http")
        return bytes(received)

    async def _exchange(self, max_bytes: int) -> bytes | bytearray:
        """Send what is unsent and give the first bytes that come back."""
        unsent = b"".join(self._unsent)
        self._unsent.clear()
        if len(unsent) <= _AT_ONCE:
            await self._stream.send_all(unsent)
            return await self._stream.receive_some(max_bytes)
        received: bytes | bytearray = b""
        failed: trio.BrokenResourceError | None = None
        is_sent = False

        async def listen() -> None:
            nonlocal received, failed
            try:
                received = await self._stream.receive_some(max_bytes)
            except trio.BrokenResourceError as error:
                failed = error  # kept aside, so that the nursery makes no group of it
            if not is_sent:
                self._socket.cut()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            try:
                await self._stream.send_all(unsent)
                is_sent = True
            except trio.BrokenResourceError as error:
                failed = error  # unless an answer comes all the same
        if failed is not None and not received:
            raise failed
        return received

    async def aclose(self) -> None:
        """Close the socket.

        Cancellation:
            It is closed.
        """
        await self._stream.aclose()

    async def secured(self, context: ssl.SSLContext, host: str) -> Stream:
        """TLS over this connection, which is used through the result alone from here on.

        Raises:
            NoReply: No secure connection came about; the socket is closed.

        Cancellation:
            The socket is closed.
        """
        secured = trio.SSLStream(self._socket, context, server_hostname=host, https_compatible=True)
        try:
            await secured.do_handshake()
        except BaseException as error:
            await trio.aclose_forcefully(self._socket)
            if isinstance(error, trio.BrokenResourceError):
                raise NoReply("opening") from error
            raise
        return Stream(self._socket, secured)
