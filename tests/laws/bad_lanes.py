"""Lanes that do what people do. Each differs from the plain one in one thing, which its docstring names.

Those that follow a public report name it; the code is ours.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import attrs
import trio
from plain_lane import PlainLane, PlainQueueLane

from embedkit import Clocks, EmbedkitError, FairOrder, LaneClosed, Room, Ticket, notify_provider_timeout
from embedkit.testing import Feature, LaneBase, LaneEntry, Settlement


class LimiterLane(LaneBase):
    """``async with limiter``, as everybody writes it: the call runs in its caller's task.

    Its queue is the limiter's: first come first served, without classes, weights or a shed; a token is handed to a
    waiter before that waiter runs.
    """

    settlement = "queue"

    def __init__(self, nursery: trio.Nursery, **options: Any) -> None:
        super().__init__(nursery, options["retry"])
        self.limiter = trio.CapacityLimiter(options["capacity"])

    async def run(self, call: Any, ticket: Ticket) -> Any:
        with ticket.scope:
            entry = self.offer(call, ticket)
            try:
                async with self.limiter:
                    self.dispatch(entry)
                    word, result = await self.make_attempts(entry)
                    assert result is not None
                    self.settle(entry, word, result)
                    return result.unwrap()
            except trio.Cancelled:
                if entry.state == "queued":
                    self.leave(entry)
                raise
        raise entry.parting

    def shed(self, entry: LaneEntry, error: EmbedkitError) -> bool:
        entry.end_pause()
        return False

    def rouse(self) -> None:
        """Nobody waits for anything but a token."""

    def close(self) -> None:
        self.is_closed = True


class ChannelLane(PlainLane):
    """Eager hand-off: whoever is chosen goes through a memory channel, before a worker runs."""

    def __init__(self, nursery: trio.Nursery, **options: Any) -> None:
        super().__init__(nursery, **options)
        self.send, receive = trio.open_memory_channel[LaneEntry](math.inf)
        for _ in range(options["capacity"]):
            nursery.start_soon(self.work_on, receive.clone())
        receive.close()

    def rouse(self) -> None:
        while (entry := self.take()) is not None:
            self.send.send_nowait(entry)

    async def work_on(self, receive: trio.MemoryReceiveChannel[LaneEntry]) -> None:
        async for entry in receive:
            try:
                word, result = await self.make_attempts(entry)
            finally:
                self.room.leave(entry)
                self.order.settle(entry, entry.seconds, is_sample=True)
            self.settle(entry, word, result)
            self.rouse()


class FreesOnLeavingLane(PlainLane):
    """The permit is freed while the work runs: a caller's leaving is taken for the end of its call.

    Netflix/Hystrix#1867 (a timeout releases the semaphore, and the command runs on), xberg-io/xberg#1641 (so does a
    caller who no longer waits).
    """

    def left(self, entry: LaneEntry) -> None:
        was_out = entry.state == "in-flight"
        super().left(entry)
        if was_out:
            self.room.leave(entry)
            self.rouse()

    async def make_attempts(self, entry: LaneEntry) -> tuple[Any, Any]:
        try:
            return await super().make_attempts(entry)
        finally:
            if entry.is_detached:
                self.room.enter(entry)  # its end is about to free it again


class NotifiesLateLane(PlainLane):
    """Takes the next ticket, and then tells the run of the timeout."""

    late: tuple[Any, Any] | None = None

    def settle(self, entry: LaneEntry, word: Any, result: Any) -> None:
        hook = entry.ticket.on_provider_timeout
        object.__setattr__(entry.ticket, "on_provider_timeout", None)
        super().settle(entry, word, result)
        if word == "failed":
            self.late = (result.error, hook)

    def take(self) -> LaneEntry | None:
        taken = super().take()
        if self.late is not None:
            late, self.late = self.late, None
            notify_provider_timeout(*late)
        return taken


class PeekSpendsOrder(FairOrder[LaneEntry]):
    """A bypass is spent on a peek: a class is charged as it is looked at, and not only as it is dispatched."""

    def choose(self, room: Room) -> LaneEntry | None:
        chosen = super().choose(room)
        for of_class in self._classes.values():
            if of_class.is_waiting and of_class.name == "interactive":
                self._level.correct(of_class, 0.2)
                of_class.out += 1
        return chosen


class PeekSpendsLane(PlainLane):
    """See its order."""

    def __init__(self, nursery: trio.Nursery, **options: Any) -> None:
        super().__init__(nursery, **options)
        self.order = PeekSpendsOrder(lead=options["lead"], batch_share=options["batch_share"])


class ReparkingLane(PlainLane):
    """Whoever is woken and finds that it does not fit parks again, behind those who came later."""

    def take(self) -> LaneEntry | None:
        chosen = self.order.choose(Room(10**6))
        if chosen is not None and not self.room.fits(chosen):
            self.order.remove(chosen)
            self.order.add(chosen)
        return super().take()

    def rouse(self) -> None:
        if len(self.order) and not self.is_looking and not self.is_closed:
            self.is_looking = True
            self.nursery.start_soon(self.work)


class CountsOrder(FairOrder[LaneEntry]):
    """Fair in dispatches, not in engine time."""

    def settle(self, ticket: LaneEntry, seconds: float, *, is_sample: bool) -> None:
        super().settle(ticket, 1.0 / ticket.weight, is_sample=is_sample)


class CountsLane(PlainLane):
    """See its order."""

    def __init__(self, nursery: trio.Nursery, **options: Any) -> None:
        super().__init__(nursery, **options)
        self.order = CountsOrder(lead=options["lead"], batch_share=options["batch_share"])


class OwnHeadroom(Room):
    """Each caller looks at its own use of what batch work may have: two together overshoot it."""

    def __init__(self, capacity: int, reserve: int) -> None:
        super().__init__(capacity, reserve)
        self.used = Counter[str | None]()

    def fits(self, ticket: Any) -> bool:
        if self.tickets == 0 or ticket.priority == "interactive":
            return super().fits(ticket)
        fits: bool = self.weight + ticket.weight <= self.capacity
        return fits and bool(self.used[ticket.tenant] + ticket.weight <= self.ceiling)

    def held_by_ceiling(self, ticket: Any) -> bool:
        return not self.fits(ticket) and self.weight + ticket.weight <= self.capacity

    def enter(self, ticket: Any) -> None:
        super().enter(ticket)
        self.used[ticket.tenant] += ticket.weight

    def leave(self, ticket: Any) -> None:
        super().leave(ticket)
        self.used[ticket.tenant] -= ticket.weight


class HeadroomLane(PlainLane):
    """Headroom overshot by two callers: see its room."""

    def __init__(self, nursery: trio.Nursery, **options: Any) -> None:
        super().__init__(nursery, **options)
        self.room = OwnHeadroom(options["capacity"], options["reserve"])


class GrantingLane(PlainQueueLane):
    """Grants a token one step before its new owner runs; the lanes below go wrong in that step, each in its own way."""

    def __init__(self, nursery: trio.Nursery, **options: Any) -> None:
        super().__init__(nursery, **options)
        self.granted: set[LaneEntry] = set()

    def rouse(self) -> None:
        while not self.is_closed and trio.current_time() >= self.held_until:
            entry = self.order.choose(self.room)
            if entry is None:
                break
            self.order.commit(entry)
            self.granted.add(entry)
            self.reserve(entry)
            self.nursery.start_soon(self.own, entry)

    def reserve(self, entry: LaneEntry) -> None:
        self.room.enter(entry)

    def begin(self, entry: LaneEntry) -> bool:
        """The owner runs; whether it is still there."""
        self.granted.discard(entry)
        if entry.state == "queued":
            return True
        self.give_back(entry)
        self.rouse()
        return False

    def give_back(self, entry: LaneEntry) -> None:
        self.room.leave(entry)
        self.order.settle(entry, 0.0, is_sample=False)

    async def own(self, entry: LaneEntry) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        if not self.begin(entry):
            return
        self.dispatch(entry)
        self.rouse()
        try:
            word, result = await self.make_attempts(entry)
        finally:
            self.room.leave(entry)
            self.order.settle(entry, entry.seconds, is_sample=True)
        self.settle(entry, word, result)
        self.rouse()

    def left(self, entry: LaneEntry) -> None:
        if self.leave(entry) and entry not in self.granted:
            self.order.remove(entry)
            self.rouse()

    def shed(self, entry: LaneEntry, error: EmbedkitError) -> bool:
        if entry not in self.granted:
            return super().shed(entry, error)
        self.refuse(entry, error)
        return True

    def close(self) -> None:
        super().close()
        for entry in list(self.granted):
            if entry.state == "queued":
                self.refuse(entry, LaneClosed("the lane is closed"))


class LostTokenLane(GrantingLane):
    """agronholm/anyio#947: whoever is cancelled between its grant and its next step takes the token along."""

    def give_back(self, entry: LaneEntry) -> None:
        """Nobody does."""


