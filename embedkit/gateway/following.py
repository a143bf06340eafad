"""A client of ``/embedkit/events``: the gateway's snapshots, one after the other."""

from __future__ import annotations

from typing import Any

import orjson

from embedkit.errors import EmbedkitError, UsageError
from embedkit.providers.http import HttpEndpoint
from embedkit.providers.relay import Relay

_LARGEST = 1 << 24


class Follower:
    """Follows one gateway. Close it.

    Args:
        url: Where the gateway is.
        key: What it asks for, where it asks for one.

    Raises:
        UsageError: The address is none.
    """

    def __init__(self, url: str, key: str | None = None) -> None:
        headers = () if key is None else (("Authorization", f"Bearer {key}"),)
        self._url = url
        self._relay = Relay(HttpEndpoint(url, headers=headers))
        self._text = b""
        self._has_begun = False

    async def next(self) -> dict[str, Any] | None:
        """The next snapshot; ``None`` when the gateway has ended.

        Raises:
            UsageError: It asks for another key, or is no gateway.
            ProviderError: It is not there, or the connection broke.

        Cancellation:
            The connection is closed.
        """
        if not self._has_begun:
            head = await self._relay.ask("GET", "/embedkit/events", None, [(b"accept", b"text/event-stream")])
            if head.status == 401:
                raise UsageError(f"{self._url} asks for a key; name the variable that holds one with --key-env")
            if head.status != 200:
                raise UsageError(f"{self._url} is no gateway of embedkit (it answered {head.status})")
            self._has_begun = True
        while b"\n\n" not in self._text:
            piece = await self._relay.receive()
            if not piece:
                return None
            self._text += piece
            if len(self._text) > _LARGEST:
                raise EmbedkitError(f"{self._url} sent an event that does not end")
        *events, self._text = self._text.split(b"\n\n")
        data = next(line[6:] for line in reversed(events[-1].split(b"\n")) if line.startswith(b"data: "))
        document: dict[str, Any] = orjson.loads(data)
        return document

    async def aclose(self) -> None:
        """Leave.

        Cancellation:
            The connection is closed.
        """
        await self._relay.aclose()
