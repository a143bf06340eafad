"""Calls to a provider that no lane governs: it is remote, and admits by rules of its own (Gemini).

Outside the contract of the queued local engines: nobody waits here for anybody else, so there is no order, no capacity
and no slot to free; no circuit is claimed, and a timeout trips nothing and tells no hook. What holds all the same:
retries belong to the ticket and only its last failure counts; its three times are kept apart, a queue wait of zero
among them; and the ledger has a row for it, of the disposition ``not-applicable``.

A call runs in its caller's task. Each has a connection of its own, and a few idle ones are kept for those who come.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Generic, Literal, TypeVar

import outcome
import trio

from embedkit.activity.ledger import Ledger
from embedkit.admission.attempts import Retry, make_attempts
from embedkit.admission.bookkeeping import close_row, open_row
from embedkit.admission.slot import Result, Slot
from embedkit.admission.ticket import Ticket
from embedkit.errors import DeadlineExceeded, EmbedkitError, LaneClosed, TicketWithdrawn, UsageError

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
        ledger: Ledger,
        retry: Retry,
        model: str = "unknown",
        max_inputs: int | None = None,
    ) -> None:
        self.name = name
        self.model = model
        self.max_inputs = max_inputs
        self._connect = connect
        self._ledger = ledger
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

        Cancellation:
            The transport is closed, and the row says ``aborted``: nothing is known of what the provider goes on doing.
        """
        self._begin(ticket)
        result: Result | None = None
        try:
            with ticket.scope:
                result = await self._attempts(call, ticket)
        except BaseException:
            self._end(ticket, "aborted", None)
            raise
        if result is None:
            error = _parting(self.name, ticket)
            self._end(ticket, "aborted", error)
            raise error
        failure = result.error if type(result) is outcome.Error else None
        self._end(ticket, "succeeded" if failure is None else "failed", failure)
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

    async def _attempts(self, call: Callable[[C], Awaitable[R]], ticket: Ticket) -> Result | None:
        await trio.lowlevel.checkpoint_if_cancelled()
        async with self._connection() as connection:
            with Slot() as slot:
                ticket.slot = slot
                ticket.call = call
                # A hint binds the ticket that was told: there is no lane to hold back.
                return await make_attempts(ticket, connection, self._retry, self._ledger, lambda _: None)

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[C]:
        if self._idle:
            connection, stack = self._idle.pop()
        else:
            stack = AsyncExitStack()
            connection = await stack.enter_async_context(self._connect())
        async with stack:
            yield connection
            if not self._closed and len(self._idle) < _KEPT:
                self._idle.append((connection, stack.pop_all()))

    def _begin(self, ticket: Ticket) -> None:
        if ticket.state != "new":
            raise UsageError("this ticket was offered before; make a new one for each call")
        if self._closed:
            raise LaneClosed(f"provider {self.name}: the engine is closed")
        now = trio.current_time()
        ticket.dispatched_at = now
        ticket.caller = trio.lowlevel.current_task()
        ticket.state = "in-flight"
        open_row(
            self._ledger,
            ticket,
            now,
            lane=self.name,
            provider=self.name,
            model=self.model,
            disposition="not-applicable",
        )
        assert ticket.row is not None
        self._ledger.dispatched(ticket.row, now)

    def _end(
        self, ticket: Ticket, word: Literal["succeeded", "failed", "aborted"], error: BaseException | None
    ) -> None:
        close_row(self._ledger, ticket, word, error, trio.current_time())
        ticket.caller = None


def _parting(name: str, ticket: Ticket) -> EmbedkitError:
    if ticket.deadline_at <= trio.current_time():
        return DeadlineExceeded(f"provider {name}: the deadline passed while the call was out")
    return TicketWithdrawn(f"provider {name}: the ticket was cancelled while its call was out")
