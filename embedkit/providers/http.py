"""The HTTP room: one connection for one slot, over httpx's own engine, httpcore, whose errors and types end here.

Theory of operation. The lane is the only queue, so an exchange never has more than one request, and its connection is
httpcore's, alone: no pool, which in encode/httpcore#1093 wedges for good when a request is cancelled while it waits
there, and no client, whose redirects, cookies, content decoding and environment lookups an engine never needs. httpx
reads addresses and certificates.

Deadlines are trio's scopes, therefore there are no timeouts here. When a request does not end well, in whatever phase,
its connection is thrown away: nothing of it may reach the next request.

A connection that the server closed while it was idle is seen before anything is written (the socket is readable), and
a new one is opened in the same attempt. If the close arrives while the request is being written, nobody can prove that
the engine did not read it: that is ``TransportClosed``, and the retry policy's to judge.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import cached_property

import httpcore
import httpx
import trio

from embedkit.errors import (
    ConnectionRefused,
    ProviderError,
    ProviderFailure,
    ProviderTimeout,
    ResponseInvalid,
    TransportClosed,
    UsageError,
)
from embedkit.providers.exchange import Exchange, Method, Reply
from embedkit.providers.sockets import Sockets

MAX_RESPONSE_BYTES = 256 * 2**20

_FAILURES = (httpcore.NetworkError, httpcore.ProtocolError, httpcore.ProxyError)
_NOBODY_THERE = {errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN}


class HttpEndpoint:
    """Where an engine is and what each request to it carries.

    The key lives in ``headers`` alone, and nothing here prints them.
    """

    def __init__(
        self,
        base_url: str,
        *,
        headers: tuple[tuple[str, str], ...] = (),
        trust_env: bool = False,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
    ) -> None:
        """Check the address and the headers.

        Args:
            base_url: ``http`` or ``https``, without credentials, query or fragment; paths are appended to it.
            headers: Sent with each request, besides ours.
            trust_env: Use the proxies and certificate files that the environment names.
            max_response_bytes: Largest body that is read.

        Raises:
            UsageError: an address or a header that cannot be used. It shows no header's value.
        """
        self._base = _checked_base(base_url)
        self._headers = [
            (b"Host", self._base.netloc),
            (b"Accept", b"application/json"),
            (b"Accept-Encoding", b"identity"),
            (b"User-Agent", b"embedkit"),
            *(_checked_header(name, value) for name, value in headers),
        ]
        self._trust_env = trust_env
        self.max_response_bytes = max_response_bytes

    def __repr__(self) -> str:
        return f"<HttpEndpoint {self._base}>"

    @property
    def peer(self) -> str:
        """``host:port``."""
        return peer_of(self._base)

    def request(self, method: Method, path: str, body: bytes | None) -> httpcore.Request:
        """The request for ``path`` below the base address."""
        url, headers = self._url(path), self._headers
        if body is None:
            return httpcore.Request(method, url, headers=headers)
        headers = [*headers, (b"Content-Type", b"application/json"), (b"Content-Length", b"%d" % len(body))]
        return httpcore.Request(method, url, headers=headers, content=_Body(body))

    def new_connection(self) -> httpcore.AsyncConnectionInterface:
        """A connection, which its first request opens: to the engine, or to the proxy before it."""
        return self._maker.create_connection(self._url("").origin)

    @cached_property
    def _maker(self) -> httpcore.AsyncConnectionPool:
        # Nothing is ever asked through it: it knows which kind of connection a proxy wants.
        return httpcore.AsyncConnectionPool(self._ssl_context, self._proxy, network_backend=Sockets())

    def _url(self, path: str) -> httpcore.URL:
        # Reading an address costs as much as the rest of a request's making, and there are two or three paths.
        url = self._urls.get(path)
        if url is None:
            try:
                whole = httpx.URL(str(self._base) + path)
            except httpx.InvalidURL:
                raise UsageError(f"engine {self.peer}: {path[:100]!r} cannot stand in an address") from None
            url = self._urls[path] = httpcore.URL(
                scheme=whole.raw_scheme, host=whole.raw_host, port=whole.port, target=whole.raw_path
            )
        return url

    @cached_property
    def _urls(self) -> dict[str, httpcore.URL]:
        return {}

    @cached_property
    def _ssl_context(self) -> ssl.SSLContext:
        # Reading the bundle of certificates takes tens of milliseconds: once an endpoint, and not at all for
        # http.
        if self._base.scheme == "https" or self._proxy is not None:
            return httpx.create_ssl_context(trust_env=self._trust_env)
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    @cached_property
    def _proxy(self) -> httpcore.Proxy | None:
        if not self._trust_env:
            return None
        from urllib.request import getproxies, proxy_bypass

        proxies = getproxies()
        address = proxies.get(self._base.scheme) or proxies.get("all")
        if not address or proxy_bypass(self._base.host):
            return None
        try:
            proxy = httpx.Proxy(address if "://" in address else f"http://{address}")
        except (ValueError, httpx.InvalidURL):
            raise UsageError(f"engine {self.peer}: the environment names a proxy that is no address") from None
        if proxy.url.scheme.startswith("socks"):
            raise UsageError(
                f"engine {self.peer}: the environment names a SOCKS proxy; embedkit knows HTTP proxies only"
            )
        return httpcore.Proxy(str(proxy.url), auth=proxy.raw_auth)


class _Body:
    """A request's body, in one part.

    httpcore's own is an async generator, which a request that is cancelled while it writes leaves to the garbage
    collector half-way, and trio rightly warns of it.
    """

    def __init__(self, body: bytes) -> None:
        self._parts = [body]

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if not self._parts:
            raise StopAsyncIteration
        return self._parts.pop()


class HttpExchange:
    """See ``Exchange``. Make one with ``open_exchange``."""

    def __init__(self, endpoint: HttpEndpoint) -> None:
        self._endpoint = endpoint
        self._connection: httpcore.AsyncConnectionInterface | None = None
        self.peer = endpoint.peer

    async def send(self, method: Method, path: str, body: bytes | None = None) -> Reply:
        """See ``Exchange.send``.

        Cancellation:
            The connection is closed before Cancelled leaves; nothing is known of what the engine goes on
            doing.
        """
        request = self._endpoint.request(method, path, body)
        if self._connection is not None and self._connection.has_expired():
            await self.aclose()
        if self._connection is None:
            self._connection = self._endpoint.new_connection()
        try:
            reply = await self._roundtrip(self._connection, request)
        except _FAILURES as error:
            await self.aclose()
            raise _named(error, self.peer) from error
        except BaseException:
            await self.aclose()
            raise
        if not self._connection.is_available():  # the server said that this reply was its last
            await self.aclose()
        return reply

    async def aclose(self) -> None:
        """Close the connection, if there is one.

        Cancellation:
            Shielded: closing a socket does not wait for its peer.
        """
        connection, self._connection = self._connection, None
        if connection is not None:
            with trio.CancelScope(shield=True):
                await connection.aclose()

    async def _roundtrip(self, connection: httpcore.AsyncConnectionInterface, request: httpcore.Request) -> Reply:
        response = await connection.handle_async_request(request)
        body = await self._read(connection, response)
        if response.extensions["network_stream"].get_extra_info("unsent"):
            # It was in the last reply's packet, one reply too many. Taken for an answer to this request it would put
            # every later vector on the wrong text.
            raise TransportClosed(f"engine {self.peer}: a reply came to a request that was not sent yet")
        headers = _headers_of(response)
        encoding = headers.get("content-encoding", "identity").lower()
        if encoding != "identity":
            raise ResponseInvalid(
                f"engine {self.peer}: the reply is encoded as {encoding[:40]!r}, which was not asked for",
                status=response.status,
            )
        return Reply(response.status, headers, body)

    async def _read(self, connection: httpcore.AsyncConnectionInterface, response: httpcore.Response) -> bytes:
        parts: list[bytes] = []
        size, limit = 0, self._endpoint.max_response_bytes
        stream = response.stream
        assert isinstance(stream, AsyncIterable)
        try:
            async for part in stream:
                size += len(part)
                if size > limit:
                    # Leaving the loop would leave async generators to the garbage collector. With the socket closed
                    # under them they run into its end by themselves, at most one read buffer later.
                    parts.clear()
                    await connection.aclose()
                else:
                    parts.append(part)
        except _FAILURES as error:
            if size > limit:
                raise self._too_large(response.status) from error
            raise
        finally:
            # Shielded: what is complete by now is not lost to a deadline that passes in this step.
            with trio.CancelScope(shield=True):
                await response.aclose()
        if size > limit:
            raise self._too_large(response.status)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _too_large(self, status: int) -> ResponseInvalid:
        return ResponseInvalid(
            f"engine {self.peer}: the reply is larger than {self._endpoint.max_response_bytes} bytes",
            status=status,
        )


@asynccontextmanager
async def open_exchange(endpoint: HttpEndpoint) -> AsyncGenerator[Exchange]:
    """One slot's connection to ``endpoint``, opened by its first request and closed with the block.

    Cancellation:
        The connection is closed.
    """
    exchange = HttpExchange(endpoint)
    try:
        yield exchange
    finally:
        await exchange.aclose()


def peer_of(url: httpx.URL) -> str:
    """``host:port`` of an address, the scheme's own port spelled out."""
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{host}:{url.port or (443 if url.scheme == 'https' else 80)}"


