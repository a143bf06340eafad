"""The HTTP room: one connection for one slot, over h11. httpx reads addresses and certificates; its errors end here.

Theory of operation. The lane is the only queue, so an exchange never has more than one request, and its connection is
its own: no pool, which in encode/httpcore#1093 wedges for good when a request is cancelled while it waits there, and no
client, whose redirects, cookies, content decoding and environment lookups an engine never needs. httpcore's bare
connection, which stood here, takes six locks a request, each of them a turn of the scheduler: among 64 tasks that was a
third of what a request cost.

Deadlines are trio's scopes, therefore there are no timeouts here. When a request does not end well, in whatever phase,
its connection is thrown away: nothing of it may reach the next request.

A connection that the server closed while it was idle is seen before anything is written (the socket is readable), and
a new one is opened in the same attempt. If the close arrives while the request is being written, nobody can prove that
the engine did not read it: that is ``TransportClosed``, and the retry policy's to judge.
"""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import Literal

import h11
import httpx
import trio

from embedkit.errors import ResponseInvalid, TransportClosed, UsageError
from embedkit.providers.connection_failures import NoReply, failure_of_connection
from embedkit.providers.encodings import EncodingRefused, decoded
from embedkit.providers.exchange import Method, Reply
from embedkit.providers.http1 import Http1, ProxyWay, Way, open_http1

MAX_RESPONSE_BYTES = 256 * 2**20

Deletion = Literal["DELETE"]

_REFUSAL_READ = 1 << 16
# Letters, digits, hyphens and underscores, 63 at most between two dots, 253 in all: what the DNS can hold.
_HOST = re.compile(r"(?=.{1,254}$)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63}){0,127}\.?")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")


