"""The sockets that the gateway listens on, and what it may listen on at all."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import ssl
import stat
from collections.abc import Sequence
from pathlib import Path

import trio

from embedkit.errors import UsageError
from embedkit.settings import GatewaySettings, Place

_BACKLOG = 1024


def check_places(places: Sequence[Place], *, has_keys: bool) -> None:
    """Refuse to be open to a network without keys.

    Raises:
        UsageError: A place is no loopback address, and there are no keys.
    """
    for place in places:
        if place.host is not None and not has_keys and not _is_loopback(place.host):
            raise UsageError(
                f"{place} can be reached from other machines, and there are no keys: add [[gateway.keys]], or listen "
                "on 127.0.0.1 or on a unix socket"
            )


def tls_of(settings: GatewaySettings) -> ssl.SSLContext | None:
    """How connections are secured; ``None`` where no certificate is named.

    Raises:
        UsageError: The certificate or its key cannot be used.
    """
    if settings.certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(settings.certificate, settings.certificate_key)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
        raise UsageError(f"gateway.certificate {str(settings.certificate)!r} cannot be used: {reason}") from None
    return context


async def open_listeners(places: Sequence[Place]) -> list[trio.SocketListener]:
    """Listen at every place.

    Raises:
        UsageError: One cannot be had; nothing is open then.

    Cancellation:
        Nothing is open.
    """
    opened: list[trio.SocketListener] = []
    try:
        for place in places:
            opened += await _listen(place)
    except BaseException:
        for listener in opened:
            listener.socket.close()
        raise
    return opened


def written(listener: trio.SocketListener) -> str:
    """Where a listener listens, as a client would write it."""
    name = listener.socket.getsockname()
    if listener.socket.family == socket.AF_UNIX:
        return f"unix:{name}"
    host, port = name[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def remove_socket(path: Path) -> None:
    """Remove the file of a unix socket that was listened on."""
    path.unlink(missing_ok=True)


async def _listen(place: Place) -> Sequence[trio.SocketListener]:
    if place.path is not None:
        return [await _listen_unix(place.path)]
    try:
        return await trio.open_tcp_listeners(place.port, host=place.host, backlog=_BACKLOG)
    except OSError as error:
        raise UsageError(f"cannot listen on {place}: {_why(error)}; name another in gateway.listen") from None


async def _listen_unix(path: Path) -> trio.SocketListener:
    found = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        await _remove_dead(path)
        # Whoever may open the socket may use the engine: its owner alone, until somebody says otherwise.
        before = os.umask(0o177)
        try:
            await found.bind(str(path))
        finally:
            os.umask(before)
        found.listen(_BACKLOG)
    except OSError as error:
        found.close()
        raise UsageError(f"cannot listen on unix:{path}: {_why(error)}; name another in gateway.listen") from None
    except BaseException:
        found.close()
        raise
    return trio.SocketListener(found)


async def _remove_dead(path: Path) -> None:
    """Remove a socket that nobody listens on any more, as a process that was killed leaves it behind."""
    if not _is_socket(path):
        return
    try:
        await (await trio.open_unix_socket(path)).aclose()
    except ConnectionRefusedError:
        remove_socket(path)
    else:
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _is_socket(path: Path) -> bool:
    """Whether a socket is there; raises if something else is."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(errno.EEXIST, "a file is there that is no socket")
    except FileNotFoundError:
        return False
    return True


def _why(error: OSError) -> str:
    # What trio gathers from several addresses has its reasons inside.
    while error.__cause__ is not None and isinstance(error.__cause__, OSError):
        error = error.__cause__
    return error.strerror or str(error)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
