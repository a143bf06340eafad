"""Lanes that are not ours: a plain one that keeps the laws, and others that do what people do.

``PlainLane`` is a lane in a page, right and slow: one task a dispatch, lists for an order. The bad ones differ from it
in one thing each, but for ``LimiterLane``, whose queue is trio's own.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import attrs
import outcome
import trio
from slow_order import SlowOrder

from embedkit import (
    Clocks,
    DeadlineExceeded,
    EmbedkitError,
    LaneClosed,
    ProviderError,
    ProviderTimeout,
    QueueWaitExceeded,
    Ticket,
    TicketWithdrawn,
    Totals,
    notify_provider_timeout,
)
from embedkit.activity.clocks import attribution
from embedkit.admission.attempts import Retry
from embedkit.admission.room import Room
from embedkit.admission.ticket import State
from embedkit.testing import Settlement

Call = Callable[[Any], Awaitable[Any]]
Result = outcome.Value[Any] | outcome.Error


@attrs.frozen
class Snapshot:
    totals: Totals


@attrs.define(eq=False)
class Entry:
    """A ticket in a lane that is not ours: whatever such a lane must know of it."""

    ticket: Ticket
    call: Call
    offered_at: float
    caller: trio.lowlevel.Task | None
    dispatched_at: float | None = None
    retry_wait: float = 0.0
    attempt: trio.CancelScope | None = None
    pause: trio.CancelScope | None = None
    aborted: bool = False
    parting: EmbedkitError | None = None

    @property
    def priority(self) -> Any:
        return self.ticket.priority

    @property
    def weight(self) -> int:
        return self.ticket.weight

    @property
    def tenant(self) -> str | None:
        return self.ticket.tenant

    @property
    def is_unwanted(self) -> bool:
        return self.caller is None or (self.ticket.circuit is not None and self.ticket.circuit.is_open)

    def clocks(self) -> Clocks:
        now = trio.current_time()
        if self.dispatched_at is None:
            return Clocks(now - self.offered_at, 0.0, 0.0)
        spent = now - self.dispatched_at - self.retry_wait
        return Clocks(self.dispatched_at - self.offered_at, spent, self.retry_wait)

    def describe(self, error: BaseException | None) -> None:
        if isinstance(error, EmbedkitError):
            error.clocks = self.clocks()
            error.attribution = attribution(error.clocks)

    def leave(self) -> EmbedkitError:
        """Why its caller leaves now."""
        late = self.ticket.deadline_at <= trio.current_time()
        if not late:
            self.parting = TicketWithdrawn("cancelled")
        else:
            self.parting = QueueWaitExceeded("late") if self.dispatched_at is None else DeadlineExceeded("late")
        self.describe(self.parting)
        self.caller = None
        return self.parting

    def hand_over(self, result: Result) -> None:
        if self.caller is not None:
            caller, self.caller = self.caller, None
            trio.lowlevel.reschedule(caller, result)

    def abort(self) -> None:
        self.aborted = True
        for scope in (self.attempt, self.pause):
            if scope is not None:
                scope.cancel()

    async def make_attempts(self, retry: Retry) -> Result | None:
        while True:
            result = await self.make_attempt()
            delay = self.delay(retry, result)
            if delay is None:
                return result
            began = trio.current_time()
            with trio.CancelScope() as self.pause:
                self.ticket.pause = self.pause  # what a circuit ends when it trips
                await trio.sleep(delay)
            self.pause = self.ticket.pause = None
            self.retry_wait += trio.current_time() - began
            if self.aborted or self.is_unwanted:
                return None if self.aborted else result

    async def make_attempt(self) -> Result | None:
        self.ticket.attempts += 1
        result: Result | None = None
        limit = math.inf if self.ticket.timeout is None else self.ticket.timeout
        with trio.CancelScope(deadline=trio.current_time() + limit) as self.attempt:
            try:
                result = outcome.Value(await self.call(None))
            except Exception as error:
                result = outcome.Error(error)
        self.attempt = None
        return outcome.Error(ProviderTimeout("late")) if result is None and not self.aborted else result

    def delay(self, retry: Retry, result: Result | None) -> float | None:
        error = failure(result)
        if not isinstance(error, ProviderError) or self.is_unwanted:
            return None
        delay = retry.next_delay(
            error, self.ticket.attempts, priority=self.priority, spent=self.retry_wait, has_deadline=False
        )
        return None if delay is None or trio.current_time() + delay >= self.ticket.deadline_at else delay


def failure(result: Result | None) -> BaseException | None:
    return result.error if isinstance(result, outcome.Error) else None


class PlainLane:
    settlement: ClassVar[Settlement] = "provider"
    order: SlowOrder

    def __init__(
        self,
        nursery: trio.Nursery,
        *,
        capacity: int,
        reserve: int,
        max_overtakes: int,
        max_age: float,
        retry: Retry,
        **_: object,
    ) -> None:
        self.nursery = nursery
        self.room = Room(capacity, reserve)
        self.order = SlowOrder(max_overtakes=max_overtakes, max_age=max_age)
        self.retry = retry
        self.totals = Totals()
        self.entries: dict[Ticket, Entry] = {}
        self.closed = False
        self.looking = False

    def statistics(self) -> Snapshot:
        return Snapshot(attrs.evolve(self.totals, queued=len(self.order), in_flight=self.room.tickets))

    async def run(self, call: Call, ticket: Ticket) -> Any:
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.closed:
            raise LaneClosed("closed")
        if ticket.circuit is not None and ticket.circuit.is_open:
            raise ticket.circuit.refusal()
        entry = Entry(ticket, call, trio.current_time(), trio.lowlevel.current_task())
        with ticket.scope:
            self.offer(entry)
            return await trio.lowlevel.wait_task_rescheduled(lambda _: self.left(entry))
        assert entry.parting is not None
        raise entry.parting

    def offer(self, entry: Entry) -> None:
        ticket = entry.ticket
        self.entries[ticket] = entry
        self.totals.offered += 1
        if ticket.circuit is not None:
            # What a circuit asks of a ticket: where it is, and a lane with `shed` and `rouse`.
            ticket.state = State.QUEUED
            ticket.lane = self  # type: ignore[assignment]
            ticket.circuit.bind(ticket)
        self.order.add(entry, trio.current_time())
        self.rouse()

    def left(self, entry: Entry) -> trio.lowlevel.Abort:
        parting = entry.leave()
        if entry.dispatched_at is None:
            self.take_out(entry, "withdrawn", parting)
            self.rouse()
        else:
            self.caller_left(entry)
        return trio.lowlevel.Abort.SUCCEEDED

    def caller_left(self, entry: Entry) -> None:
        if self.settlement == "queue":
            entry.abort()
        elif entry.pause is not None:
            entry.pause.cancel()

    def take_out(self, entry: Entry, word: str, error: Exception) -> None:
        self.order.remove(entry, trio.current_time())
        self.end(entry, word, error)

    def end(self, entry: Entry, word: str, error: BaseException | None) -> None:
        setattr(self.totals, word, getattr(self.totals, word) + 1)
        ticket = entry.ticket
        del self.entries[ticket]
        ticket.clocks = entry.clocks()
        entry.describe(error)
        if ticket.circuit is not None:
            ticket.state = State.SETTLED
            ticket.circuit.unbind(ticket)

    def shed(self, ticket: Ticket, error: EmbedkitError) -> None:
        entry = self.entries[ticket]
        self.take_out(entry, "shed", error)
        entry.hand_over(outcome.Error(error))

    def close(self) -> None:
        self.closed = True
        for entry in list(self.order):
            assert isinstance(entry, Entry)
            self.shed(entry.ticket, LaneClosed("closed"))

    def rouse(self) -> None:
        if not self.closed and not self.looking and self.order.choose(trio.current_time(), self.room) is not None:
            self.looking = True
            self.nursery.start_soon(self.work)

    async def work(self) -> None:
        self.looking = False
        try:
            entry = self.take()
            while entry is not None:
                self.rouse()
                entry = self.next_after(entry, await self.serve(entry))
        except BaseException:
            self.close()
            raise

    def next_after(self, entry: Entry, error: BaseException | None) -> Entry | None:
        notify_provider_timeout(error, entry.ticket.on_provider_timeout)
        return self.take()

    def take(self) -> Entry | None:
        now = trio.current_time()
        while not self.closed and (entry := self.order.choose(now, self.room)) is not None:
            assert isinstance(entry, Entry)
            if entry.ticket.deadline_at > now:
                self.dispatch(entry, now)
                return entry
            error = QueueWaitExceeded("late")
            self.take_out(entry, "withdrawn", error)
            entry.hand_over(outcome.Error(error))
        return None

    def dispatch(self, entry: Entry, now: float) -> None:
        self.order.commit(entry, now, self.room)
        self.room.enter(entry)
        entry.dispatched_at = now
        entry.ticket.state = State.IN_FLIGHT

    async def serve(self, entry: Entry) -> BaseException | None:
        """Attempts and settlement; the final error is returned."""
        try:
            result = await entry.make_attempts(self.retry)
        except BaseException:
            self.settle(entry, "unsettled", outcome.Error(LaneClosed("ended")))
            raise
        error = failure(result)
        self.settle(entry, "aborted" if result is None else "succeeded" if error is None else "failed", result)
        return error

    def settle(self, entry: Entry, word: str, result: Result | None) -> None:
        self.room.leave(entry)
        self.end(entry, word, failure(result))
        if result is not None:
            entry.hand_over(result)


class PlainQueueLane(PlainLane):
    """The same, where the queue task owns the settlement."""

    settlement = "queue"


class LimiterLane(PlainQueueLane):
    """``async with limiter``, as everybody writes it: the call runs in its caller's task.

    Its queue is the limiter's: first come first served, without classes, weights or a shed; a token is handed to a
    waiter before that waiter runs.
    """

    def __init__(self, nursery: trio.Nursery, **options: Any) -> None:
        super().__init__(nursery, **options)
        self.limiter = trio.CapacityLimiter(options["capacity"])

    def statistics(self) -> Snapshot:
        return Snapshot(attrs.evolve(self.totals))

    async def run(self, call: Call, ticket: Ticket) -> Any:
        if self.closed:
            raise LaneClosed("closed")
        entry = Entry(ticket, call, trio.current_time(), trio.lowlevel.current_task())
        self.totals.offered += 1
        self.totals.queued += 1
        with ticket.scope:
            try:
                async with self.limiter:
                    return (await self.in_turn(entry)).unwrap()
            except trio.Cancelled:
                entry.leave()
                self.finish(entry, "withdrawn" if entry.dispatched_at is None else "aborted", entry.parting)
                raise
        assert entry.parting is not None
        raise entry.parting

    async def in_turn(self, entry: Entry) -> Result:
        if self.closed or entry.is_unwanted:
            circuit = entry.ticket.circuit
            error = LaneClosed("closed") if self.closed or circuit is None else circuit.refusal()
            self.finish(entry, "shed", error)
            raise error
        self.totals.queued -= 1
        self.totals.in_flight += 1
        entry.dispatched_at = trio.current_time()
        if entry.ticket.circuit is not None:
            entry.ticket.circuit.bind(entry.ticket)
        result = await entry.make_attempts(self.retry)
        assert result is not None
        error_ = failure(result)
        self.finish(entry, "failed" if error_ else "succeeded", error_)
        notify_provider_timeout(error_, entry.ticket.on_provider_timeout)
        return result

    def finish(self, entry: Entry, word: str, error: BaseException | None) -> None:
        self.totals.queued -= entry.dispatched_at is None
        self.totals.in_flight -= entry.dispatched_at is not None
        setattr(self.totals, word, getattr(self.totals, word) + 1)
        entry.ticket.clocks = entry.clocks()
        entry.describe(error)
        if entry.ticket.circuit is not None and entry.dispatched_at is not None:
            entry.ticket.circuit.unbind(entry.ticket)


class ChannelLane(PlainLane):
    """A memory channel between the queue and its workers: whoever is chosen is handed over before a worker runs."""

    def __init__(self, nursery: trio.Nursery, **options: Any) -> None:
        super().__init__(nursery, **options)
        self.send, receive = trio.open_memory_channel[Entry](math.inf)
        for _ in range(options["capacity"]):
            nursery.start_soon(self.work_on, receive.clone())
        receive.close()

    def rouse(self) -> None:
        while (entry := self.take()) is not None:
            self.send.send_nowait(entry)

    async def work_on(self, receive: trio.MemoryReceiveChannel[Entry]) -> None:
        try:
            async for entry in receive:
                error = await self.serve(entry)
                notify_provider_timeout(error, entry.ticket.on_provider_timeout)
                self.rouse()
        except BaseException:
            self.close()
            raise


class FreesOnLeavingLane(PlainLane):
    """Takes a caller's leaving for the end of its call: the slot is free, and the engine computes two things."""

    def caller_left(self, entry: Entry) -> None:
        super().caller_left(entry)
        self.room.leave(entry)
        self.totals.aborted += 1
        self.rouse()

    def settle(self, entry: Entry, word: str, result: Result | None) -> None:
        if entry.parting is not None:
            self.room.enter(entry)
            self.totals.aborted -= 1
            word = "aborted"
        super().settle(entry, word, result)


