"""How a slot comes by its connection, and is rid of it: whatever is foreign in that fails one ticket, or is logged."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

from embedkit.errors import EmbedkitError, ProviderFailure

logger = logging.getLogger("embedkit.admission")

C = TypeVar("C")

# Seconds before a connection that could not be opened is tried again; doubled by each further failure.
_FIRST_BACKOFF = 0.1
_LONGEST_BACKOFF = 30.0


class Connecting(Generic[C]):
    """The way to one lane's connections.

    Args:
        lane: Its name.
        connect: Opens one.
    """

    def __init__(self, lane: str, connect: Callable[[], AbstractAsyncContextManager[C]]) -> None:
        self._lane = lane
        self._connect = connect
        self._refusals = 0

    async def open(self) -> tuple[C, AbstractAsyncContextManager[C]]:
        """A connection, and what closes it.

        Raises:
            EmbedkitError: None could be opened, as the ticket that would have used it is to hear.

        Cancellation:
            None was opened.
        """
        try:
            manager = self._connect()
            connection = await manager.__aenter__()
        except Exception as error:
            self._refusals += 1
            logger.warning(
                "lane %s: no connection (%s); the next is tried in %g s",
                self._lane,
                type(error).__name__,
                self.backoff,
            )
            raise coded(error) from error
        self._refusals = 0
        return connection, manager

    @property
    def backoff(self) -> float:
        """Seconds to wait after a refusal before the next try."""
        return min(_FIRST_BACKOFF * 2.0 ** min(self._refusals - 1, 16), _LONGEST_BACKOFF)

    async def close(self, manager: AbstractAsyncContextManager[Any]) -> None:
        """Close one, in the ``finally`` of whatever ends it. What it raises is logged.

        Cancelled, and what is no ``Exception``, is not the connection's own and goes on.

        Cancellation:
            It is as closed as its own closing leaves it.
        """
        ending = sys.exc_info()
        try:
            await manager.__aexit__(*ending)
        except Exception as error:
            if error is not ending[1]:
                logger.warning("lane %s: a connection raised %s as it was closed", self._lane, type(error).__name__)


def coded(error: Exception) -> EmbedkitError:
    """``error`` of a connection that could not be opened, as what its ticket failed with."""
    if isinstance(error, EmbedkitError):
        return error
    failure = ProviderFailure(f"no connection: opening it raised {type(error).__name__}")
    failure.__cause__ = error
    return failure
