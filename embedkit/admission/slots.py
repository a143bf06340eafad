"""A lane's slots: the tasks that take tickets, make the calls, settle and take again.

How it works
------------
A slot is a task in the engine's nursery that owns one connection. Its loop takes a ticket, makes the call, settles,
notifies, and takes again, *with no checkpoint between settlement and take*: what the settlement says (a trip, freed
room) is true before anybody is chosen.

*Late pop.* An idle slot sleeps holding nothing. A wake-up says only "look again": the slot chooses after it has woken,
with the gate check and the pop side by side, so whatever happened in between (a trip, a withdrawal, a smaller
capacity) is seen. A channel that hands the item over before its receiver runs would miss it. A slot that finds nothing
that fits parks and wakes nobody: two idle slots that woke each other over a head that does not fit would spin for
ever. One that took a ticket wakes the next slot, if there is another ticket that fits; one that was woken and ends
before it looked passes its wake-up on.

*What is foreign fails one ticket.* A connection that cannot be opened fails the ticket that would have used it, and the
slot waits before it tries again. A connection that fails to close, a capacity that cannot be read at a settlement: a
line in the log. What is left, and ends the slots and the lane with them, is a defect of embedkit's own, an interrupt,
or the end of the engine.

*The sentinel* is one more task, which does nothing but sleep in the nursery. When that is cancelled, trio runs its
abort function inside ``cancel()``, and the lane takes nothing more from that step on. A slot whose call sits in a
thread would hear of it only when the thread comes back, and meanwhile callers in other nurseries would be sent.

Tested by all of ``tests/laws``, and in ``tests/admission/test_slot_and_context.py``.
"""

from __future__ import annotations

import contextvars
import logging
import math
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import islice
from typing import Any, Generic, TypeVar

import outcome
import trio

from embedkit.admission.attempts import make_attempts
from embedkit.admission.connecting import Connecting
from embedkit.admission.hold import Hold
from embedkit.admission.notifier import notify_provider_timeout
from embedkit.admission.order import Order
from embedkit.admission.passage import Passage, Settled
from embedkit.admission.policy import Retry
from embedkit.admission.resting import Resting
from embedkit.admission.room import Room, checked_capacity
from embedkit.admission.slot import Result, Slot
from embedkit.errors import EmbedkitError, LaneClosed, is_provider_timeout

logger = logging.getLogger("embedkit.admission")

C = TypeVar("C")
Capacity = int | Callable[[], int]

# Tickets that are shed in one step when a lane closes. The rest follow in portions, so that closing a lane with
# 100,000 waiting does not hold up everybody else for seconds.
PORTION = 1_000
_CLOSED = "closed while the ticket was queued"