def _checked_base(base_url: str) -> httpx.URL:
    try:
        url = httpx.URL(base_url.rstrip("/"))
    except httpx.InvalidURL:
        raise UsageError("base_url is not an address; write it as http://host:port/path") from None
    if url.userinfo:
        raise UsageError(f"base_url of {peer_of(url)} holds credentials; give the key as api_key instead")
    if url.scheme not in ("http", "https") or not url.host:
        # It is not shown: without a scheme nobody can say where in it a password ends.
        raise UsageError("base_url is not an http address; write it as http://host:port/path")
    if url.query or url.fragment:
        raise UsageError(f"base_url of {peer_of(url)} has a query or a fragment; give the path only")
    return url


def _headers_of(response: httpcore.Response) -> dict[str, str]:
    """Names in lower case; what a name has several times, in one."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in response.headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _checked_header(name: str, value: str) -> tuple[bytes, bytes]:
    # h11 would refuse it too, with the value in its message.
    if not value.isascii() or not value.isprintable() or value != value.strip():
        raise UsageError(f"the {name} header cannot carry its value: only printable ASCII, no blanks around it")
    return name.encode("ascii"), value.encode("ascii")


def _named(error: Exception, peer: str) -> ProviderError:
    """The one error of ours that says what ``error`` was."""
    causes = list(_causes(error))
    numbers = {cause.errno for cause in causes if isinstance(cause, OSError)}
    if errno.ETIMEDOUT in numbers:
        return ProviderTimeout(f"engine {peer}: the operating system gave up waiting for it")
    if isinstance(error, httpcore.ConnectError):
        return _named_connect(peer, causes, numbers)
    if isinstance(error, httpcore.ReadError | httpcore.RemoteProtocolError):
        return TransportClosed(f"engine {peer}: the connection broke before the end of the reply")
    return ProviderFailure(f"engine {peer}: no reply ({type(error).__name__})")


def _named_connect(peer: str, causes: list[BaseException], numbers: set[int | None]) -> ProviderError:
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return ProviderFailure(f"engine {peer}: no secure connection; check its certificate and https in base_url")
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return ConnectionRefused(f"engine {peer}: its name has no address; check base_url")
    if numbers & _NOBODY_THERE:
        return ConnectionRefused(f"engine {peer}: nobody listens there; start it or check base_url")
    if numbers & {errno.ECONNRESET, errno.EPIPE}:
        return TransportClosed(f"engine {peer}: the connection broke while it was opened")
    return ProviderFailure(f"engine {peer}: no connection could be opened")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """``error`` and all it came from; contexts too, since httpcore cuts ``__cause__`` (``from None``)."""
    waiting, seen = [error], set[int]()
    while waiting:
        current = waiting.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        waiting += [cause for cause in (current.__cause__, current.__context__) if cause is not None]
        if isinstance(current, BaseExceptionGroup):
            waiting += current.exceptions
