"""Sockets for httpcore, over trio: one write a request, and no timers.

httpcore's own backend for trio opens a cancel scope around each read and each write, for timeouts that are never set
here (an attempt has one scope, from dispatch to the last byte), and sends a request's head and body apart: two system
calls and two packets. Here what is written is kept until something is read. So a request that is cancelled before that
never reaches the engine at all.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from contextlib import suppress
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
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error


class _Stream(httpcore.AsyncNetworkStream):
    """One connection. Only its own slot's task uses it."""

    def __init__(self, socket: trio.SocketStream, secured: trio.SSLStream[trio.SocketStream] | None = None) -> None:
        self._socket = socket
        self._stream = socket if secured is None else secured
        self._unsent: list[bytes] = []

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._unsent.append(buffer)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            if self._unsent:
                await self._send()
            return bytes(await self._stream.receive_some(max_bytes))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise httpcore.ReadError(str(error)) from error

    async def _send(self) -> None:
        unsent = b"".join(self._unsent)
        self._unsent.clear()
        # The peer may have answered (too large, no key) and closed before it had read all: whoever reads then sees it,
        # but for TLS, which is of no use once its sending broke.
        with suppress(trio.BrokenResourceError):
            await self._stream.send_all(unsent)

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
        # What httpcore asks of an idle connection: with nothing to come, readable means closed. The rest (which
        # protocol TLS has agreed upon) has one answer here.
        return self._socket.socket.is_readable() if info == "is_readable" else None