class OverGrantingLane(GrantingLane):
    """agronholm/anyio#1170: a freed token is promised to who was woken, and looks free to who comes meanwhile."""

    def reserve(self, entry: LaneEntry) -> None:
        """Only once it runs."""

    def begin(self, entry: LaneEntry) -> bool:
        self.room.enter(entry)
        return super().begin(entry)


class OrphanLane(PlainQueueLane):
    """encode/httpcore#1093: a request that is cancelled while its connection is being opened leaves that behind.

    The connection is neither idle, nor closed, nor anybody's, so it keeps its place in the pool for good.
    """

    def __init__(self, nursery: trio.Nursery, **options: Any) -> None:
        super().__init__(nursery, **options)
        self.opening: set[LaneEntry] = set()
        self.idle_connections = 0

    def dispatch(self, entry: LaneEntry) -> None:
        self.opening.add(entry)

    async def make_attempts(self, entry: LaneEntry) -> tuple[Any, Any]:
        if self.idle_connections:
            self.idle_connections -= 1
        else:
            await trio.lowlevel.checkpoint()
        self.opening.discard(entry)
        if entry.state == "settled":
            await trio.sleep_forever()  # it is still connecting, for nobody
        super().dispatch(entry)
        answer = await super().make_attempts(entry)
        self.idle_connections += 1
        return answer

    def left(self, entry: LaneEntry) -> None:
        if entry in self.opening:
            self.leave(entry)
        else:
            super().left(entry)

    def shed(self, entry: LaneEntry, error: EmbedkitError) -> bool:
        if entry not in self.opening:
            return super().shed(entry, error)
        self.refuse(entry, error)
        return True

    def close(self) -> None:
        super().close()
        for entry in list(self.opening):
            if entry.state == "queued":
                self.refuse(entry, LaneClosed("the lane is closed"))


