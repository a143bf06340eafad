"""An engine's reply as it comes: the same connection as an exchange's, for who passes bytes on and keeps none.

An exchange reads a whole reply. Here the head comes first and the body in pieces, at the pace of whoever asks for them:
nothing is read ahead, so a slow reader slows its engine down by the socket's own means.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import trio

from embedkit.providers.connection_failures import NoReply, failure_of_connection
from embedkit.providers.http import HttpEndpoint
from embedkit.providers.http1 import Header, Http1, open_http1


@attrs.frozen
class Head:
    """The head of a reply.

    Attributes:
        status: HTTP status.
        headers: As they came, names in lower case, without those that are about the connection.
        length: Bytes of the body, where the engine said so.
    """

    status: int
    headers: Sequence[Header] = attrs.field(repr=False)
    length: int | None


# What is between two peers, and not between the ends. The length is written anew by whoever passes the body on.
_OF_THE_CONNECTION = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"content-length",
    }
)


class Relay:
    """One connection to one engine. One request at a time; after anything that went wrong it is closed.

    Args:
        endpoint: Where the engine is.
    """

    def __init__(self, endpoint: HttpEndpoint) -> None:
        self._endpoint = endpoint
        self._connection: Http1 | None = None
        self._may_be_tls = not endpoint.is_secure

    @property
    def is_open(self) -> bool:
        """Whether it is good for another request."""
        return self._connection is not None

    async def ask(self, method: str, path: str, body: bytes | None, headers: Sequence[Header] = ()) -> Head:
        """Send a request, and give the head of its reply. A connection that was closed while idle is opened anew.

        Args:
            method: The verb.
            path: Below the endpoint's address.
            body: Its bytes.
            headers: In place of the endpoint's own of the same name; names in lower case.

        Raises:
            ProviderError: No reply came: see ``Exchange.send``.

        Cancellation:
            The connection is closed; nothing is known of what the engine goes on doing.
        """
        request = self._endpoint.request(method, path, body, more=headers)
        try:
            if self._connection is not None and self._connection.has_expired:
                await self.aclose()
            if self._connection is None:
                self._connection = await open_http1(self._endpoint.way)
            reply = await self._connection.ask(request, body)
        except NoReply as error:
            await self.aclose()
            raise failure_of_connection(error, self._endpoint.peer, may_be_tls=self._may_be_tls) from error
        except BaseException:
            await self.aclose()
            raise
        self._may_be_tls = False
        kept = [(name, value) for name, value in reply.headers if name not in _OF_THE_CONNECTION]
        length = next((int(value) for name, value in reply.headers if name == b"content-length"), None)
        return Head(reply.status_code, kept, length)

    async def receive(self) -> bytes:
        """The next piece of the body; nothing at its end. Then the connection is ready for another request, or closed.

        Raises:
            ProviderError: The connection broke before the end.

        Cancellation:
            The connection is closed.
        """
        connection = self._connection
        assert connection is not None
        try:
            piece = await connection.receive()
        except NoReply as error:
            await self.aclose()
            raise failure_of_connection(error, self._endpoint.peer) from error
        except BaseException:
            await self.aclose()
            raise
        if not piece and (connection.has_reply_too_many() or connection.is_spent or not connection.begin_next()):
            await self.aclose()
        return piece

    async def aclose(self) -> None:
        """Close the connection, if there is one.

        Cancellation:
            Shielded: closing a socket does not wait for its peer.
        """
        connection, self._connection = self._connection, None
        if connection is not None:
            with trio.CancelScope(shield=True):
                await connection.aclose()
