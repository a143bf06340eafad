"""An answer that comes before the request is sent whole ends the sending, over TLS as well, and is read to its end.

The server stops reading in the middle: whoever goes on sending to it waits for ever.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from embedkit.errors import TransportClosed
from embedkit.providers.http import HttpEndpoint, open_exchange

# More than the kernel takes for a peer that does not read.
LARGE = b"x" * 30_000_000
SAID = b'{"error": {"message": "too large"}}' * 500


class Server:
    """Reads the beginning of the first request, answers, and reads no more until it is told to."""

    def __init__(self, status: int, ends: str) -> None:
        self.status = status
        self.ends = ends
        self.connections = 0
        self.received = 0
        self.base_url = ""
        self.ca_file: Path | None = None

    async def handle(self, stream: Any) -> None:
        self.connections += 1
        first = self.connections == 1
        try:
            data = b""
            while b"\r\n\r\n" not in data:
                data += bytes(await stream.receive_some(10_000))
            self.received += len(data)
            head = f"HTTP/1.1 {self.status if first else 200} X\r\nContent-Length: {len(SAID)}\r\n\r\n".encode()
            await stream.send_all(head + SAID[:100])
            await stream.send_all(SAID[100:])
            if first and self.ends == "open":
                await trio.sleep_forever()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass


@asynccontextmanager
async def serving(server: Server, *, secure: bool, folder: Path) -> AsyncGenerator[None]:
    async with trio.open_nursery() as nursery:
        listeners: Any
        if secure:
            authority = pytest.importorskip("trustme").CA()
            server.ca_file = folder / "ca.pem"
            authority.cert_pem.write_to_path(str(server.ca_file))
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            authority.issue_cert("localhost").configure_cert(context)
            listeners = await trio.open_ssl_over_tcp_listeners(0, context, host="127.0.0.1", https_compatible=True)
            port = listeners[0].transport_listener.socket.getsockname()[1]
        else:
            listeners = list(await trio.open_tcp_listeners(0, host="127.0.0.1"))
            port = listeners[0].socket.getsockname()[1]
        server.base_url = f"http{'s' if secure else ''}://localhost:{port}"
        nursery.start_soon(trio.serve_listeners, server.handle, listeners)
        yield
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("status", [400, 413, 401])
async def test_the_answer_is_read_and_the_next_request_has_a_connection_of_its_own(
    status: int, secure: bool, tmp_path: Path
) -> None:
    server = Server(status, "open")
    with trio.fail_after(20):
        async with (
            serving(server, secure=secure, folder=tmp_path),
            open_exchange(HttpEndpoint(server.base_url, ca_file=server.ca_file)) as exchange,
        ):
            reply = await exchange.send("POST", "/embeddings", LARGE)
            assert (reply.status, reply.body) == (status, SAID)
            assert server.received < 1_000_000
            assert (await exchange.send("POST", "/embeddings", b"{}")).status == 200
    assert server.connections == 2


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_a_large_request_that_is_read_whole_keeps_its_connection(secure: bool, tmp_path: Path) -> None:
    class Whole(Server):
        async def handle(self, stream: Any) -> None:
            self.connections += 1
            while True:
                missing = len(LARGE) // 10
                data = b""
                while b"\r\n\r\n" not in data:
                    part = bytes(await stream.receive_some(10_000))
                    if not part:
                        return
                    data += part
                missing -= len(data.partition(b"\r\n\r\n")[2])
                while missing > 0:
                    missing -= len(await stream.receive_some(1_000_000))
                await stream.send_all(b"HTTP/1.1 200 X\r\nContent-Length: 2\r\n\r\n{}")

    server = Whole(200, "open")
    with trio.fail_after(20):
        async with (
            serving(server, secure=secure, folder=tmp_path),
            open_exchange(HttpEndpoint(server.base_url, ca_file=server.ca_file)) as exchange,
        ):
            for _ in range(3):
                reply = await exchange.send("POST", "/embeddings", LARGE[: len(LARGE) // 10])
                assert reply.body == b"{}"
    assert server.connections == 1


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_a_request_that_is_cancelled_while_it_is_sent_leaves_nothing_behind(secure: bool, tmp_path: Path) -> None:
    class Deaf(Server):
        async def handle(self, stream: Any) -> None:
            self.connections += 1
            if self.connections == 1:
                await stream.receive_some(100)
                await trio.sleep_forever()
            await stream.receive_some(65_536)
            await stream.send_all(b"HTTP/1.1 200 X\r\nContent-Length: 2\r\n\r\n{}")

    server = Deaf(200, "open")
    with trio.fail_after(20):
        async with (
            serving(server, secure=secure, folder=tmp_path),
            open_exchange(HttpEndpoint(server.base_url, ca_file=server.ca_file)) as exchange,
        ):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(exchange.send, "POST", "/embeddings", LARGE)
                await trio.testing.wait_all_tasks_blocked(0.05)
                nursery.cancel_scope.cancel()
            assert (await exchange.send("POST", "/embeddings", b"{}")).status == 200


async def test_a_peer_that_closes_while_it_is_sent_to_is_transport(tmp_path: Path) -> None:
    class Rude(Server):
        async def handle(self, stream: Any) -> None:
            await stream.receive_some(100)

    server = Rude(200, "open")
    async with (
        serving(server, secure=False, folder=tmp_path),
        open_exchange(HttpEndpoint(server.base_url)) as exchange,
    ):
        with pytest.raises(TransportClosed):
            await exchange.send("POST", "/embeddings", LARGE)
