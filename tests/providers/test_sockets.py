"""The sockets below h11: one write a request, and what becomes of one that nobody waits for."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MemoryReceiveStream, MemorySendStream, wait_all_tasks_blocked

from embedkit.providers.connection_failures import NoReply
from embedkit.providers.http import HttpEndpoint, open_exchange
from embedkit.providers.sockets import Stream, open_stream

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Server:
    """Notes what each read of it brought, and answers each of them."""

    def __init__(self, nursery: trio.Nursery, listener: trio.SocketListener) -> None:
        self.port: int = listener.socket.getsockname()[1]
        self.reads: list[bytes] = []
        self.ended = trio.Event()
        nursery.start_soon(self._serve, listener)

    async def _serve(self, listener: trio.SocketListener) -> None:
        async with listener, await listener.accept() as stream:
            async for data in stream:
                self.reads.append(bytes(data))
                await stream.send_all(ANSWER)
            self.ended.set()


async def listening(nursery: trio.Nursery) -> Server:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    return Server(nursery, listener)


async def test_a_request_is_one_write_head_and_body(nursery: trio.Nursery) -> None:
    server = await listening(nursery)
    async with open_exchange(HttpEndpoint(f"http://127.0.0.1:{server.port}/v1")) as exchange:
        for body in (b'{"first": 1}', b'{"second": 2}'):
            assert (await exchange.send("POST", "/embeddings", body)).status == 200
    assert len(server.reads) == 2
    for read, body in zip(server.reads, (b'{"first": 1}', b'{"second": 2}'), strict=True):
        assert read.startswith(b"POST /v1/embeddings HTTP/1.1\r\n")
        assert read.endswith(b"\r\n\r\n" + body)


async def test_what_was_written_and_never_read_for_is_never_sent(nursery: trio.Nursery) -> None:
    server = await listening(nursery)
    stream = await open_stream("127.0.0.1", server.port)
    stream.write(b"POST / HTTP/1.1\r\n")
    await wait_all_tasks_blocked()
    await stream.aclose()
    await server.ended.wait()
    assert server.reads == []


async def test_an_answer_that_came_before_all_was_read_is_seen_though_the_sending_broke() -> None:
    stream = Stream(stapled(breaks=True, incoming=b"HTTP/1.1 413 "))
    stream.write(b"a body that is too large")
    assert await stream.read(100) == b"HTTP/1.1 413 "


async def test_a_connection_that_broke_is_no_reply_with_its_cause() -> None:
    with pytest.raises(NoReply) as caught:
        await Stream(stapled(breaks=True, incoming=None)).read(100)
    assert isinstance(caught.value.__cause__, trio.BrokenResourceError)


async def test_nobody_listens_there() -> None:
    with trio.socket.socket() as unused:
        await unused.bind(("127.0.0.1", 0))
        with pytest.raises(NoReply) as caught:
            await open_stream("127.0.0.1", unused.getsockname()[1])
    assert isinstance(caught.value.__cause__, OSError)


def stapled(*, breaks: bool, incoming: bytes | None) -> trio.SocketStream:
    """A stream as a socket's, from memory: its sending breaks, its receiving gives ``incoming``, or breaks."""

    async def broken() -> None:
        await trio.lowlevel.checkpoint()
        raise trio.BrokenResourceError("the peer has gone")

    receiving = MemoryReceiveStream(receive_some_hook=broken if incoming is None else None)
    if incoming is not None:
        receiving.put_data(incoming)
    sending = MemorySendStream(send_all_hook=broken if breaks else None)
    return trio.StapledStream(sending, receiving)  # type: ignore[return-value]  # as much of one as is used
