"""``/embedkit/events``: the gateway as it changes, as server-sent events.

A reader gets the gateway as it is, and again when something has changed, twice a second at most. What changes in
between it never sees, so one that reads slowly misses some, and holds nobody up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import orjson
import trio

from embedkit.gateway.inbound import ClientGoneError, Inbound
from embedkit.gateway.snapshots import snapshot_of

if TYPE_CHECKING:
    from embedkit.gateway.shared import Shared

LEAST_INTERVAL = 0.5
# A proxy takes a stream for dead that says nothing for long.
_LONGEST_SILENCE = 15.0
_HEADERS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]


async def tell_events(shared: Shared, inbound: Inbound) -> None:
    """Tell the client of each change until it leaves, or the gateway ends.

    Raises:
        ClientGoneError: The client has left.

    Cancellation:
        The stream is cut short.
    """
    is_over = False
    gone: ClientGoneError | None = None
    async with trio.open_nursery() as nursery:

        async def until(wait: Callable[[], Awaitable[object]]) -> None:
            await wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(until, inbound.until_gone)
        nursery.start_soon(until, shared.closing.wait)
        try:
            await _tell(shared, inbound)
        except ClientGoneError as error:
            gone = error
        is_over = True
    if gone is not None or (not is_over and not shared.is_closing):
        raise gone or ClientGoneError
    await inbound.finish()


async def _tell(shared: Shared, inbound: Inbound) -> None:
    version = shared.journal.version
    await inbound.begin(200, _HEADERS, event_of(shared, with_past=True))
    while True:
        await trio.sleep(LEAST_INTERVAL)
        with trio.move_on_after(_LONGEST_SILENCE):
            await shared.journal.change_after(version)
        version = shared.journal.version
        await inbound.send(event_of(shared))


def event_of(shared: Shared, *, with_past: bool = False) -> bytes:
    """The gateway as it is, as one event; the first tells of the last two minutes too."""
    return b"event: snapshot\ndata: " + orjson.dumps(snapshot_of(shared, with_past=with_past)) + b"\n\n"
