"""The way of one answer to its client: written by the slot that has the ticket, while its request's task waits.

Two tasks share it. The slot's writes (``begin``, ``send``); the request's says that the client has left (``leave``),
and then a write in progress ends and later ones are dropped: of a lane whose engine computes on for nobody, the answer
is read to its end and goes nowhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import trio

from embedkit.gateway.inbound import ClientGoneError, Header, Inbound


class Delivery:
    """See the module.

    Args:
        inbound: The client's connection.
        withdraw: Cancels the request's wait, as its client has left.

    Attributes:
        has_begun: A byte of the answer has been written, or may have been.
        is_gone: The client has left, or stopped reading.
        has_stalled: It stopped reading.
    """

    def __init__(self, inbound: Inbound, withdraw: Callable[[], None]) -> None:
        self.has_begun = False
        self.is_gone = False
        self.has_stalled = False
        self._inbound = inbound
        self._withdraw = withdraw
        self._writing: trio.CancelScope | None = None

    def look(self) -> None:
        """Before anything is sent to the engine: a client whose end has arrived has left, though nobody was told."""
        if not self.is_gone and self._inbound.has_left:
            self._end()

    def leave(self) -> None:
        """The client has left: nothing more is written."""
        self.is_gone = True
        if self._writing is not None:
            self._writing.cancel()

    async def begin(self, status: int, headers: Sequence[Header], first: bytes) -> None:
        """See ``Inbound.begin``; a client that is gone, or goes, is no error.

        Cancellation:
            See ``Inbound.begin``.
        """
        self.has_begun = True
        await self._write(lambda: self._inbound.begin(status, headers, first))

    async def send(self, piece: bytes) -> None:
        """See ``Inbound.send``; a client that is gone, or goes, is no error.

        Cancellation:
            See ``Inbound.send``.
        """
        await self._write(lambda: self._inbound.send(piece))

    async def _write(self, write: Callable[[], Awaitable[None]]) -> None:
        if self.is_gone:
            await trio.lowlevel.checkpoint()
            return
        try:
            with trio.CancelScope() as self._writing:
                await write()
        except ClientGoneError as gone:
            self.has_stalled = gone.has_stalled
            self._end()
        finally:
            self._writing = None

    def _end(self) -> None:
        self.is_gone = True
        # On a lane whose kind aborts, this cuts the call that is running here, at its next checkpoint.
        self._withdraw()