class Slots(Generic[C]):
    """The slots of one lane, and what they share: the order, the room, the hold.

    Args:
        name: The lane's.
        nursery: The engine's.
        connect: Opens the connection that a slot owns as long as it lives.
        capacity: Units in flight at once: a positive int, or a callable that is read at each offer and settlement.
        reserve: Units that batch and probe work leave free.
        order: Of who waits.
        retry: Which failures are followed by another attempt.

    Attributes:
        order: Written by the lane's door (offers, withdrawals) and by a slot's take.
        room: What is in flight. Written by takes and settlements, and by a capacity that is read.
        reads_capacity: The capacity is a callable.
        is_closed: Nothing is taken any more.
    """

    def __init__(
        self,
        name: str,
        *,
        nursery: trio.Nursery,
        connect: Callable[[], AbstractAsyncContextManager[C]],
        capacity: Capacity,
        reserve: int,
        order: Order[Passage],
        retry: Retry,
    ) -> None:
        self.name = name
        self.order = order
        self.is_closed = False
        self._read_capacity = capacity if callable(capacity) else None
        self.reads_capacity = callable(capacity)
        self.room = Room(checked_capacity(name, capacity() if callable(capacity) else capacity), reserve)
        self._nursery = nursery
        self._connecting = Connecting(name, connect)
        self._retry = retry
        self._hold = Hold()
        # Slots that may take. One that decides to end leaves in that step, though its connection takes long to close.
        self._open: set[Slot] = set()
        # Of these, the ones that have a connection.
        self._connected: set[Slot] = set()
        self._idle = Resting()
        # Slots whose connection could not be opened, until they try again.
        self._backing_off = Resting()
        self._is_reading_capacity = False
        # While it sleeps; whoever wakes it sets it back.
        self._sentinel: trio.lowlevel.Task | None = None
        self._has_begun = False
        self._closing: LaneClosed | None = None
        # Nobody who was queued as the lane closed is queued any more.
        self._is_shed = False
        self._drained = trio.Event()
        # Trio's own, without the way to it, which costs more than the reading: a call reads it half a dozen times.
        self._clock = trio.lowlevel.current_clock()
        # The lane's own context, not that of the caller who happened to come first: callers' variables do not reach
        # providers.
        self._context = contextvars.copy_context()

    def __len__(self) -> int:
        return len(self._open)

    @property
    def held_for(self) -> float:
        """Seconds for which the engine still wants to be left alone."""
        return max(self._hold.until - self._clock.current_time(), 0.0)

    @trio.lowlevel.enable_ki_protection
    def rouse(self) -> None:
        """If a ticket fits, have one slot look: an idle one, else a new one while there may be more."""
        if self.is_closed or not (self._idle.tasks or len(self._open) < self.room.capacity):
            return
        if self._choose() is None:
            return
        if self._idle.tasks:
            self._idle.wake()
        else:
            self._open_slot()

    def refresh_capacity(self) -> None:
        """Read the capacity, where it is a callable; raises what that raises, or what its value is worth."""
        if self._read_capacity is None or self._is_reading_capacity:
            return
        self._is_reading_capacity = True
        try:
            self.room.capacity = checked_capacity(self.name, self._read_capacity())
        finally:
            self._is_reading_capacity = False
        self._retire_surplus()

    @trio.lowlevel.enable_ki_protection
    def close(self, cause: BaseException | None = None, *, why: str = _CLOSED) -> None:
        """Take nothing more: shed what is queued, end idle slots. Calls that are out go on."""
        if self.is_closed:
            return
        self._stop(cause, why)
        while self._shed_portion() and not self._has_begun:
            pass  # there is no nursery, and so no later
        if self._sentinel is not None:
            sentinel, self._sentinel = self._sentinel, None
            trio.lowlevel.reschedule(sentinel)
        self._note_drained()

    async def drained(self) -> None:
        """Wait until the lane is closed, nobody is queued and no call is out.

        Cancellation:
            Changes nothing; it may be awaited again.
        """
        await self._drained.wait()

    def shed(self, passage: Passage, error: EmbedkitError) -> None:
        """Take a queued ticket out and give its caller ``error``. Whoever calls this then calls ``rouse``."""
        self._remove(passage)
        if passage.state != "queued":
            return  # its order failed, and the lane's end has shed it meanwhile
        passage.settle("shed", error, self._clock.current_time())
        passage.answer(outcome.Error(error))
        if self.is_closed:
            self._note_drained()

    def withdraw(self, passage: Passage) -> EmbedkitError:
        """Take a queued ticket out whose caller has left, or whose deadline has passed. Returns which it was."""
        self._remove(passage)
        if passage.state != "queued":  # its order failed, and the lane's end has shed it meanwhile
            return LaneClosed(f"lane {self.name} closed while the ticket was queued")
        error = passage.withdraw(self.name, self._clock.current_time())
        if self.is_closed:
            self._note_drained()
        return error

    def _remove(self, passage: Passage) -> None:
        try:
            self.order.remove(passage)
        except Exception as error:
            self._order_failed(error)

    # The loop.

    @trio.lowlevel.enable_ki_protection
    async def _work(self, slot: Slot) -> None:
        try:
            await trio.lowlevel.checkpoint_if_cancelled()
            while slot in self._open and not self.is_closed:
                await self._live(slot)
        except BaseException as error:
            # A slot never dies alone: its lane can promise nothing more, so no caller may stay parked in it.
            self.close(error)
            raise
        finally:
            self._open.discard(slot)
            self.rouse()  # a wake-up that it had been given is passed on

    async def _live(self, slot: Slot) -> None:
        """Open a connection, serve until the slot is to end, and close it."""
        try:
            connection, manager = await self._connecting.open()
        except EmbedkitError as error:
            await self._refused(slot, error)
            return
        self._connected.add(slot)
        try:
            with slot:
                # Written out as far as it is the same for every call: each coroutine in between costs as much as a
                # take, and is passed by every step of the call.
                while True:
                    now = self._clock.current_time()
                    passage = None if now < self._hold.until else self._take(slot, now)
                    if passage is None and (passage := await self._next(slot)) is None:
                        break
                    try:
                        self.rouse()  # another one may fit, too
                        result = await make_attempts(passage, connection, self._retry, self._hold, self._clock)
                    except BaseException:
                        # The engine's own end (Cancelled), or an interrupt: what it computes is not known any more.
                        self._cut_off(passage)
                        raise
                    self._settle(passage, result)
        finally:
            self._connected.discard(slot)
            await self._connecting.close(manager)

    async def _refused(self, slot: Slot, error: EmbedkitError) -> None:
        """No connection: the ticket that would have used it fails, and the slot waits before it tries again.

        Cancellation:
            The ticket has failed.
        """
        now = self._clock.current_time()
        passage = None if now < self._hold.until else self._take(slot, now)
        if passage is not None:
            self._settle(passage, outcome.Error(error))
            self.rouse()
        if not self.is_closed:
            await self._backing_off.sleep(slot, now + self._connecting.backoff)
        if self._choose() is None:
            self._open.discard(slot)  # nobody waits for it; whoever comes next opens another

    async def _next(self, slot: Slot) -> Passage | None:
        """The next ticket, already dispatched; ``None`` when the slot is to end. Parks only if there is neither."""
        while not self.is_closed:
            now = self._clock.current_time()
            is_held = now < self._hold.until
            passage = None if is_held else self._take(slot, now)
            if passage is not None:
                return passage
            # Only now: one that ended before it looked would leave an idle lane waiting for the next to come up. And
            # only if another one that has a connection stays: one that is still opening its own can serve nobody yet.
            is_surplus = len(self._open) > self.room.capacity and len(self._connected) > 1
            # The look itself may have closed the lane, and whoever sleeps after that is woken by nobody.
            if is_surplus or self.is_closed:
                break
            await self._idle.sleep(slot, self._hold.until if is_held else math.inf)
        self._open.discard(slot)
        self._connected.discard(slot)
        return None

    def _take(self, slot: Slot, now: float) -> Passage | None:
        """Choose, check, pop: one step. A ticket whose deadline has passed is withdrawn, though trio has not fired."""
        while not self.is_closed:  # whoever hears of a withdrawal may close the lane
            try:
                passage = self.order.choose(self.room)
            except Exception as error:
                self._order_failed(error)
                return None
            if passage is None:
                return None
            ticket = passage.ticket
            if ticket.deadline_at > now and ticket.scope.deadline > now:
                try:
                    self.order.commit(passage)
                except Exception as error:
                    self._order_failed(error)
                    return None
                self.room.enter(passage)
                passage.dispatch(slot, now)
                return passage
            passage.answer(outcome.Error(self.withdraw(passage)))
        return None

    def _choose(self) -> Passage | None:
        """Who is next and fits, if the lane takes anybody. An order that raises ends the lane, and strands nobody."""
        if self.is_closed:
            return None
        try:
            return self.order.choose(self.room)
        except Exception as error:
            self._order_failed(error)
            return None

    def _order_failed(self, error: Exception) -> None:
        """An order of somebody's own raised: the lane cannot say any more who is next, and ends."""
        logger.error("lane %s: its order raised %s; the lane ends", self.name, type(error).__name__, exc_info=error)
        self.close(error)

    def _settle(self, passage: Passage, result: Result | None) -> None:
        """The settlement, of every kind of lane: record it, answer the caller, tell the notifier. One step.

        Args:
            passage: In flight.
            result: What the attempts came to; ``None`` if the call was aborted.
        """
        error = result.error if type(result) is outcome.Error else None
        if error is not None and passage.caller is None and not isinstance(error, EmbedkitError):
            # Its caller would have been told; so somebody should be.
            logger.warning("lane %s: a call whose caller has left raised %s", self.name, type(error).__name__)
        try:
            if result is None:
                self._free(passage, "aborted", passage.parting)
            else:
                self._free(passage, "succeeded" if error is None else "failed", error)
        finally:
            # Recorded first: a caller who is answered is not there any more, and its row would say so.
            if result is not None:
                passage.answer(result)
            if error is not None:
                notify_provider_timeout(error, passage.ticket.on_provider_timeout)

    def _free(self, passage: Passage, word: Settled, error: BaseException | None) -> None:
        """Free what the ticket held and write down how it ended; after this the slot's state is clean."""
        now = self._clock.current_time()
        self.room.leave(passage)
        passage.settle(word, error, now)
        # A call that was cut off, or refused in no time, does not say how long such work takes.
        is_sample = word == "succeeded" or is_provider_timeout(error)
        try:
            self.order.settle(passage, now - passage.dispatched_at, is_sample=is_sample)
        except Exception as raised:
            self._order_failed(raised)
        if self.is_closed:
            self._note_drained()
        if self.reads_capacity:
            try:
                self.refresh_capacity()
            except Exception as raised:
                # The capacity stays what it was. Its error belongs to the next offer, which raises it, and not to a
                # ticket that has just been settled.
                logger.warning("lane %s: capacity not read at a settlement (%s)", self.name, type(raised).__name__)

    def _cut_off(self, passage: Passage) -> None:
        error = LaneClosed(f"lane {self.name} ended while the call was out")
        try:
            self._free(passage, "unsettled", error)
        finally:
            passage.answer(outcome.Error(error))

    # Opening, retiring, ending.

    def _open_slot(self) -> None:
        """Start a slot, and before the first one the sentinel.

        It may be inside a ``cancel()``, in the abort function of a caller who held this ticket back. Trio walks over
        the tasks of the caller's own scope then, and a slot is started in none of those.
        """
        slot = Slot()
        try:
            if not self._has_begun:
                self._start(self._watch, "sentinel of")
                self._has_begun = True
            self._start(self._work, "slot of", slot)
        except RuntimeError as error:  # trio's word for a nursery that has ended: nobody will ever take a ticket
            self._has_begun = False
            self.close(error, why="can take nothing: its nursery has ended")
        else:
            self._open.add(slot)

    def _start(self, task: Callable[..., Any], what: str, *args: object) -> None:
        self._context.run(partial(self._nursery.start_soon, task, *args, name=f"embedkit {what} {self.name}"))

    @trio.lowlevel.enable_ki_protection
    async def _watch(self) -> None:
        """Sleep until the lane closes, then shed whatever is left. Stops the lane as the nursery is cancelled."""
        try:
            if not self.is_closed:
                self._sentinel = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._nursery_cancelled)
        finally:
            with trio.CancelScope(shield=True):
                while self._shed_portion():
                    await trio.lowlevel.checkpoint()
                self._note_drained()

    def _nursery_cancelled(self, _: object) -> trio.lowlevel.Abort:
        """Nothing is taken from now on. What is queued is shed by the sentinel, one step later.

        Whoever cancelled the engine may be cancelling callers in this very step: they are withdrawn, and come out with
        Cancelled; a ``LaneClosed`` would go up as an error of theirs.
        """
        self._sentinel = None
        self._stop(None, _CLOSED)
        return trio.lowlevel.Abort.SUCCEEDED

    def _stop(self, cause: BaseException | None, why: str) -> None:
        """Take nothing more, and end whoever sleeps."""
        self.is_closed = True
        self._closing = LaneClosed(f"lane {self.name} {why}")
        # What ended the lane, unless it is Cancelled or an interrupt: those are nobody's cause.
        self._closing.__cause__ = cause if isinstance(cause, Exception) else None
        for resting in (self._idle, self._backing_off):
            while resting.tasks:
                resting.wake()

    def _retire_surplus(self) -> None:
        """Wake idle slots that are too many; they end unless there is work for them. The longest idle go first."""
        for _ in range(min(len(self._open) - self.room.capacity, len(self._idle.tasks))):
            self._idle.wake_longest()

    @trio.lowlevel.enable_ki_protection
    def _shed_portion(self) -> bool:
        """Shed some of those that are queued; whether there may be more."""
        assert self._closing is not None
        # By their own state, and not by what the order says: one that raises may keep those it was told to remove.
        queued = list(islice((one for one in self.order if one.state == "queued"), PORTION))
        for passage in queued:
            # A listener that hears of one may have tripped the circuit of another.
            if passage.state == "queued":
                error = LaneClosed(str(self._closing))
                error.__cause__ = self._closing.__cause__
                self.shed(passage, error)
        self._is_shed = len(queued) < PORTION
        return not self._is_shed

    def _note_drained(self) -> None:
        if self._is_shed and self.room.tickets == 0:
            self._drained.set()
