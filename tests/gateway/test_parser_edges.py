"""What is no good request ends in a named refusal or a closed connection, and disturbs nobody."""

from __future__ import annotations

import pytest
import trio
from gateways import ANY, House, exchange, open_house
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from embedkit.settings import GatewaySettings

BOUNDS = GatewaySettings(listen=ANY, max_body=10_000, max_header=4_096, read_timeout=0.3)
HOST = b"Host: 127.0.0.1\r\n"
CLOSE = b"Connection: close\r\n"
BODY = b'{"model": "scripted", "input": "a"}'
LENGTH = b"Content-Length: %d\r\n" % len(BODY)


def post(*headers: bytes, path: bytes = b"/v1/embeddings") -> bytes:
    return b"POST " + path + b" HTTP/1.1\r\n" + b"".join(headers) + b"\r\n"


CASES = {
    "two lengths": (post(HOST, LENGTH, b"Content-Length: 1\r\n") + BODY, 400),
    "a length and chunks": (post(HOST, LENGTH, b"Transfer-Encoding: chunked\r\n") + b"0\r\n\r\n", 400),
    "an unknown coding": (post(HOST, b"Transfer-Encoding: gzip, chunked\r\n"), 501),
    "a folded header": (post(HOST, b"X-A: b\r\n folded\r\n", LENGTH) + BODY, 400),
    "a folded first header": (post(b"Host: 127.0.0.1\r\n\tx\r\n", LENGTH) + BODY, 400),
    "a blank before the colon": (post(b"Host : 127.0.0.1\r\n", LENGTH) + BODY, 400),
    "no host": (post(LENGTH) + BODY, 400),
    "two hosts": (post(HOST, HOST, LENGTH) + BODY, 400),
    "a negative length": (post(HOST, b"Content-Length: -1\r\n"), 400),
    "a length that is no number": (post(HOST, b"Content-Length: 0x10\r\n"), 400),
    "a length of twenty digits": (post(HOST, b"Content-Length: 99999999999999999999\r\n"), 413),
    "a body of 1 GB": (post(HOST, b"Content-Length: 1073741824\r\n") + b"x" * 100_000, 413),
    "10,000 headers": (post(HOST, *(b"X-%d: y\r\n" % number for number in range(10_000))), 431),
    "one endless header": (b"POST / HTTP/1.1\r\nX: " + b"y" * 100_000, 431),
    "an endless first line": (b"GET /" + b"y" * 100_000, 431),
    "chunked garbage": (post(HOST, b"Transfer-Encoding: chunked\r\n") + b"zz\r\nhello\r\n", 400),
    "a chunk's endless head": (post(HOST, b"Transfer-Encoding: chunked\r\n") + b"1;" + b"x" * 100_000, 431),
    "chunks without end": (post(HOST, b"Transfer-Encoding: chunked\r\n") + b"1000\r\n%s\r\n" % (b"x" * 4096) * 9, 413),
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "no JSON": (post(HOST, CLOSE, b"Content-Length: 3\r\n") + b"{{{", 400),
    "no object": (post(HOST, CLOSE, b"Content-Length: 2\r\n") + b"[]", 400),
    "no model": (post(HOST, CLOSE, b"Content-Length: 2\r\n") + b"{}", 400),
    "deep nesting": (post(HOST, CLOSE, b"Content-Length: 9000\r\n") + b"[" * 9000, 400),
    "not UTF-8": (post(HOST, CLOSE, b"Content-Length: 13\r\n") + b'{"model":"\xff"}', 400),
    "an unknown path": (post(HOST, CLOSE, LENGTH, path=b"/../../etc/passwd") + BODY, 404),
}


async def check_well(house: House) -> None:
    """It disturbed nobody."""
    assert (await house.embed("good")).status_code == 200
    house.check_balanced()


@pytest.mark.parametrize("case", CASES)
async def test_each_ends_in_a_named_refusal(case: str) -> None:
    sent, code = CASES[case]
    async with open_house(gateway=BOUNDS) as house:
        found = await exchange(house.gateway.port, sent)
        assert found.startswith(b"HTTP/1.1 %d " % code), found
        assert b'"code":"' in found
        assert found.count(b"HTTP/1.1 ") == 1  # what follows is no second request
        assert house.scripted.log.requests == 0
        await check_well(house)