class HttpEndpoint:
    """Where an engine is and what each request to it carries.

    The key lives in ``headers`` alone, and nothing here prints them.
    """

    def __init__(
        self,
        base_url: str,
        *,
        headers: tuple[tuple[str, str], ...] = (),
        query: Mapping[str, str] | None = None,
        ca_file: Path | None = None,
        proxy: str | None = None,
        trust_env: bool = False,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
    ) -> None:
        """Check the address and the headers.

        Args:
            base_url: ``http`` or ``https``, without credentials, query or fragment; paths are appended to it.
            headers: Sent with each request, in place of ours of the same name.
            query: Parameters that are added to the address of each request.
            ca_file: Certificates, as PEM, of the authorities that are trusted besides the usual ones.
            proxy: The address of an HTTP proxy that every request goes through.
            trust_env: Use the proxies and certificate files that the environment names.
            max_response_bytes: Largest body that is read.

        Raises:
            UsageError: an address, a header, a proxy or a file of certificates that cannot be used. It shows no
                header's value.
        """
        self._base = _checked_base(base_url)
        given = [_checked_header(name, value) for name, value in headers]
        names = {name.lower() for name, _ in given}
        ours = [
            (b"Host", self._base.netloc),
            (b"Accept", b"application/json"),
            (b"Accept-Encoding", b"identity"),
            (b"User-Agent", b"embedkit"),
        ]
        self._headers = [*(header for header in ours if header[0].lower() not in names), *given]
        self._query = dict(query or {})
        self._ca_file = ca_file
        self._own_proxy = proxy
        self._trust_env = trust_env
        self.max_response_bytes = max_response_bytes
        if ca_file is not None:
            _ = self._ssl_context  # a file that cannot be read is said at once
        if proxy is not None:
            _ = self._proxy

    def __repr__(self) -> str:
        return f"<HttpEndpoint {self._base}>"

    @property
    def peer(self) -> str:
        """``host:port``."""
        return peer_of(self._base)

    @property
    def is_secure(self) -> bool:
        """Whether it is spoken to over TLS."""
        return self._base.scheme == "https"

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None,
        content_type: str = "application/json",
        more: Sequence[tuple[bytes, bytes]] = (),
    ) -> h11.Request:
        """The head of a request for ``path`` below the base address.

        Args:
            method: The verb.
            path: Appended to the base address.
            body: Its bytes, or nothing.
            content_type: Of the body.
            more: Headers, their names in lower case, in place of ours of the same name.
        """
        target, headers = self._target(path), self._headers
        if more:
            named = {name for name, _ in more}
            headers = [*(header for header in headers if header[0].lower() not in named), *more]
        if body is not None:
            of_body = [(b"Content-Type", content_type.encode("ascii")), (b"Content-Length", b"%d" % len(body))]
            headers = [*headers, *of_body]
        return h11.Request(method=method, target=target, headers=headers)

    @cached_property
    def way(self) -> Way:
        """How it is reached."""
        tls = self._ssl_context if self.is_secure else None
        port = self._base.port or (443 if self.is_secure else 80)
        return Way(self._base.raw_host.decode("ascii"), port, tls, self._proxy)

    def _target(self, path: str) -> bytes:
        # Reading an address costs as much as the rest of a request's making, and there are two or three paths.
        target = self._targets.get(path)
        if target is None:
            try:
                whole = httpx.URL(str(self._base) + path).copy_merge_params(self._query)
            except (httpx.InvalidURL, ValueError):
                raise UsageError(f"engine {self.peer}: {path[:100]!r} cannot stand in an address") from None
            # A proxy that passes a request on has to be told where to.
            is_passed_on = self._proxy is not None and not self.is_secure
            target = self._targets[path] = str(whole).encode("ascii") if is_passed_on else whole.raw_path
        return target

    @cached_property
    def _targets(self) -> dict[str, bytes]:
        return {}

    @cached_property
    def _ssl_context(self) -> ssl.SSLContext:
        # Reading the bundle of certificates takes tens of milliseconds: once an endpoint, and not at all for http.
        context = httpx.create_ssl_context(trust_env=self._trust_env)
        context.set_alpn_protocols(["http/1.1"])
        if self._ca_file is not None:
            self._trust(context, self._ca_file)
        return context

    def _trust(self, context: ssl.SSLContext, file: Path) -> None:
        try:
            context.load_verify_locations(cafile=file)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            reason = "holds no certificate in PEM form" if isinstance(error, ssl.SSLError) else "cannot be read"
            raise UsageError(f"engine {self.peer}: ca_file {str(file)!r} {reason}; name a file that does") from None

    @cached_property
    def _proxy(self) -> ProxyWay | None:
        if self._own_proxy is not None:
            return self._proxy_at(self._own_proxy, "proxy")
        if not self._trust_env:
            return None
        from urllib.request import getproxies, proxy_bypass

        proxies = getproxies()
        address = proxies.get(self._base.scheme) or proxies.get("all")
        if not address or proxy_bypass(self._base.host):
            return None
        return self._proxy_at(address, "the environment")

    def _proxy_at(self, address: str, who: str) -> ProxyWay:
        try:
            proxy = httpx.Proxy(address if "://" in address else f"http://{address}")
            host, port = proxy.url.raw_host.decode("ascii"), proxy.url.port
        except (ValueError, httpx.InvalidURL):
            raise UsageError(f"engine {self.peer}: {who} names a proxy that is no address") from None
        if proxy.url.scheme.startswith("socks"):
            raise UsageError(f"engine {self.peer}: {who} names a SOCKS proxy; embedkit knows HTTP proxies only")
        is_secure = proxy.url.scheme == "https"
        credentials = () if proxy.raw_auth is None else (_basic(*proxy.raw_auth),)
        return ProxyWay(host, port or (443 if is_secure else 80), self._ssl_context if is_secure else None, credentials)


