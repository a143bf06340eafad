"""Sockets for httpcore, over trio: one write a request, and no timers.

httpcore's own backend for trio opens a cancel scope around each read and each write, for timeouts that are never set
here (an attempt has one scope, from dispatch to the last byte), and sends a request's head and body apart: two system
calls and two packets. Here what is written is kept until something is read. So a request that is cancelled before that
never reaches the engine at all.

A peer may answer before it has read the whole request (too large, no key), and then read no more. So a request that is
larger than a socket takes at once is sent while somebody listens: the first byte of an answer ends the sending. That
happens below TLS, which takes what was not sent for sent and goes on reading; the connection is good for one answer.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import Any

import httpcore
import trio


class Sockets(httpcore.AsyncNetworkBackend):
    """Opens TCP connections. The parameters are httpcore's; timeouts, which are never set here, are not looked at."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first of the host's addresses that answers.

        Raises:
            httpcore.ConnectError: None does; from what the system said.

        Cancellation:
            Nothing is open.
        """
        try:
            return _Stream(await trio.open_tcp_stream(host, port, local_address=local_address))
        except (OSError, UnicodeError) as error:  # the second: a name that is none
            raise httpcore.ConnectError(str(error)) from error


_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")  # an alert, a handshake
_AT_ONCE = 1 << 14  # bytes that any socket's buffer takes without waiting for its peer


class SpeaksTls(httpcore.ReadError):
    """What came as the beginning of an answer is a record of TLS."""


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


class _Stream(httpcore.AsyncNetworkStream):
    """One connection. Only its own slot's task uses it."""

    def __init__(self, socket: trio.SocketStream | _Socket, secured: trio.SSLStream[_Socket] | None = None) -> None:
        self._socket = socket if isinstance(socket, _Socket) else _Socket(socket)
        self._stream: trio.abc.Stream = self._socket if secured is None else secured
        self._unsent: list[bytes] = []
        self._is_new = secured is None

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._unsent.append(buffer)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            received = await self._exchange(max_bytes) if self._unsent else await self._stream.receive_some(max_bytes)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise httpcore.ReadError(str(error)) from error
        if self._is_new and received:
            self._is_new = False
            if received.startswith(_TLS_RECORDS):
                raise SpeaksTls("a record of TLS")
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
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        secured = trio.SSLStream(self._socket, ssl_context, server_hostname=server_hostname, https_compatible=True)
        try:
            await secured.do_handshake()
        except BaseException as error:
            await trio.aclose_forcefully(self._socket)
            if isinstance(error, trio.BrokenResourceError):
                raise httpcore.ConnectError(str(error)) from error
            raise
        return _Stream(self._socket, secured)

    def get_extra_info(self, info: str) -> Any:
        if info == "unsent":
            return bool(self._unsent)
        if info == "cut":
            return self._socket.is_cut
        # What httpcore asks of an idle connection: with nothing to come, readable means closed. The rest (which
        # protocol TLS has agreed upon) has one answer here.
        return self._socket.stream.socket.is_readable() if info == "is_readable" else None
