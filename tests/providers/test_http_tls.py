"""The HTTP room over TLS: who is trusted, and that a slot's connection is kept."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import trio

from embedkit.errors import ProviderFailure, TransportClosed
from embedkit.providers.http import HttpEndpoint, open_exchange

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture
def authority() -> Any:
    return pytest.importorskip("trustme").CA()


class Server:
    """Answers every request over TLS."""

    def __init__(self) -> None:
        self.port = 0

    async def handle(self, stream: trio.SSLStream[trio.SocketStream]) -> None:
        try:
            while await stream.receive_some(65536):
                await stream.send_all(ANSWER)
        except trio.BrokenResourceError:
            pass  # the client hung up, or does not trust us

    @asynccontextmanager
    async def serving(self, authority: Any) -> AsyncGenerator[str]:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("localhost").configure_cert(context)

        async def connection(stream: trio.SSLStream[trio.SocketStream]) -> None:
            await self.handle(stream)

        async with trio.open_nursery() as nursery:
            listeners = await trio.open_ssl_over_tcp_listeners(0, context, host="127.0.0.1", https_compatible=True)
            listener: Any = listeners[0].transport_listener
            self.port = listener.socket.getsockname()[1]
            nursery.start_soon(trio.serve_listeners, connection, listeners)
            yield f"https://localhost:{self.port}"
            nursery.cancel_scope.cancel()


async def test_a_trusted_server_is_spoken_to(authority: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    monkeypatch.setattr(httpx, "create_ssl_context", lambda **_: trusting)
    async with Server().serving(authority) as url, open_exchange(HttpEndpoint(url)) as exchange:
        for _ in range(3):
            assert (await exchange.send("POST", "/embeddings", b"{}")).body == b"{}"


async def test_an_unknown_certificate_is_named_as_such(authority: Any) -> None:
    async with Server().serving(authority) as url, open_exchange(HttpEndpoint(url)) as exchange:
        for _ in range(2):
            with pytest.raises(ProviderFailure, match="no secure connection; check its certificate"):
                await exchange.send("GET", "/models")


async def test_http_to_a_server_that_speaks_tls_is_transport(authority: Any) -> None:
    server = Server()
    async with server.serving(authority), open_exchange(HttpEndpoint(f"http://localhost:{server.port}")) as exchange:
        with pytest.raises(TransportClosed):
            await exchange.send("GET", "/models")
