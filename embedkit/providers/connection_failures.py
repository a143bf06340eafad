"""Why no reply came: what the system or OpenSSL said becomes one error of ours, with what to do about it. Pure."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterator
from typing import Literal

from embedkit.errors import ConnectionRefused, ProviderError, ProviderFailure, ProviderTimeout, TransportClosed

Phase = Literal["opening", "proxy", "reading", "not-http", "other"]
"""When it failed: while the connection was opened, at the proxy, while a reply was read, at its first bytes (TLS)."""


class NoReply(Exception):
    """No reply came; from what the system, OpenSSL or the protocol said.

    Attributes:
        phase: When it failed.
    """

    def __init__(self, phase: Phase) -> None:
        super().__init__(phase)
        self.phase = phase


_NOBODY_THERE = {errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN}

# OpenSSL's numbers for why a certificate is not believed (x509_vfy.h).
_EXPIRED = {9, 10}
_UNKNOWN_AUTHORITY = {2, 18, 19, 20, 21}
_OTHER_HOST = {62, 64}
# Its words for a peer whose first bytes are no TLS.
_NO_TLS = (
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "HTTPS_PROXY_REQUEST",
    "RECORD_LAYER_FAILURE",
    "PACKET_LENGTH_TOO_LONG",
)


def failure_of_connection(error: NoReply, peer: str, *, may_be_tls: bool = False) -> ProviderError:
    """The one error of ours that says what ``error`` was.

    Args:
        error: What was raised.
        peer: ``host:port``, for messages.
        may_be_tls: Whether it was spoken to without TLS and has never answered. Some servers that speak TLS say nothing
            to that, and close.
    """
    causes, phase = list(_causes(error)), error.phase
    numbers = {cause.errno for cause in causes if isinstance(cause, OSError)}
    if errno.ETIMEDOUT in numbers:
        return ProviderTimeout(f"engine {peer}: the operating system gave up waiting for it")
    if phase == "not-http":
        return ProviderFailure(f"engine {peer}: it speaks TLS there; begin base_url with https://")
    if phase == "opening":
        return _while_opening(peer, causes, numbers)
    if phase == "reading":
        mend = "; if it speaks TLS there, begin base_url with https://" if may_be_tls else ""
        return TransportClosed(f"engine {peer}: the connection broke before the end of the reply{mend}")
    if phase == "proxy":
        return ProviderFailure(f"engine {peer}: the proxy before it lets nobody through; check proxy")
    return ProviderFailure(f"engine {peer}: no reply ({type(causes[-1]).__name__})")


def _while_opening(peer: str, causes: list[BaseException], numbers: set[int | None]) -> ProviderError:
    if any(isinstance(cause, ssl.SSLEOFError) for cause in causes):
        return TransportClosed(f"engine {peer}: the connection broke while it was opened")
    for cause in causes:
        if isinstance(cause, ssl.SSLError):
            return ProviderFailure(f"engine {peer}: {_without_tls(cause)}")
    if any(isinstance(cause, socket.gaierror | UnicodeError) for cause in causes):
        return ConnectionRefused(f"engine {peer}: its name has no address; check base_url")
    if numbers & _NOBODY_THERE:
        return ConnectionRefused(f"engine {peer}: nobody listens there; start it or check base_url")
    if numbers & {errno.ECONNRESET, errno.EPIPE}:
        return TransportClosed(f"engine {peer}: the connection broke while it was opened")
    return ProviderFailure(f"engine {peer}: no connection could be opened")


def _without_tls(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _OTHER_HOST:
            return "its certificate is for another host; use the name that it is for in base_url"
        if error.verify_code in _UNKNOWN_AUTHORITY:
            return (
                "no secure connection; check its certificate: nobody here knows who signed it; name theirs as ca_file"
            )
        if error.verify_code in _EXPIRED:
            return "its certificate is not valid today; renew it, or set the clock"
    if error.reason in _NO_TLS:
        return "it does not speak TLS there; begin base_url with http://"
    return "no secure connection; check its certificate and https in base_url"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """``error`` and all it came from; contexts too, since ``from None`` hides a cause and keeps a context."""
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
