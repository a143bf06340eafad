"""Connections of a provider of one's own, each held open by a task of its own.

Its ``connect()`` may hold a nursery, and a task of that may fail at any time. Were the connection open in a slot's own
task, the nursery's scope would stand around all that the slot does: its failure would cancel the slot while it waits
for work, or in the midst of a call, and a slot that ends so takes its lane and the engine along. A task that does
nothing but hold the connection open can be cancelled so without harm: it is a line in the log, and the next call opens
another connection.

The providers of this room hold no scope open, and are spared the task.

Tested in ``tests/providers/test_held.py``.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

import trio

from embedkit.errors import LaneClosed

if TYPE_CHECKING:
    from embedkit.providers.provider import Connection, Vectors
    from embedkit.providers.wire import Purpose

    Connect = Callable[[], AbstractAsyncContextManager[Connection]]

logger = logging.getLogger("embedkit.providers")


@asynccontextmanager
async def held_open(connect: Connect, name: str, nursery: trio.Nursery) -> AsyncGenerator[HeldConnection]:
    """A connection for one slot, held open in ``nursery`` for as long as the block, and opened anew where it ended.

    Args:
        connect: Opens one.
        name: The provider's, for the log.
        nursery: The engine's.

    Raises:
        Exception: What the opening raised.

    Cancellation:
        It is closed all the same, by its own task.
    """
    held = HeldConnection(connect, name, nursery)
    try:
        await held.open()
        yield held
    finally:
        await held.aclose()


class HeldConnection:
    """See ``PurposefulConnection``. The provider's is behind it, and another where that one has ended."""

    def __init__(self, connect: Connect, name: str, nursery: trio.Nursery) -> None:
        self._connect = connect
        self._name = name
        self._nursery = nursery
        self._open: _Open | None = None

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """See ``Connection.embed``.

        Cancellation:
            See ``embed_for``.
        """
        return await self.embed_for(texts, "document")

    async def embed_for(self, texts: Sequence[str], purpose: Purpose) -> Vectors:
        """See ``PurposefulConnection``; to a connection that does not want to know, the purpose is not told.

        Cancellation:
            As the provider's own connection. One that was being opened goes on being opened, for the next call.
        """
        # One that is open is used in this very step: a call that waited here after its dispatch could be made for
        # nobody, with its caller gone meanwhile.
        if self._open is None or (connection := self._open.connection) is None:
            connection = await self.open()
        embed_for = getattr(connection, "embed_for", None)
        vectors: Vectors = await (connection.embed(texts) if embed_for is None else embed_for(texts, purpose))
        return vectors

    async def open(self) -> Connection:
        """Open the provider's connection, if none is open.

        Raises:
            Exception: What the opening raised.

        Cancellation:
            It goes on being opened, for the next call.
        """
        if self._open is None or self._open.ended.is_set():
            opening = _Open(self._connect, self._name)
            try:
                self._nursery.start_soon(opening.hold, name=f"embedkit connection of {self._name}")
            except RuntimeError as error:  # trio's word for a nursery that has ended
                raise LaneClosed(f"provider {self._name}: the engine has ended") from error
            self._open = opening
        opening = self._open
        await opening.ready.wait()
        if opening.connection is None:
            self._open = None
            raise opening.failure or LaneClosed(f"provider {self._name}: its connection was closed")
        return opening.connection

    async def aclose(self) -> None:
        """Close what is open.

        Cancellation:
            It is closed all the same, by its own task.
        """
        if self._open is not None:
            self._open.closing.set()
            await self._open.ended.wait()


class _Open:
    """A provider's connection, held open by a task of its own.

    ``connection`` and ``failure`` are written by that task alone; ``closing`` is set by whoever uses it.
    """

    def __init__(self, connect: Connect, name: str) -> None:
        self.connection: Connection | None = None
        self.failure: Exception | None = None
        self.ready = trio.Event()
        self.closing = trio.Event()
        self.ended = trio.Event()
        self._connect = connect
        self._name = name

    async def hold(self) -> None:
        try:
            async with self._connect() as connection:
                self.connection = connection
                self.ready.set()
                await self.closing.wait()
        except* Exception as error:
            # Beside Cancelled too, at the engine's end.
            self.failure = error
            if self.ready.is_set():
                # While it was idle, or as it was closed: no call is there to be told.
                logger.warning("provider %s: a connection ended with %s", self._name, type(error).__name__)
        finally:
            self.connection = None
            self.ready.set()
            self.ended.set()
