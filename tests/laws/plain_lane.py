"""A lane that is not ours and keeps the seven laws: right and slow, one task a dispatch, and lists for an order."""

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
from embedkit.admission.policy import Retry
from embedkit.admission.room import Room
from embedkit.clocks import attribution
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
            ticket.state = "queued"
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
            ticket.state = "settled"
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
        entry.ticket.state = "in-flight"

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