class NotifiesLateLane(PlainLane):
    """Takes the next ticket, and then tells the run of the timeout."""

    def next_after(self, entry: Entry, error: BaseException | None) -> Entry | None:
        taken = self.take()
        notify_provider_timeout(error, entry.ticket.on_provider_timeout)
        return taken


class SpendingOrder(SlowOrder):
    """Counts in ``choose``."""

    def choose(self, now: float, room: Room) -> Any:
        chosen = self.turn(now, room)
        if chosen is not None and chosen.priority == "interactive" and self.head is not None:
            self.overtaken += 1
        return chosen if chosen is not None and room.fits(chosen) else None

    def commit(self, ticket: Any, now: float, room: Room) -> None:
        if ticket.priority == "interactive" and self.head is not None:
            self.overtaken -= 1  # it was counted as it was chosen
        super().commit(ticket, now, room)


class PeekSpendsLane(PlainLane):
    """Counts an overtake when it looks, whether the look leads to a dispatch or not."""

    def __init__(self, nursery: trio.Nursery, **options: Any) -> None:
        super().__init__(nursery, **options)
        self.order = SpendingOrder(max_overtakes=options["max_overtakes"], max_age=options["max_age"])


class ReparkingLane(PlainLane):
    """Whoever is woken and finds that it does not fit parks again, behind those who came later."""

    def take(self) -> Entry | None:
        chosen = self.order.turn(trio.current_time(), self.room)
        if chosen is not None and not self.room.fits(chosen):
            self.order.waiting.remove(chosen)
            self.order.waiting.append(chosen)
        return super().take()


@attrs.frozen
class BadLane:
    """A lane, and the laws it breaks."""

    make: type[PlainLane]
    breaks: frozenset[int]


BAD_LANES = {
    "limiter": BadLane(LimiterLane, frozenset({1, 4, 6})),
    "channel": BadLane(ChannelLane, frozenset({1, 3})),
    "frees-on-leaving": BadLane(FreesOnLeavingLane, frozenset({2})),
    "notifies-late": BadLane(NotifiesLateLane, frozenset({3})),
    "peek-spends": BadLane(PeekSpendsLane, frozenset({4})),
    "reparks": BadLane(ReparkingLane, frozenset({4})),
}
