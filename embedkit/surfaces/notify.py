"""Telling whoever started the process that it is ready: the protocol of ``sd_notify(3)``, over a unix socket."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

_log = logging.getLogger("embedkit.schedule")


def notify(message: str, environ: Mapping[str, str] = os.environ) -> None:
    """Send ``message`` (``READY=1``, ``STOPPING=1``) to the socket in ``NOTIFY_SOCKET``; without one, to nobody.

    A socket that takes nothing is logged: it is no reason not to work.
    """
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # of the abstract namespace
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(message.encode(), address)
    except OSError as error:
        _log.warning("NOTIFY_SOCKET takes no message: %s", error.strerror or error)
