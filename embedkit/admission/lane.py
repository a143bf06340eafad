"""A lane: a capacity-limited channel whose queued items are cancel scopes.

How it works
------------
A lane is a waiting room and its slots. A slot is a task in the engine's nursery that owns one connection; its loop
takes a ticket, makes the call, settles, notifies, and takes again, *with no checkpoint between settlement and take*:
what the settlement says (a trip, freed room) is true before anybody is chosen.

*Late pop.* An idle slot sleeps holding nothing. A wake-up says only "look again": the slot chooses after it has woken,
with the gate check and the pop side by side, so whatever happened in between (a trip, a withdrawal, a smaller
capacity) is seen. A channel that hands the item over before its receiver runs would miss it. A slot that finds nothing
that fits parks and wakes nobody: two idle slots that woke each other over a head that does not fit would spin for
ever. One that took a ticket wakes the next slot, if there is another ticket that fits; one that was woken and ends
before it looked passes its wake-up on.

*The lane owns the call.* It runs in the slot's task. A caller parks inside its ticket's scope in the same step in
which it offers; its abort function, which trio runs inside ``cancel()``, withdraws a queued ticket there and then. What
becomes of a dispatched one is up to the lane's kind (``capacity_lane``, ``budget_lane``), as is the settlement: those
are the only things in which kinds differ.

Functions that change a lane's state are synchronous and protected from KeyboardInterrupt, as trio's own are; provider
calls, in between, are not.
"""

from __future__ import annotations

import abc
import contextvars
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Generic, TypeVar

import outcome
import trio

from embedkit.activity.ledger import Recorder
from embedkit.admission.attempts import NoRetry, Retry, make_attempts
from embedkit.admission.bookkeeping import Settled, close_row, describe, open_row
from embedkit.admission.order import Order
from embedkit.admission.resting import Resting
from embedkit.admission.room import Room, checked_capacity
from embedkit.admission.slot import Result, Slot
from embedkit.admission.statistics import COUNTED, LaneStatistics, Totals
from embedkit.admission.ticket import Ticket
from embedkit.admission.waiting_room import WaitingRoom
from embedkit.errors import (
    DeadlineExceeded,
    EmbedkitError,
    LaneClosed,
    LaneFull,
    QueueWaitExceeded,
    TicketWithdrawn,
    UsageError,
)

logger = logging.getLogger("embedkit.admission")

C = TypeVar("C")
R = TypeVar("R")
Capacity = int | Callable[[], int]


