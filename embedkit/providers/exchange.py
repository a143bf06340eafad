"""One request and its reply, as the adapters see them: so that a test can stand in for HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

import attrs

Method = Literal["GET", "POST"]


@attrs.frozen
class Reply:
    """A whole reply: its body has arrived to the last byte.

    Attributes:
        status: HTTP status.
        headers: Names in lower case; values of a name that comes twice are joined with a comma.
        body: The bytes of the body, undecoded. Never shown: an engine may echo what it was asked.
    """

    status: int
    headers: Mapping[str, str] = attrs.field(repr=False)
    body: bytes = attrs.field(repr=False)


class Exchange(Protocol):
    """One slot's connection to one engine; one request at a time."""

    @property
    def peer(self) -> str:
        """``host:port``, as messages name the engine."""
        ...

    async def send(
        self, method: Method, path: str, body: bytes | None = None, *, max_bytes: int | None = None
    ) -> Reply:
        """Send one request below the engine's base address and read the whole reply, whatever its status.

        Args:
            method: The verb.
            path: Appended to the base address.
            body: JSON, or nothing.
            max_bytes: The largest body of a good reply that is read. A refusal is read as far as its beginning.

        Raises:
            ConnectionRefused: nobody reachable listens there.
            TransportClosed: the connection broke before the reply's last byte.
            ResponseInvalid: the reply is larger than the bound.
            ProviderTimeout: the operating system gave the peer up.
            ProviderFailure: any other reason why no reply could be had.

        Cancellation:
            The connection is closed. The next ``send`` opens another one at once.
        """
        ...


OpenExchange = Callable[[], AbstractAsyncContextManager[Exchange]]
