"""The HTTP room: one connection for one slot. What HTTP, TLS and proxies raise ends here, as one of our errors.

Theory of operation. The lane is the only queue, so an exchange never has more than one request, and needs one
connection and no pool: a pool wedges for good when requests are cancelled while they wait for a connection
(encode/httpcore#1093). No redirect is followed, no cookie kept, and no environment looked up unless asked for; only
behind a proxy does httpx itself speak (``http_proxy``).

Deadlines are trio's scopes; no timer is set here. When a request does not end well, in whatever phase, its connection
is closed with it: nothing of it may reach the next request.

A connection that the server closed while it was idle is seen before anything is written, since its socket is readable,
and a new one is opened in the same attempt. If the close arrives while the request is being written, nobody can prove
that the engine did not read it: that is ``TransportClosed``, and the retry policy's to judge.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING

import h11
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
from embedkit.providers.http_connection import DirectConnection, Headers, TooLargeError

if TYPE_CHECKING:
    from embedkit.providers.http_proxy import ProxiedConnection

MAX_RESPONSE_BYTES = 256 * 2**20

# What a connection raises: httpx's words come from behind a proxy. One that broke while it was opened is TLS's, or the
# system's; one that breaks under a request is cut.
_NOT_OPENED = (OSError, httpx.ConnectError)
_CUT = (
    trio.BrokenResourceError,
    h11.RemoteProtocolError,
    httpx.ReadError,
    httpx.WriteError,
    httpx.CloseError,
    httpx.RemoteProtocolError,
)
_JSON = (b"Content-Type", b"application/json")
_BROKEN = (OSError, trio.BrokenResourceError, h11.RemoteProtocolError, httpx.HTTPError)
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

    def target(self, path: str) -> str:
        """What stands in the request line for ``path`` below the base address.

        Raises:
            UsageError: It cannot stand in an address.
        """
        # Parsing an address costs as much as a good part of a request, and there are two or three paths.
        target = self._targets.get(path)
        if target is None:
            try:
                url = httpx.URL(str(self._base) + path)
            except httpx.InvalidURL:
                raise UsageError(f"engine {self.peer}: {path[:100]!r} cannot stand in an address") from None
            target = self._targets[path] = url.raw_path.decode("ascii")
        return target

    def headers(self, body: bytes | None) -> Headers:
        """What a request with ``body`` carries."""
        if body is None:
            return self._headers
        return [*self._headers, _JSON, (b"Content-Length", b"%d" % len(body))]

    def new_connection(self) -> DirectConnection | ProxiedConnection:
        """A connection that has yet to be opened."""
        if self._proxy is not None:
            from embedkit.providers.http_proxy import ProxiedConnection

            return ProxiedConnection(self._base, self._proxy, self._ssl_context)
        secure = self._base.scheme == "https"
        port = self._base.port or (443 if secure else 80)
        return DirectConnection(self._base.host, port, self._ssl_context if secure else None)

    @cached_property
    def _targets(self) -> dict[str, str]:
        return {}

    @cached_property
    def _ssl_context(self) -> ssl.SSLContext:
        # Reading the bundle of certificates takes tens of milliseconds: once an endpoint, and not at all for
        # http.
        if self._base.scheme == "https" or self._proxy is not None:
            return httpx.create_ssl_context(trust_env=self._trust_env)
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    @cached_property
    def _proxy(self) -> httpx.Proxy | None:
        if not self._trust_env:
            return None
        from urllib.request import getproxies, proxy_bypass

        proxies = getproxies()
        address = proxies.get(self._base.scheme) or proxies.get("all")
        return httpx.Proxy(address) if address and not proxy_bypass(self._base.host) else None


class HttpExchange:
    """See ``Exchange``. Make one with ``open_exchange``."""

    def __init__(self, endpoint: HttpEndpoint) -> None:
        self._endpoint = endpoint
        self._connection: DirectConnection | ProxiedConnection | None = None
        self.peer = endpoint.peer

    async def send(self, method: Method, path: str, body: bytes | None = None) -> Reply:
        """See ``Exchange.send``.

        Cancellation:
            The connection is closed before Cancelled leaves; nothing is known of what the engine goes on
            doing.
        """
        endpoint = self._endpoint
        target = endpoint.target(path)
        if self._connection is None:
            self._connection = endpoint.new_connection()
        try:
            raw = await self._connection.exchange(
                method, target, endpoint.headers(body), body or b"", endpoint.max_response_bytes
            )
        except TooLargeError as error:
            await self.aclose()
            message = f"engine {self.peer}: the reply is larger than {endpoint.max_response_bytes} bytes"
            raise ResponseInvalid(message, status=error.status) from None
        except _BROKEN as error:
            await self.aclose()
            raise _named(error, self.peer) from error
        except BaseException:
            await self.aclose()
            raise
        headers = _joined(raw.headers)
        encoding = headers.get("content-encoding", "identity")
        if encoding != "identity":
            raise ResponseInvalid(
                f"engine {self.peer}: the reply is encoded as {encoding[:40]!r}, which was not asked for",
                status=raw.status,
            )
        return Reply(raw.status, headers, raw.body)

    async def aclose(self) -> None:
        """Close the connection, if there is one.

        Cancellation:
            Shielded: closing a socket does not wait for its peer.
        """
        connection, self._connection = self._connection, None
        if connection is not None:
            with trio.CancelScope(shield=True):
                await connection.aclose()


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
        raise UsageError(f"base_url {base_url[:100]!r} is not an http address; write it as http://host:port/path")
    if url.query or url.fragment:
        raise UsageError(f"base_url of {peer_of(url)} has a query or a fragment; give the path only")
    return url


def _checked_header(name: str, value: str) -> tuple[bytes, bytes]:
    # h11 would refuse it too, with the value in its message.
    if not value.isascii() or not value.isprintable() or value != value.strip():
        raise UsageError(f"the {name} header cannot carry its value: only printable ASCII, no blanks around it")
    return name.encode("ascii"), value.encode("ascii")


def _joined(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Names in lower case; values of a name that comes twice are joined with a comma."""
    joined: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined


def _named(error: Exception, peer: str) -> ProviderError:
    """The one error of ours that says what ``error`` was."""
    causes = list(_causes(error))
    numbers = {cause.errno for cause in causes if isinstance(cause, OSError)}
    if errno.ETIMEDOUT in numbers:
        return ProviderTimeout(f"engine {peer}: the operating system gave up waiting for it")
    if isinstance(error, _NOT_OPENED) or any(isinstance(cause, ssl.SSLError) for cause in causes):
        return _named_connect(peer, causes, numbers)
    if isinstance(error, _CUT):
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