@pytest.mark.parametrize(
    "parts",
    [
        (b"POST /v1/emb",),
        (post(HOST, LENGTH),),
        (post(HOST, LENGTH), BODY[:5]),
        (post(HOST, b"Transfer-Encoding: chunked\r\n"), b"5\r\nab"),
    ],
    ids=["half a head", "no body", "half a body", "half a chunk"],
)
async def test_what_does_not_arrive_in_time(parts: tuple[bytes, ...]) -> None:
    async with open_house(gateway=BOUNDS) as house:
        began_at = trio.current_time()
        found = await exchange(house.gateway.port, *parts)
        assert found.startswith(b"HTTP/1.1 408 ")
        assert b"gateway.read_timeout" in found
        assert trio.current_time() - began_at < 5
        await check_well(house)


async def test_a_slow_loris_has_no_more_time_than_others() -> None:
    async with open_house(gateway=BOUNDS) as house:
        stream = await trio.open_tcp_stream("127.0.0.1", house.gateway.port)
        async with stream:
            found = b""
            with trio.fail_after(5):
                for number in range(1000):
                    await stream.send_all(b"GET / HTTP/1.1\r\nX: y\r\n"[number : number + 1] or b"y")
                    data = b"nothing yet"
                    with trio.move_on_after(0.05):
                        data = await stream.receive_some(1000)
                        found += data
                    if not data:
                        break
        assert found.startswith(b"HTTP/1.1 408 ")
        await check_well(house)


async def test_a_client_that_says_nothing_is_no_harm() -> None:
    async with open_house(gateway=BOUNDS) as house:
        streams = [await trio.open_tcp_stream("127.0.0.1", house.gateway.port) for _ in range(50)]
        await check_well(house)
        for stream in streams:
            await stream.aclose()


async def test_expect_100() -> None:
    async with open_house() as house:
        stream = await trio.open_tcp_stream("127.0.0.1", house.gateway.port)
        async with stream:
            await stream.send_all(post(HOST, LENGTH, b"Expect: 100-continue\r\n"))
            assert (await stream.receive_some(1000)).startswith(b"HTTP/1.1 100 ")
            await stream.send_all(BODY)
            assert (await stream.receive_some(1000)).startswith(b"HTTP/1.1 200 ")


async def test_a_client_of_http_1_0_and_one_that_wants_the_connection_closed() -> None:
    async with open_house() as house:
        old = b"POST /v1/embeddings HTTP/1.0\r\n" + LENGTH + b"\r\n" + BODY
        assert (await exchange(house.gateway.port, old)).startswith(b"HTTP/1.1 200 OK")
        closing = post(HOST, LENGTH, b"Connection: close\r\n") + BODY
        assert (await exchange(house.gateway.port, closing)).startswith(b"HTTP/1.1 200 OK")
        house.check_balanced()


PIECES = st.sampled_from(
    [
        post(HOST, LENGTH) + BODY,
        b"POST /v1/embeddings HTTP/1.1\r\n",
        HOST,
        LENGTH,
        BODY,
        b"\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"5\r\nhello\r\n",
        b"0\r\n\r\n",
        b" folded\r\n",
        b"\x00\xff\r\n",
        b"Content-Length: 4\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    ]
)


async def play(house: House, sequences: list[list[bytes]]) -> None:
    for pieces in sequences:
        stream = await trio.open_tcp_stream("127.0.0.1", house.gateway.port)
        async with stream:
            try:
                await stream.send_all(b"".join(pieces))
                await stream.send_eof()
                with trio.fail_after(10):
                    async for _ in stream:
                        pass
            except trio.BrokenResourceError:
                pass  # closed on us: as good as an answer
    await check_well(house)


def fuzz(sequences: list[list[bytes]]) -> None:
    async def run() -> None:
        async with open_house(gateway=BOUNDS) as house:
            await play(house, sequences)

    trio.run(run)


@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(PIECES, max_size=8), min_size=20, max_size=20))
def test_any_mixture_of_pieces(sequences: list[list[bytes]]) -> None:
    fuzz(sequences)


@pytest.mark.soak
@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(st.one_of(PIECES, st.binary(max_size=50)), max_size=12), min_size=1000, max_size=1000))
def test_a_hundred_thousand_mixtures(sequences: list[list[bytes]]) -> None:
    fuzz(sequences)
