"""Lanes that do what people do.

Each differs from the plain one in one thing, but for ``LimiterLane``, whose queue is trio's own.
"""

from __future__ import annotations

import math
from typing import Any

import attrs
import trio
from plain_lane import Call, Entry, PlainLane, PlainQueueLane, Result, Snapshot, failure
from slow_order import SlowOrder

from embedkit import LaneClosed, Ticket, notify_provider_timeout
from embedkit.admission.room import Room


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
