"""MCP over HTTP ("streamable HTTP"), on a loopback address: the library's application, served by hypercorn on trio.

Whoever reaches the address can ask at the expense of this server's keys and read what is stored, and there is no login.
So it listens on loopback alone, and refuses requests whose ``Host`` or ``Origin`` is another's (a web page that had its
name point here). To serve others, put a proxy with a login in front.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from mcp.server.lowlevel import Server

from embedkit.errors import EmbedkitError, UsageError

PATH = "/mcp"


async def serve_http(server: Server[dict[str, Any]], host: str, port: int, *, started: Callable[[str], object]) -> None:
    """Serve clients until cancelled.

    Args:
        server: Whose tools.
        host: A loopback address.
        port: 0 for any.
        started: Told the address once it listens.

    Raises:
        UsageError: The address is not a loopback one.
        EmbedkitError: It cannot be listened on.

    Cancellation:
        Every request was cancelled.
    """
    address = _loopback(host)
    config = Config()
    # It closes what it is given, and not what it cannot bind itself.
    config.bind = [f"fd://{_bound(address, port).detach()}"]
    config.errorlog = None
    config.accesslog = None
    config.graceful_timeout = 0.0
    app = server.streamable_http_app(streamable_http_path=PATH, host=str(address))
    async with trio.open_nursery() as nursery:
        (listening, *_) = await nursery.start(_serve, app, config)
        started(f"{listening}{PATH}")


async def _serve(app: Any, config: Config, task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED) -> None:
    await serve(app, config, mode="asgi", task_status=task_status)


def _loopback(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise UsageError(f"--host {host!r} is no address; write 127.0.0.1 or ::1") from None
    if not address.is_loopback:
        raise UsageError(f"--host {host} is not a loopback address, and there is no login; put a proxy in front")
    return address


def _bound(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        bound.bind((str(address), port))
    except OSError as error:
        bound.close()
        raise EmbedkitError(f"{address}:{port} cannot be listened on ({error.strerror}); name another port") from error
    return bound