class MiscountingLane(PlainLane):
    """Does everything right, and writes an answered call down as aborted."""

    def settle(self, entry: LaneEntry, word: Any, result: Any) -> None:
        super().settle(entry, "aborted" if word == "succeeded" else word, result)


class StoppedWatchLane(PlainLane):
    """Does everything right, and counts the wait as the provider's time."""

    def settle(self, entry: LaneEntry, word: Any, result: Any) -> None:
        super().settle(entry, word, result)
        clocks = entry.ticket.clocks
        entry.ticket.clocks = Clocks(0.0, clocks.queue_wait + clocks.provider_time, clocks.retry_wait)


class PollingLane(PlainLane):
    """Looks every ten milliseconds whether there is something to do, for as long as there may be."""

    def rouse(self) -> None:
        if not self.is_looking and not self.is_closed:
            self.is_looking = True
            self.nursery.start_soon(self.poll)

    async def poll(self) -> None:
        while len(self.order) and not self.is_closed:
            await trio.sleep(0.01)
            if self.order.choose(self.room) is not None:
                self.nursery.start_soon(self.work)
        self.is_looking = False


class ShieldingLane(PlainLane):
    """Shields its callers: nothing that they do reaches it."""

    async def run(self, call: Any, ticket: Ticket) -> Any:
        with trio.CancelScope(shield=True):
            return await super().run(call, ticket)


class DeafLane(PlainLane):
    """Swallows Cancelled, and goes on."""

    def __init__(self, nursery: trio.Nursery, **options: Any) -> None:
        super().__init__(nursery, **options)
        nursery.start_soon(self.go_on)

    async def go_on(self) -> None:
        while True:
            try:
                await trio.sleep(1000.0)
            except trio.Cancelled:
                await trio.lowlevel.cancel_shielded_checkpoint()


@attrs.frozen
class BadLane:
    """A lane, and the laws it breaks.

    Attributes:
        make: Makes it.
        named: The law that names what is wrong with it: the first that the report shows.
        breaks: All that it breaks by what it does; the rest follows from the one.
        miswrites: What it breaks by what it writes down.
        settlement: What it declares.
        without: What it says that it does not have.
    """

    make: type[PlainLane] | type[LimiterLane]
    named: int
    breaks: frozenset[int]
    miswrites: frozenset[int] = frozenset()
    settlement: Settlement = "provider"
    without: frozenset[Feature] = frozenset()


BAD_LANES = {
    "limiter": BadLane(
        LimiterLane,
        1,
        frozenset({1, 2, 3, 4, 5, 6, 7}),
        frozenset({1, 2, 3, 6, 7}),
        settlement="queue",
        without=frozenset({"tenants", "weights", "reserve"}),
    ),
    "eager hand-off": BadLane(ChannelLane, 1, frozenset({1, 3, 4, 6}), frozenset({3})),
    "permit freed while the work runs": BadLane(FreesOnLeavingLane, 2, frozenset({2, 4}), frozenset()),
    "the call of who has left runs on": BadLane(PlainLane, 2, frozenset({2}), frozenset({6, 7}), settlement="queue"),
    "notified late": BadLane(NotifiesLateLane, 3, frozenset({1, 3, 6}), frozenset({3})),
    "a bypass spent on a peek": BadLane(PeekSpendsLane, 4, frozenset({4}), frozenset()),
    "reparked at the tail": BadLane(ReparkingLane, 4, frozenset({1, 3, 4, 6}), frozenset({3})),
    "fair in count": BadLane(CountsLane, 4, frozenset({4}), frozenset()),
    "headroom overshot by two": BadLane(HeadroomLane, 4, frozenset({4}), frozenset()),
    "token lost (anyio 947)": BadLane(LostTokenLane, 1, frozenset({1, 2, 3, 4, 6}), frozenset(), settlement="queue"),
    "token granted twice (anyio 1170)": BadLane(
        OverGrantingLane, 2, frozenset({2, 4}), frozenset(), settlement="queue"
    ),
    "connection orphaned (httpcore 1093)": BadLane(
        OrphanLane, 1, frozenset({1, 6}), frozenset({7}), settlement="queue"
    ),
    "miscounted": BadLane(MiscountingLane, 6, frozenset(), frozenset({2, 6})),
    "the watch not stopped": BadLane(StoppedWatchLane, 7, frozenset(), frozenset({7})),
}
