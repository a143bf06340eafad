"""Calls to a provider that no lane governs: it is remote, and admits by rules of its own (Gemini).

Outside the contract of the queued local engines: nobody waits here for anybody else, so there is no order, no capacity
and no slot to free; no circuit is claimed, and a timeout trips nothing and tells no hook. What holds all the same:
retries belong to the ticket and only its last failure counts; its three times are kept apart; and the ledger has a row
for it, of the disposition ``not-applicable``.

A hint holds back everybody, as it does in a lane: who would begin, and who would try again. What a ticket waits before
its first attempt is its ``queue_wait``, which is zero where no hint was in force: nothing has been sent yet, so the
time is not the provider's, and it follows no attempt of this ticket, so it is no ``retry_wait``. A deadline that passes
meanwhile is ``QueueWaitExceeded``, and the ticket is ``withdrawn``, as from a lane.

A call runs in its caller's task. Each has a connection of its own, and a few idle ones are kept for those who come.
A connection that fails to close is a line in the log.

Tested in ``tests/admission/test_unqueued.py`` and ``tests/providers/test_gemini_unqueued.py``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

import outcome
import trio

from embedkit.activity.recorder import Recorder
from embedkit.admission.attempts import make_attempts
from embedkit.admission.connecting import Connecting, coded
from embedkit.admission.hold import Hold
from embedkit.admission.passage import Passage, Register
from embedkit.admission.policy import Retry
from embedkit.admission.slot import Result, Slot
from embedkit.admission.ticket import Ticket
from embedkit.errors import (
    EmbedkitError,
    LaneClosed,
    ProviderCircuitOpen,
    QueueWaitExceeded,
    TicketWithdrawn,
    UsageError,
)

C = TypeVar("C")
R = TypeVar("R")

# Idle connections that are kept. More calls than that may be out; their connections are closed afterwards.
_KEPT = 8


class _NoLane:
    """What a circuit would shed in. No circuit is bound to it, so nobody calls it."""

    def shed(self, work: object, error: ProviderCircuitOpen) -> bool:
        return False

    def rouse(self) -> None:
        pass


_NO_LANE = _NoLane()


class Unqueued(Generic[C]):
    """The way to one provider without a lane.

    Args:
        name: The provider's name in the settings.
        connect: Opens a connection. It is closed by whichever task comes to it, so it must hold no cancel scope open.
        ledger: Told of everything, asked nothing.
        retry: Which failures are followed by another attempt.
        model: The model, for the ledger.
    """

    def __init__(
        self,
        name: str,
        *,
        connect: Callable[[], AbstractAsyncContextManager[C]],
        ledger: Recorder,
        retry: Retry,
        model: str = "unknown",
    ) -> None:
        self.name = name
        self.model = model
        self._connect = connect
        self._connecting = Connecting(name, connect)
        self._register = Register(ledger, lane=name, provider=name, model=model, disposition="not-applicable")
        self._retry = retry
        # Written by the attempts of every ticket; read before each of them.
        self._hold = Hold()
        self._idle: list[tuple[C, AbstractAsyncContextManager[C]]] = []
        self._closing = trio.Event()
        self._clock = trio.lowlevel.current_clock()

    @trio.lowlevel.enable_ki_protection
    async def run(self, call: Callable[[C], Awaitable[R]], ticket: Ticket) -> R:
        """Make the call on a connection of its own, and return what it returned; at once, unless a hint is in force.

        Args:
            call: Makes one attempt; called again for a retry.
            ticket: New. Its circuit and its hook are not used.

        Raises:
            ProviderError: The call's final failure, as the call raised it; or ``ProviderTimeout``.
            QueueWaitExceeded: Its deadline passed before anything was sent.
            DeadlineExceeded: Its deadline passed while the call was out.
            TicketWithdrawn: Somebody cancelled ``ticket.scope``.
            LaneClosed: The engine is closed.
            UsageError: The ticket was offered before, or its scope was entered elsewhere.

        Cancellation:
            Before the first attempt: nothing was sent, and the row says ``withdrawn``. Later the transport is closed,
            and the row says ``aborted``: nothing is known of what the provider goes on doing.
        """
        if ticket.scope.is_relative is None:
            raise UsageError("this ticket was offered before, or its scope was entered; make a new one for each call")
        if self._closing.is_set():
            raise self._closed()
        passage = Passage(self._register, ticket, call)
        passage.circuit = None
        result: Result | None = None
        try:
            with ticket.scope:
                result = await self._attempts(passage)
        except LaneClosed as error:
            passage.settle("shed", error, self._clock.current_time())
            raise
        except BaseException:
            # By a scope that is not the ticket's: nobody is given a reason.
            if passage.state == "queued":
                self._leave(passage)
            else:
                passage.settle("aborted", None, self._clock.current_time())
            raise
        if result is None:
            raise self._leave(passage)
        failure = result.error if type(result) is outcome.Error else None
        passage.settle("succeeded" if failure is None else "failed", failure, self._clock.current_time())
        value: R = result.unwrap()
        return value

    def close(self) -> None:
        """Begin nothing more; who waits for a hint gets ``LaneClosed``. Calls that are out are their callers'."""
        self._closing.set()

    async def aclose(self) -> None:
        """``close``, and close the connections that are idle.

        Cancellation:
            They are closed all the same.
        """
        self.close()
        cancelled: BaseException | None = None
        while self._idle:
            _, manager = self._idle.pop()
            try:
                await self._connecting.close(manager)
            except BaseException as error:  # Cancelled, or an interrupt: the others are closed first
                cancelled = error
        if cancelled is not None:
            raise cancelled

    async def _attempts(self, passage: Passage) -> Result | None:
        # Its caller makes the call itself, and so is there for as long as the call is.
        passage.caller = trio.lowlevel.current_task()
        passage.open(self._clock.current_time())
        passage.offer(_NO_LANE)
        await trio.lowlevel.checkpoint_if_cancelled()
        free_at = await self._until_free(passage.offered_at)
        slot = Slot()
        try:
            connection, manager = await self._connected()
        except Exception as error:
            passage.dispatch(slot, free_at)
            return outcome.Error(coded(error))
        is_whole = False
        try:
            # A hint may have come while it was opened. If none did, the opening is the provider's time.
            passage.dispatch(slot, await self._until_free(free_at))
            with slot:
                result = await make_attempts(passage, connection, self._retry, self._hold, self._clock)
            is_whole = True
        finally:
            if is_whole and not self._closing.is_set() and len(self._idle) < _KEPT:
                self._idle.append((connection, manager))
            else:
                await self._connecting.close(manager)
        return result

    async def _until_free(self, free_at: float) -> float:
        """Wait while the engine wants to be left alone. Returns when that was over: ``free_at`` without a wait.

        Cancellation:
            Changes nothing.
        """
        while self._clock.current_time() < self._hold.until and not self._closing.is_set():
            # A longer hint may come meanwhile.
            with trio.move_on_at(self._hold.until):
                await self._closing.wait()
            free_at = self._clock.current_time()
        if self._closing.is_set():
            raise self._closed()
        return free_at

    async def _connected(self) -> tuple[C, AbstractAsyncContextManager[C]]:
        """A connection, and what closes it.

        Cancellation:
            None was opened.
        """
        if self._idle:
            return self._idle.pop()
        manager = self._connect()
        return await manager.__aenter__(), manager

    def _leave(self, passage: Passage) -> EmbedkitError:
        """The caller has left, by its ticket's scope or another one: write that down. Returns why, if by the first."""
        now = self._clock.current_time()
        error: EmbedkitError
        if passage.state != "queued":
            error = passage.leave(self.name, now)
            passage.settle("aborted", error, now)
        elif passage.deadline_at <= now:
            held = " while it asked everybody to stay away" if now < self._hold.until else ""
            error = QueueWaitExceeded(f"provider {self.name}: the deadline passed{held}; nothing was sent")
            passage.settle("withdrawn", error, now)
        else:
            error = TicketWithdrawn(f"provider {self.name}: the ticket was cancelled; nothing was sent")
            passage.settle("withdrawn", error, now)
        return error

    def _closed(self) -> LaneClosed:
        return LaneClosed(f"provider {self.name}: the engine is closed")
