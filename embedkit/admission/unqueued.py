"""Calls to a provider that no lane governs: it is remote, and admits by rules of its own (Gemini).

Outside the contract of the queued local engines: nobody waits here for anybody else, so there is no order, no capacity
and no slot to free; no circuit is claimed, and a timeout trips nothing and tells no hook. What holds all the same:
retries belong to the ticket and only its last failure counts; its three times are kept apart, a queue wait of zero
among them; and the ledger has a row for it, of the disposition ``not-applicable``.

A call runs in its caller's task. Each has a connection of its own, and a few idle ones are kept for those who come.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Generic, TypeVar

import outcome
import trio

from embedkit.activity.recorder import Recorder
from embedkit.admission.attempts import make_attempts
from embedkit.admission.connecting import coded
from embedkit.admission.hold import Hold
from embedkit.admission.passage import Passage, Register
from embedkit.admission.policy import Retry
from embedkit.admission.slot import Result, Slot
from embedkit.admission.ticket import Ticket
from embedkit.errors import LaneClosed, UsageError

C = TypeVar("C")
R = TypeVar("R")

# Idle connections that are kept. More calls than that may be out; their connections are closed afterwards.
_KEPT = 8


class Unqueued(Generic[C]):
    """The way to one provider without a lane.

    Args:
        name: The provider's name in the settings.
        connect: Opens a connection. It is closed by whichever task comes to it, so it must hold no cancel scope open.
        ledger: Told of everything, asked nothing.
        retry: Which failures are followed by another attempt.
        model: The model, for the ledger.
        max_inputs: Texts that one request may carry, where the provider has such a bound; whoever makes the tickets
            keeps to it.
    """

    def __init__(
        self,
        name: str,
        *,
        connect: Callable[[], AbstractAsyncContextManager[C]],
        ledger: Recorder,
        retry: Retry,
        model: str = "unknown",
        max_inputs: int | None = None,
    ) -> None:
        self.name = name
        self.model = model
        self.max_inputs = max_inputs
        self._connect = connect
        self._register = Register(ledger, lane=name, provider=name, model=model, disposition="not-applicable")
        self._retry = retry
        self._idle: list[tuple[C, AsyncExitStack]] = []
        self._closed = False

    @trio.lowlevel.enable_ki_protection
    async def run(self, call: Callable[[C], Awaitable[R]], ticket: Ticket) -> R:
        """Make the call at once, on a connection of its own, and return what it returned.

        Args:
            call: Makes one attempt; called again for a retry.
            ticket: New, without a circuit or a hook.

        Raises:
            ProviderError: The call's final failure, as the call raised it; or ``ProviderTimeout``.
            DeadlineExceeded: The ticket's deadline passed first.
            TicketWithdrawn: Somebody cancelled ``ticket.scope``.
            LaneClosed: The engine is closed.
            UsageError: The ticket was offered before, or its scope was entered elsewhere.

        Cancellation:
            The transport is closed, and the row says ``aborted``: nothing is known of what the provider goes on doing.
        """
        if ticket.scope.is_relative is None:
            raise UsageError("this ticket was offered before, or its scope was entered; make a new one for each call")
        if self._closed:
            raise LaneClosed(f"provider {self.name}: the engine is closed")
        passage = Passage(self._register, ticket, call)
        result: Result | None = None
        try:
            with ticket.scope:
                result = await self._attempts(passage)
        except BaseException:
            passage.settle("aborted", None, trio.current_time())
            raise
        now = trio.current_time()
        if result is None:
            error = passage.leave(self.name, now)
            passage.settle("aborted", error, now)
            raise error
        failure = result.error if type(result) is outcome.Error else None
        passage.settle("succeeded" if failure is None else "failed", failure, now)
        value: R = result.unwrap()
        return value

    def close(self) -> None:
        """Begin nothing more. Calls that are out are their callers'."""
        self._closed = True

    async def aclose(self) -> None:
        """``close``, and close the connections that are idle.

        Cancellation:
            They are closed all the same.
        """
        self.close()
        async with AsyncExitStack() as idle:
            while self._idle:
                _, stack = self._idle.pop()
                idle.push_async_exit(stack)

    async def _attempts(self, passage: Passage) -> Result | None:
        now = trio.current_time()
        # Its caller makes the call itself, and so is there for as long as the call is.
        passage.caller = trio.lowlevel.current_task()
        passage.open(now)
        slot = Slot()
        passage.dispatch(slot, now)
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            connection, stack = await self._connected()
        except Exception as error:
            return outcome.Error(coded(error))
        async with stack:
            with slot:
                # A hint binds the ticket that was told: there is no lane to hold back.
                result = await make_attempts(passage, connection, self._retry, Hold(), trio.lowlevel.current_clock())
            if not self._closed and len(self._idle) < _KEPT:
                self._idle.append((connection, stack.pop_all()))
        return result

    async def _connected(self) -> tuple[C, AsyncExitStack]:
        """A connection, and what closes it.

        Cancellation:
            None was opened.
        """
        if self._idle:
            return self._idle.pop()
        async with AsyncExitStack() as stack:
            connection = await stack.enter_async_context(self._connect())
            return connection, stack.pop_all()
        raise AssertionError("a connection's manager swallowed an exception as it opened")
