"""The HTTP room over TLS: who is trusted, and that a slot's connection is kept."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
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

    def __init__(self, not_after: datetime | None = None) -> None:
        self.port = 0
        self._until = (
            {} if not_after is None else {"not_before": datetime(2019, 1, 1, tzinfo=UTC), "not_after": not_after}
        )

    async def handle(self, stream: trio.SSLStream[trio.SocketStream]) -> None:
        try:
            while await stream.receive_some(65536):
                await stream.send_all(ANSWER)
        except trio.BrokenResourceError:
            pass  # the client hung up, or does not trust us

    @asynccontextmanager
    async def serving(self, authority: Any) -> AsyncGenerator[str]:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("localhost", **self._until).configure_cert(context)

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


async def test_an_unknown_authority_is_named_as_such(authority: Any) -> None:
    async with Server().serving(authority) as url, open_exchange(HttpEndpoint(url)) as exchange:
        for _ in range(2):
            with pytest.raises(
                ProviderFailure, match=r"check its certificate: nobody here knows who signed it.*ca_file$"
            ):
                await exchange.send("GET", "/models")


async def test_a_certificate_of_another_host_is_named_as_such(authority: Any, tmp_path: Path) -> None:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    server = Server()
    async with server.serving(authority):
        url = f"https://127.0.0.1:{server.port}"
        async with open_exchange(HttpEndpoint(url, ca_file=tmp_path / "ca.pem")) as exchange:
            with pytest.raises(ProviderFailure, match="its certificate is for another host; use the name"):
                await exchange.send("GET", "/models")


async def test_a_certificate_that_has_expired_is_named_as_such(authority: Any, tmp_path: Path) -> None:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    server = Server(not_after=datetime(2020, 1, 1, tzinfo=UTC))
    async with (
        server.serving(authority) as url,
        open_exchange(HttpEndpoint(url, ca_file=tmp_path / "ca.pem")) as exchange,
    ):
        with pytest.raises(ProviderFailure, match="its certificate is not valid today"):
            await exchange.send("GET", "/models")


async def test_http_to_a_server_that_speaks_tls_says_so(authority: Any) -> None:
    server = Server()
    async with server.serving(authority), open_exchange(HttpEndpoint(f"http://localhost:{server.port}")) as exchange:
        for _ in range(2):
            # This one closes without a word, so nobody can be certain.
            with pytest.raises(TransportClosed, match=r"; if it speaks TLS there, begin base_url with https://$"):
                await exchange.send("GET", "/models")


@pytest.mark.parametrize("said", [b"\x15\x03\x01\x00\x02\x02\x16", b"\x15\x03\x03\x00\x02\x02\x46"])
async def test_a_server_that_answers_with_an_alert_speaks_tls(said: bytes) -> None:
    async with plain_server(said) as port, open_exchange(HttpEndpoint(f"http://localhost:{port}")) as exchange:
        for _ in range(2):
            with pytest.raises(ProviderFailure, match=r"it speaks TLS there; begin base_url with https://$"):
                await exchange.send("GET", "/models")


async def test_tls_to_a_server_that_speaks_http_says_so() -> None:
    said = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
    async with plain_server(said) as port, open_exchange(HttpEndpoint(f"https://localhost:{port}")) as exchange:
        for _ in range(2):
            with pytest.raises(ProviderFailure, match=r"it does not speak TLS there; begin base_url with http://$"):
                await exchange.send("GET", "/models")


async def test_a_server_that_closes_during_the_handshake_is_transport() -> None:
    async with plain_server(b"") as port, open_exchange(HttpEndpoint(f"https://localhost:{port}")) as exchange:
        with pytest.raises(TransportClosed, match="broke while it was opened"):
            await exchange.send("GET", "/models")


@asynccontextmanager
async def plain_server(said: bytes) -> AsyncGenerator[int]:
    """A server without TLS, which says the same to everybody and closes; its port."""

    async def handle(stream: trio.SocketStream) -> None:
        try:
            await stream.receive_some(65536)
            await stream.send_all(said)
        except trio.BrokenResourceError:
            pass  # the client hung up

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, handle, [listener])
        yield listener.socket.getsockname()[1]
        nursery.cancel_scope.cancel()


async def test_through_a_tunnel_the_engine_is_spoken_to_securely(authority: Any, tmp_path: Path) -> None:
    asked: list[bytes] = []
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    server = Server()

    async def carry(source: trio.abc.Stream, target: trio.abc.Stream) -> None:
        async for data in source:
            await target.send_all(data)

    async def proxy(stream: trio.SocketStream) -> None:
        head = bytearray()
        while not head.endswith(b"\r\n\r\n"):
            head += await stream.receive_some(1)
        asked.extend(bytes(head).split(b"\r\n"))
        async with await trio.open_tcp_stream("127.0.0.1", server.port) as engine, trio.open_nursery() as nursery:
            await stream.send_all(b"HTTP/1.1 200 Go on\r\n\r\n")
            nursery.start_soon(carry, engine, stream)
            await carry(stream, engine)
            nursery.cancel_scope.cancel()

    async with server.serving(authority) as url, trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, proxy, [listener])
        way = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        async with open_exchange(HttpEndpoint(url, ca_file=tmp_path / "ca.pem", proxy=way)) as exchange:
            for _ in range(2):
                assert (await exchange.send("POST", "/embeddings", b"{}")).body == b"{}"
        nursery.cancel_scope.cancel()
    assert asked[0] == b"CONNECT localhost:%d HTTP/1.1" % server.port  # once: the connection is kept


async def test_a_proxy_s_credentials_go_to_the_proxy_alone() -> None:
    heads: list[bytes] = []

    async def proxy(stream: trio.SocketStream) -> None:
        heads.append(bytes(await stream.receive_some(65536)))
        await stream.send_all(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n")

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, proxy, [listener])
        way = f"http://me:secret@127.0.0.1:{listener.socket.getsockname()[1]}"
        async with open_exchange(HttpEndpoint("https://far.invalid/v1", proxy=way)) as exchange:
            with pytest.raises(ProviderFailure, match="the proxy before it lets nobody through"):
                await exchange.send("POST", "/embeddings", b"{}")
        nursery.cancel_scope.cancel()
    assert b"Proxy-Authorization: Basic bWU6c2VjcmV0" in heads[0]
    assert len(heads) == 1
