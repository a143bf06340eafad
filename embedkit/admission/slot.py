"""A slot: one task of a lane, and the limit around the attempt it makes.

A cancel scope costs a good part of what a call through a lane costs, so a slot does not open one for each attempt: it
keeps one open and moves its deadline. A scope that was cut (its deadline passed, or the ticket was aborted) is used up;
the next attempt opens another. Between attempts its deadline is infinite wherever the slot can sleep, so that an idle
slot keeps no timer.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, TypeVar

import outcome
import trio

from embedkit.errors import EmbedkitError

logger = logging.getLogger("embedkit.admission")

C = TypeVar("C")

Result = outcome.Value[Any] | outcome.Error


class Slot:
    """The scope of a slot's attempts; a context manager around the slot's whole life."""

    __slots__ = ("_deadline", "_is_out", "_scope", "_was_cut")

    def __init__(self) -> None:
        self._was_cut = False
        self._is_out = False
        self._scope: trio.CancelScope | None = None
        # The scope's, read at each attempt; the scope's own property costs more than the comparison.
        self._deadline = math.inf

    def __enter__(self) -> Slot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._scope is not None:
            self._close(error)

    async def attempt(self, call: Callable[[C], Awaitable[Any]], connection: C, deadline: float) -> Result | None:
        """Make one call.

        Args:
            call: Makes it.
            connection: The slot's own.
            deadline: Instant at which it is cut.

        Returns:
            What it returned or raised; ``None`` if it was cut, whatever it raised then. An answer counts though the
            deadline passed in the same step.

        Cancellation:
            The attempt was cut off by the engine's own end.
        """
        if self._scope is None:
            self._scope = trio.CancelScope(deadline=deadline)
            self._scope.__enter__()
        elif deadline != self._deadline:
            self._scope.deadline = deadline
        self._deadline = deadline
        self._is_out = True
        try:
            result = await _capture(call, connection)
        except BaseException as error:
            self._is_out = False
            try:
                was_cut = self._close(error)
            except Exception as beside:
                # Cut, and the call's own nursery had more to say than Cancelled: its transport failed as it closed.
                logger.warning("a call that was cut off raised %s while it ended", type(beside).__name__)
                return None
            if was_cut:
                return None
            raise
        self._is_out = False
        # An infinite deadline never passes. Asking about another may itself cancel the scope, if it has just passed:
        # then it is used up, and an answer stands. A failure does not: it came of the cut, or later than the limit.
        if self._was_cut or (deadline != math.inf and self._scope.cancel_called):
            self._close(None)
            if type(result) is outcome.Error:
                if not isinstance(result.error, EmbedkitError):
                    logger.warning("a call that was cut off raised %s while it ended", type(result.error).__name__)
                return None
        return result

    def cut(self) -> None:
        """End the attempt in progress, if there is one: whoever comes late must not hit the next."""
        if self._is_out and self._scope is not None:
            self._was_cut = True
            self._scope.cancel()

    def rest(self) -> None:
        """Before a sleep: nothing is to be cut."""
        if self._scope is not None and self._deadline != math.inf:
            self._scope.deadline = self._deadline = math.inf

    def _close(self, error: BaseException | None) -> bool:
        """Leave the scope; whether ``error`` was its own doing."""
        assert self._scope is not None
        scope, self._scope = self._scope, None
        self._was_cut = False
        return bool(scope.__exit__(type(error) if error is not None else None, error, None))


@trio.lowlevel.disable_ki_protection
async def _capture(call: Callable[[C], Awaitable[Any]], connection: C) -> Result:
    """What the call came to. Cancelled, KeyboardInterrupt and their kin are no outcomes: they pass."""
    try:
        return outcome.Value(await call(connection))
    except Exception as error:
        return outcome.Error(error)