class HttpExchange:
    """See ``Exchange``. Make one with ``open_exchange``."""

    def __init__(self, endpoint: HttpEndpoint) -> None:
        self._endpoint = endpoint
        self._connection: Http1 | None = None
        self._may_be_tls = not endpoint.is_secure
        # Of the reply that is being read: a refusal whose body is cut is known by it all the same.
        self._status: int | None = None
        self.peer = endpoint.peer

    async def send(
        self,
        method: Method | Deletion,
        path: str,
        body: bytes | None = None,
        *,
        max_bytes: int | None = None,
        content_type: str = "application/json",
        on_part: Callable[[bytes], object] | None = None,
    ) -> Reply:
        """See ``Exchange.send``.

        Args:
            method: The verb.
            path: Appended to the base address.
            body: In one piece, or nothing.
            max_bytes: The largest body of a good reply that is read.
            content_type: What the body is.
            on_part: Called with each part of a good reply's body as it arrives, undecoded. It must not raise.

        Cancellation:
            The connection is closed before Cancelled leaves; nothing is known of what the engine goes on
            doing.
        """
        request = self._endpoint.request(method, path, body, content_type)
        if self._connection is not None and self._connection.has_expired:
            await self.aclose()
        most = self._endpoint.max_response_bytes
        self._status = None
        try:
            if self._connection is None:
                self._connection = await open_http1(self._endpoint.way)
            reply = await self._roundtrip(
                self._connection, request, body, most if max_bytes is None else min(max_bytes, most), on_part
            )
        except NoReply as error:
            await self.aclose()
            failure = failure_of_connection(error, self.peer, may_be_tls=self._may_be_tls)
            failure.status = self._status
            raise failure from error
        except BaseException:
            await self.aclose()
            raise
        self._may_be_tls = False
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

    async def _roundtrip(
        self,
        connection: Http1,
        request: h11.Request,
        sent: bytes | None,
        limit: int,
        on_part: Callable[[bytes], object] | None,
    ) -> Reply:
        head = await connection.ask(request, sent)
        self._status = status = head.status_code
        is_good = 200 <= status < 300
        # What a refusal has to say is at its beginning; its status and headers count, however much follows.
        body, is_whole = await (
            connection.read_body(limit, on_part) if is_good else connection.read_body(min(limit, _REFUSAL_READ))
        )
        if is_good and not is_whole:
            raise self._too_large(status, limit)
        if connection.has_reply_too_many():
            # Taken for an answer to this request it would put every later vector on the wrong text.
            raise TransportClosed(f"engine {self.peer}: a reply came to a request that was not sent yet")
        if connection.is_spent or not is_whole or not connection.begin_next():
            await self.aclose()
        headers = _headers_of(head)
        try:
            body = await decoded(body, headers.get("content-encoding", ""), limit if is_good else _REFUSAL_READ)
        except EncodingRefused as refused:
            if is_good:
                message = f"engine {self.peer}: the reply {refused}"
                raise ResponseInvalid(message, status=status) from None
            body = b""
        return Reply(status, headers, body)

    def _too_large(self, status: int, limit: int) -> ResponseInvalid:
        return ResponseInvalid(f"engine {self.peer}: the reply is larger than {limit} bytes", status=status)


@asynccontextmanager
async def open_exchange(endpoint: HttpEndpoint) -> AsyncGenerator[HttpExchange]:
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
        host = url.host  # decoded only when it is asked for
    except httpx.InvalidURL:
        raise UsageError("base_url is not an address; write it as http://host:port/path") from None
    except ValueError:  # of the host's name: it is not shown, since nobody can say where a password ends
        raise UsageError("base_url names no host that can be; write it as http://host:port/path") from None
    if url.userinfo:
        raise UsageError(f"base_url of {peer_of(url)} holds credentials; give the key as api_key instead")
    if url.scheme not in ("http", "https") or not host:
        # It is not shown: without a scheme nobody can say where in it a password ends.
        raise UsageError("base_url is not an http address; write it as http://host:port/path")
    if url.query or url.fragment:
        raise UsageError(f"base_url of {peer_of(url)} has a query or a fragment; give the path only")
    if ":" not in host and not _HOST.fullmatch(url.raw_host.decode("ascii", "replace")):
        raise UsageError("base_url names no host that can be; write it as http://host:port/path")
    return url


def _headers_of(response: h11.Response) -> dict[str, str]:
    """Names in lower case; what a name has several times, in one."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in response.headers:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _basic(user: bytes, password: bytes) -> tuple[bytes, bytes]:
    return b"Proxy-Authorization", b"Basic " + base64.b64encode(user + b":" + password)


def _checked_header(name: str, value: str) -> tuple[bytes, bytes]:
    # h11 would refuse it too, with the value in its message.
    if not _HEADER_NAME.fullmatch(name):
        raise UsageError("a header's name (not shown here) cannot be one; write for example x-team")
    if not value.isascii() or not value.isprintable() or value != value.strip():
        raise UsageError(f"the {name} header cannot carry its value: only printable ASCII, no blanks around it")
    return name.encode("ascii"), value.encode("ascii")
