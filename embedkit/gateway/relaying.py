"""The call that a slot makes for one request: bytes to the engine, and its answer back.

An answer that is small, and was not asked for in pieces, is read whole before a byte of it goes out. So it can be tried
again if the engine breaks off in the middle, its slot is free for the next as soon as the engine has done with it, and
its head can say all three times. One that comes in pieces, or grows beyond ``WHOLE``, holds its slot to the last byte,
and its engine is read no faster than its client reads.

Deadlines are about the engine alone: the time that a client takes to read is not the provider's. An answer that was not
asked for in pieces has one limit for all of it; a stream has it for its first byte, and for each wait after that.

Whatever fails after the first byte has gone out is final, and the client sees its answer break off.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import NoReturn, TypeVar

import attrs
import trio

from embedkit.errors import EmbedkitError, ProviderError, ProviderTimeout
from embedkit.gateway.delivery import Delivery
from embedkit.gateway.inbound import Header
from embedkit.providers.exchange import Reply
from embedkit.providers.failures import Asked, failure_of
from embedkit.providers.http import MAX_RESPONSE_BYTES, HttpEndpoint
from embedkit.providers.relay import Head, Relay
from embedkit.providers.retry import DecidesRetry
from embedkit.settings import Limit

T = TypeVar("T")

WHOLE = 1 << 20
"""Bytes of an answer that are kept, so that it goes out whole."""

_REFUSAL_KEPT = 1 << 20


class BrokenOffError(DecidesRetry):
    """A failure after the first byte of an answer went out: no attempt can follow. Its cause says what it was."""


class Upstream:
    """One engine's idle connections. There are as many at most as calls that were out at once: nobody waits for one.

    Args:
        endpoint: Where the engine is.
        secrets: What is never shown.
    """

    def __init__(self, endpoint: HttpEndpoint, secrets: tuple[str, ...]) -> None:
        self.endpoint = endpoint
        self.secrets = secrets
        self._idle: list[Relay] = []

    def take(self) -> Relay:
        """The connection that was used last, or a new one."""
        return self._idle.pop() if self._idle else Relay(self.endpoint)

    def give_back(self, relay: Relay) -> None:
        """Whoever took it has done with it; one that is closed is dropped."""
        if relay.is_open:
            self._idle.append(relay)

    async def aclose(self) -> None:
        """Close those that are idle.

        Cancellation:
            They are closed.
        """
        while self._idle:
            await self._idle.pop().aclose()


@attrs.frozen
class Answer:
    """A whole answer of the engine's.

    Attributes:
        status: HTTP status.
        headers: Those that are passed on.
        body: Its bytes.
    """

    status: int
    headers: Sequence[Header] = attrs.field(repr=False)
    body: bytes = attrs.field(repr=False)


@attrs.frozen
class Outgoing:
    """What the engine is to be sent.

    Attributes:
        path: Below the endpoint's address.
        body: Its bytes.
        headers: Besides the endpoint's own.
        streams: Whether its answer comes in pieces.
        is_kept: Whether its answer is kept whole, however large: it is to be translated.
    """

    path: str
    body: bytes = attrs.field(repr=False)
    headers: Sequence[Header] = attrs.field(repr=False)
    streams: bool
    is_kept: bool = False


class Relaying:
    """One request's call, attempt after attempt.

    Args:
        upstream: The engine.
        outgoing: What it is sent.
        delivery: Where its answer goes.
        limit: For an attempt, or for each event of a stream.
        dispatched: Called as each attempt begins.
        stream_headers: What the head of an answer in pieces says of its ticket, asked when it begins.

    Attributes:
        refused: The engine's own answer to the last attempt, where that was a refusal.
        refusal: The error that stands for it.
        is_whole: All pieces of an answer that came in pieces have been read.
    """

    def __init__(
        self,
        upstream: Upstream,
        outgoing: Outgoing,
        delivery: Delivery,
        limit: Limit,
        *,
        dispatched: Callable[[], None],
        stream_headers: Callable[[], Sequence[Header]],
    ) -> None:
        self.refused: Answer | None = None
        self.refusal: EmbedkitError | None = None
        self.is_whole = False
        self._upstream = upstream
        self._outgoing = outgoing
        self._delivery = delivery
        self._limit = limit
        self._dispatched = dispatched
        self._stream_headers = stream_headers
        self._engine_seconds = 0.0

    async def attempt(self, _: object) -> Answer | None:
        """Make one attempt. ``None``: the answer went out in pieces.

        Raises:
            ProviderError: What the engine's refusal, or its silence, is.

        Cancellation:
            The connection to the engine is closed.
        """
        self._dispatched()
        self._delivery.look()
        if self._delivery.is_gone:
            # On a lane that aborts, this ends it here; on one that does not, nothing was sent, and there is no call.
            await trio.lowlevel.checkpoint()
            raise BrokenOffError("the client left before anything was sent", code="ABORTED")
        relay = self._upstream.take()
        self._engine_seconds = 0.0
        try:
            return await self._pass(relay)
        except ProviderError as error:
            if self._delivery.has_begun and not isinstance(error, BrokenOffError):
                raise BrokenOffError(str(error), code=error.code, status=error.status) from error
            raise
        finally:
            self._upstream.give_back(relay)

    async def _pass(self, relay: Relay) -> Answer | None:
        out = self._outgoing
        try:
            # One wait for the head and all that is kept: a scope for each read would cost as much as the reading.
            head, body, is_whole = await self._of_engine(partial(self._open, relay))
            if not 200 <= head.status < 300:
                if not is_whole:
                    await relay.aclose()
                self._refuse(head, body)
            if is_whole and not out.streams:
                return Answer(head.status, head.headers, body)
            await self._stream(relay, head, body)
        except BaseException:
            await relay.aclose()
            raise
        return None

    async def _open(self, relay: Relay) -> tuple[Head, bytes, bool]:
        """The head of the answer, what is kept of its body before any of it goes out, and whether that is all."""
        out = self._outgoing
        head = await relay.ask("POST", out.path, out.body, out.headers)
        if not 200 <= head.status < 300:
            most = _REFUSAL_KEPT
        elif out.streams:
            return head, b"", False
        else:
            most = MAX_RESPONSE_BYTES if out.is_kept else WHOLE
            if head.length is not None and head.length > most:
                return head, b"", False
        body, is_whole = await self._read(relay, most)
        return head, body, is_whole

    def _refuse(self, head: Head, body: bytes) -> NoReturn:
        """Keep the engine's own words for the client, and raise what they mean for the lane."""
        self.refused = Answer(head.status, head.headers, body)
        reply = Reply(head.status, _by_name(head.headers), body)
        asked = Asked(self._upstream.endpoint.peer, (), datetime.now(UTC), self._upstream.secrets)
        self.refusal = failure_of(reply, asked)
        raise self.refusal

    async def _read(self, relay: Relay, most: int) -> tuple[bytes, bool]:
        """The body up to about ``most`` bytes, and whether that is all of it."""
        parts: list[bytes] = []
        size = 0
        while piece := await relay.receive():
            parts.append(piece)
            size += len(piece)
            if size > most:
                return b"".join(parts), False
        return parts[0] if len(parts) == 1 else b"".join(parts), True

    async def _stream(self, relay: Relay, head: Head, first: bytes) -> None:
        delivery = self._delivery
        length = [] if head.length is None else [(b"content-length", b"%d" % head.length)]
        if not first:
            first = await self._of_engine(relay.receive)
        await delivery.begin(head.status, [*head.headers, *length, *self._stream_headers()], first)
        while first and (piece := await self._of_engine(relay.receive)):
            await delivery.send(piece)
        self.is_whole = True

    async def _of_engine(self, wait: Callable[[], Awaitable[T]]) -> T:
        """Wait for the engine, within what is left of its limit.

        Raises:
            ProviderTimeout: It took longer.
        """
        began_at = trio.current_time()
        left = self._limit.seconds - (0.0 if self._outgoing.streams else self._engine_seconds)
        with trio.move_on_after(max(left, 0.0)) as scope:
            result = await wait()
            self._engine_seconds += trio.current_time() - began_at
            return result
        assert scope.cancelled_caught
        what = "no event" if self._delivery.has_begun and self._outgoing.streams else "no complete answer"
        raise ProviderTimeout(f"{what} within {self._limit.seconds:g} s ({self._limit.rung})")


def _by_name(headers: Sequence[Header]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found