class Lane(abc.ABC, Generic[C]):
    """One engine's queue. Use ``CapacityLane`` or ``BudgetLane``.

    Args:
        name: The provider's name in the settings.
        nursery: The engine's. Slots run in it, and so do the calls.
        connect: Opens the connection that a slot owns as long as it lives.
        capacity: Units in flight at once: a positive int, or a callable that is read at each offer and settlement.
        reserve: Units that batch and probe work leave free.
        max_queued: Tickets of one class that may wait inside; further callers wait for room.
        max_overtakes: Law 4: interactive dispatches that one batch head may see.
        max_age: Law 4: seconds after which it sees none.
        retry: Which failures are followed by another attempt.
        ledger: Told of everything, asked nothing.
        provider: The provider, for the ledger.
        model: The model, for the ledger.
    """

    def __init__(
        self,
        name: str,
        *,
        nursery: trio.Nursery,
        connect: Callable[[], AbstractAsyncContextManager[C]],
        capacity: Capacity,
        ledger: Recorder,
        reserve: int = 0,
        max_queued: int = 1024,
        max_overtakes: int = 1,
        max_age: float = 30.0,
        retry: Retry | None = None,
        provider: str = "unknown",
        model: str = "unknown",
    ) -> None:
        if max_queued < 1 or reserve < 0:
            raise UsageError(f"lane {name}: max_queued must be at least 1, reserve at least 0: {max_queued}, {reserve}")
        self.name = name
        self.provider = provider
        self.model = model
        self._nursery = nursery
        self._connect = connect
        self._read_capacity = capacity if callable(capacity) else None
        self._room = Room(checked_capacity(name, capacity() if callable(capacity) else capacity), reserve)
        self._waiting: WaitingRoom[Ticket] = WaitingRoom(
            Order(max_overtakes=max_overtakes, max_age=max_age), max_queued
        )
        self._retry = retry or NoRetry()
        self._ledger = ledger
        self._counts = dict.fromkeys(COUNTED, 0)
        self._slots: set[Slot] = set()
        self._idle = Resting()
        self._closed = False
        self._drained = trio.Event()
        self._held_until = -math.inf
        # Trio's own, without the way to it, which costs more than the reading: a call reads it half a dozen times.
        self._clock = trio.lowlevel.current_clock()
        self._context = contextvars.copy_context()

    @trio.lowlevel.enable_ki_protection
    async def run(self, call: Callable[[C], Awaitable[R]], ticket: Ticket) -> R:
        """Wait for a slot, make the call on the slot's connection, and return what it returned.

        Args:
            call: Makes one attempt; called again for a retry.
            ticket: New; a ticket is offered once.

        Raises:
            ProviderError: The call's final failure, as the call raised it; or ``ProviderTimeout``.
            ProviderCircuitOpen: The ticket's circuit was or became open while it was queued.
            QueueWaitExceeded: Its deadline passed while it was queued; no call was made.
            DeadlineExceeded: Its deadline passed while the call was out.
            TicketWithdrawn: Somebody cancelled ``ticket.scope``.
            LaneClosed: The lane ended first.

        Cancellation:
            A queued ticket has left the lane: it is never dispatched. A dispatched one is detached or aborted, as the
            lane's kind says. If the outcome was already on its way, it is returned and Cancelled comes at the next
            checkpoint.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self._admit(ticket)
        with ticket.scope:
            self._offer(call, ticket)
            # One step: nothing runs between the offer and the moment when the abort function is in place.
            value: R = await trio.lowlevel.wait_task_rescheduled(lambda _: self._abort(ticket))
            return value
        assert ticket.parting is not None
        raise ticket.parting  # the ticket's own scope ended the wait

    async def run_nowait(self, call: Callable[[C], Awaitable[R]], ticket: Ticket) -> R:
        """As ``run``, but refuse where ``run`` would wait for room.

        Raises:
            LaneFull: The waiting room of the ticket's class is full; nothing was offered. Raised before anything else
                happens, without a checkpoint.
            EmbedkitError: As ``run``.

        Cancellation:
            As ``run``.
        """
        if self._waiting.is_full(ticket.priority):
            bound = self._waiting.max_queued
            raise LaneFull(f"lane {self.name}: {bound} {ticket.priority} tickets are waiting already (max_queued)")
        return await self.run(call, ticket)

    def statistics(self) -> LaneStatistics:
        """The lane at this instant. Costs time in proportion to what is queued."""
        now = self._clock.current_time()
        return LaneStatistics(
            capacity=self._room.capacity,
            ceiling=self._room.ceiling,
            tickets_in_flight=self._room.tickets,
            weight_in_flight=self._room.weight,
            queued=Counter(ticket.priority for ticket in self._waiting),
            queued_by_tenant=Counter(ticket.tenant for ticket in self._waiting),
            longest_wait=max((now - ticket.offered_at for ticket in self._waiting), default=0.0),
            overtakes_spent=self._waiting.order.overtakes_spent,
            slots=len(self._slots),
            totals=Totals(queued=len(self._waiting), in_flight=self._room.tickets, **self._counts),
        )

    @trio.lowlevel.enable_ki_protection
    def refresh(self) -> None:
        """The capacity callable would now answer otherwise: read it, and use what has grown. Nothing polls it."""
        self._refresh_capacity()
        self.rouse()

    @trio.lowlevel.enable_ki_protection
    def close(self, cause: BaseException | None = None) -> None:
        """Take nothing more: shed what is queued with ``LaneClosed``, retire idle slots. Calls that are out go on."""
        if self._closed:
            return
        self._closed = True
        for ticket in tuple(self._waiting):
            error = LaneClosed(f"lane {self.name} closed while the ticket was queued")
            # What ended the lane, unless it is Cancelled or an interrupt: those are nobody's cause.
            error.__cause__ = cause if isinstance(cause, Exception) else None
            self.shed(ticket, error)
        while self._idle:
            self._idle.wake()
        self._note_drained()

    async def drained(self) -> None:
        """Wait until the lane is closed and no call is out.

        Cancellation:
            Changes nothing; it may be awaited again.
        """
        await self._drained.wait()

    @trio.lowlevel.enable_ki_protection
    def shed(self, ticket: Ticket, error: EmbedkitError) -> None:
        """Take a queued ticket out and give its caller ``error``. Whoever calls this then calls ``rouse``."""
        now = self._clock.current_time()
        self._take_out(ticket, now)
        self._counts["shed"] += 1
        close_row(self._ledger, ticket, "shed", error, now)
        self.hand_over(ticket, outcome.Error(error))

    @trio.lowlevel.enable_ki_protection
    def rouse(self) -> None:
        """If a ticket fits, have one slot look: an idle one, else a new one while there may be more."""
        may_open = len(self._slots) < self._room.capacity
        if self._closed or not (self._idle or may_open):
            return
        if self._waiting.order.choose(self._clock.current_time(), self._room) is None:
            return
        if self._idle:
            self._idle.wake()
        else:
            slot = Slot()
            # The lane's own context, not that of the caller who happened to come first: callers' variables do not
            # reach providers. Counted once it is there: the nursery may have ended.
            self._context.run(partial(self._nursery.start_soon, self._work, slot, name=f"embedkit slot of {self.name}"))
            self._slots.add(slot)

    def _admit(self, ticket: Ticket) -> None:
        """Open the ticket's row; refuse what cannot be offered at all."""
        if ticket.state != "new":
            raise UsageError("this ticket was offered before; make a new one for each call")
        if self._closed:
            raise LaneClosed(f"lane {self.name} is closed")
        self._refresh_capacity()
        open_row(
            self._ledger,
            ticket,
            self._clock.current_time(),
            lane=self.name,
            provider=self.provider,
            model=self.model,
            disposition="queued",
        )
        if ticket.circuit is not None and ticket.circuit.is_open:
            error = ticket.circuit.refusal()
            ticket.circuit = None  # it was never bound
            close_row(self._ledger, ticket, "shed", error, ticket.offered_at)
            raise error

    def _offer(self, call: Callable[[C], Awaitable[Any]], ticket: Ticket) -> None:
        ticket.lane = self
        ticket.call = call
        ticket.caller = trio.lowlevel.current_task()
        ticket.state = "queued"
        self._counts["offered"] += 1
        if ticket.circuit is not None:
            ticket.circuit.bind(ticket)
        self._waiting.add(ticket, ticket.offered_at)
        try:
            self.rouse()
        except RuntimeError as error:  # trio's word for it: nobody will ever take the ticket
            ticket.caller = None
            self._withdraw(ticket)
            raise LaneClosed(f"lane {self.name}: its nursery has ended before it") from error

    @trio.lowlevel.enable_ki_protection
    def _abort(self, ticket: Ticket) -> trio.lowlevel.Abort:
        """The caller is being cancelled: trio runs this inside ``cancel()``, or at the take of a passed deadline."""
        if ticket.state == "settled":
            return trio.lowlevel.Abort.FAILED  # its outcome is on its way, in this very step
        ticket.caller = None
        if ticket.state == "queued":
            ticket.parting = self._withdraw(ticket)
            self.rouse()  # it may have held back what fits now
        else:
            ticket.parting = self._leave_call(ticket)
        return trio.lowlevel.Abort.SUCCEEDED

    def _withdraw(self, ticket: Ticket) -> EmbedkitError:
        now = self._clock.current_time()
        self._take_out(ticket, now)
        self._counts["withdrawn"] += 1
        error: EmbedkitError
        if ticket.deadline_at <= now:
            error = QueueWaitExceeded(f"lane {self.name}: the deadline passed in the queue; nothing was sent")
        else:
            error = TicketWithdrawn(f"lane {self.name}: the ticket was withdrawn from the queue")
        close_row(self._ledger, ticket, "withdrawn", error, now)
        return error

    def _leave_call(self, ticket: Ticket) -> EmbedkitError:
        now = self._clock.current_time()
        error: EmbedkitError
        if ticket.deadline_at <= now:
            error = DeadlineExceeded(f"lane {self.name}: the deadline passed while the call was out")
        else:
            error = TicketWithdrawn(f"lane {self.name}: the ticket was cancelled while its call was out")
        describe(error, ticket, ticket.measure(now))
        self.caller_left(ticket)
        return error

    @trio.lowlevel.enable_ki_protection
    async def _work(self, slot: Slot) -> None:
        try:
            async with self._connect() as connection:
                with slot:
                    while (ticket := await self._next(slot)) is not None:
                        await self._serve(ticket, connection)
        except BaseException as error:
            # A slot never dies alone: its lane can promise nothing more, so no caller may stay parked in it.
            self.close(error)
            raise
        finally:
            self._slots.discard(slot)
            self.rouse()  # a wake-up that it had been given is passed on

    async def _next(self, slot: Slot) -> Ticket | None:
        """The next ticket, already dispatched; ``None`` when the slot is to end. Parks only if there is neither."""
        while True:
            if self._closed:
                return None
            ticket = self._take(slot)
            if ticket is not None:
                self.rouse()
                return ticket
            # Only now: one that ended before it looked would leave an idle lane waiting for the next to come up.
            if len(self._slots) > self._room.capacity:
                return None
            is_held = self._clock.current_time() < self._held_until
            await self._idle.sleep(slot, self._held_until if is_held else math.inf)

    def _take(self, slot: Slot) -> Ticket | None:
        """Choose, check, pop: one step. A ticket whose deadline has passed is withdrawn, though trio has not fired."""
        now = self._clock.current_time()
        if now < self._held_until:
            return None
        while (ticket := self._waiting.order.choose(now, self._room)) is not None:
            if ticket.deadline_at > now:
                self._waiting.commit(ticket, now, self._room)
                self._room.enter(ticket)
                ticket.slot = slot
                ticket.state = "in-flight"
                ticket.dispatched_at = now
                assert ticket.row is not None
                self._ledger.dispatched(ticket.row, now)
                return ticket
            self.hand_over(ticket, outcome.Error(self._withdraw(ticket)))
        return None

    def _hold(self, until: float) -> None:
        """The engine asked us to stay away until then: nothing is dispatched before. Idle slots wake by themselves."""
        self._held_until = max(self._held_until, until)

    async def _serve(self, ticket: Ticket, connection: C) -> None:
        """Make the call and settle. Ends with the settlement: the next take follows at once."""
        try:
            result = await make_attempts(ticket, connection, self._retry, self._ledger, self._hold)
        except BaseException:
            # The engine's own end (Cancelled), or an interrupt: what the engine computes is not known any more.
            error = LaneClosed(f"lane {self.name} ended while the call was out")
            self.record("unsettled", ticket, error)
            self.hand_over(ticket, outcome.Error(error))
            raise
        detached = ticket.caller is None
        self.settle(ticket, result)
        if detached and type(result) is outcome.Error and not isinstance(result.error, EmbedkitError):
            raise result.error  # a bug in the call, and nobody else left to tell: it is no provider's failure

    @abc.abstractmethod
    def settle(self, ticket: Ticket, result: Result | None) -> None:
        """The kind's settlement: record it, give the outcome to the caller, tell the notifier.

        Args:
            ticket: In flight.
            result: What the attempts came to; ``None`` if the call was aborted.
        """

    @abc.abstractmethod
    def caller_left(self, ticket: Ticket) -> None:
        """The kind's answer to a cancelled caller whose call is out."""

    def record(self, word: Settled, ticket: Ticket, error: BaseException | None = None) -> None:
        """Free what the ticket held and write down how it ended; after this the slot's state is clean."""
        self._room.leave(ticket)
        self._counts[word] += 1
        close_row(self._ledger, ticket, word, error, self._clock.current_time())
        if self._read_capacity is not None:
            self._reread_capacity()
        if self._closed:
            self._note_drained()

    def hand_over(self, ticket: Ticket, result: Result) -> None:
        """Give the caller its outcome, unless it has left."""
        if ticket.caller is not None:
            caller, ticket.caller = ticket.caller, None
            trio.lowlevel.reschedule(caller, result)

    def _take_out(self, ticket: Ticket, now: float) -> None:
        assert ticket.state == "queued"
        self._waiting.remove(ticket, now)

    def _refresh_capacity(self) -> None:
        if self._read_capacity is not None:
            self._room.capacity = checked_capacity(self.name, self._read_capacity())
            self._retire_surplus()

    def _retire_surplus(self) -> None:
        """Wake idle slots that are too many; they end unless there is work for them. The longest idle go first."""
        for _ in range(min(len(self._slots) - self._room.capacity, len(self._idle))):
            self._idle.wake_longest()

    def _reread_capacity(self) -> None:
        # A capacity that cannot be read stays what it was here: its error belongs to the next offer, which raises it,
        # and not to a ticket that has just been settled.
        try:
            self._refresh_capacity()
        except Exception as error:
            logger.warning("lane %s: capacity not read at a settlement (%s)", self.name, type(error).__name__)

    def _note_drained(self) -> None:
        if self._closed and self._room.tickets == 0:
            self._drained.set()
