"""The way to an engine through a proxy; part of the HTTP room. httpx knows proxies of every kind, and does it all."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator

import httpx
import trio

from embedkit.providers.http_connection import Headers, RawReply, TooLargeError

_LIMITS = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=None)


class ProxiedConnection:
    """As ``DirectConnection``, through ``proxy``. Thrown away with its pool after every error, in ``aclose``.

    Args:
        base: The engine's address.
        proxy: Whom the requests are sent to.
        ssl_context: For both.
    """

    def __init__(self, base: httpx.URL, proxy: httpx.Proxy, ssl_context: ssl.SSLContext) -> None:
        self._base = base
        self._transport = httpx.AsyncHTTPTransport(verify=ssl_context, trust_env=False, limits=_LIMITS, proxy=proxy)

    async def exchange(self, method: str, target: str, headers: Headers, body: bytes, limit: int) -> RawReply:
        """See ``DirectConnection.exchange``.

        Raises:
            httpx.HTTPError: No connection, or it broke, or what came is no HTTP.
            TooLargeError: The body has more than ``limit`` bytes.

        Cancellation:
            Half a request may have been sent: whoever gets it calls ``aclose``, as after every error.
        """
        url = self._base.copy_with(raw_path=target.encode("ascii"))
        request = httpx.Request(method, url, headers=list(headers), stream=_Body(body))
        response = await self._transport.handle_async_request(request)
        content = await self._read(response, limit)
        return RawReply(response.status_code, [(name.lower(), value) for name, value in response.headers.raw], content)

    async def aclose(self) -> None:
        """Close the connection, if there is one.

        Cancellation:
            Shielded: closing a socket does not wait for its peer.
        """
        with trio.CancelScope(shield=True):
            await self._transport.aclose()

    async def _read(self, response: httpx.Response, limit: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        stream = response.stream
        assert isinstance(stream, httpx.AsyncByteStream)
        try:
            async for part in stream:
                size += len(part)
                if size > limit:
                    # Leaving the loop would leave async generators to the garbage collector. With the socket closed
                    # under them they run into its end by themselves.
                    parts.clear()
                    await self.aclose()
                else:
                    parts.append(part)
        except httpx.HTTPError as error:
            if size > limit:
                raise TooLargeError(response.status_code) from error
            raise
        finally:
            with trio.CancelScope(shield=True):
                await stream.aclose()
        if size > limit:
            raise TooLargeError(response.status_code)
        return b"".join(parts)


class _Body(httpx.AsyncByteStream):
    """A request's body, in one part.

    httpx's own is an async generator, which a request that is cancelled while it writes leaves to the garbage collector
    half-way, and trio rightly warns of it.
    """

    def __init__(self, body: bytes) -> None:
        self._parts = [body] if body else []

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if not self._parts:
            raise StopAsyncIteration
        return self._parts.pop()
