"""A complete lane that is not ours and keeps the seven laws, from public names alone; ``docs/contract.md`` shows it."""

from typing import Any

import trio

from embedkit import EmbedkitError, FairOrder, LaneClosed, Room, Ticket
from embedkit.testing import LaneBase, LaneEntry


class PlainLane(LaneBase):
    def __init__(self, nursery: trio.Nursery, *, capacity: int, reserve: int, **options: Any) -> None:
        super().__init__(nursery, options["retry"])
        self.nursery = nursery
        self.room = Room(capacity, reserve)
        self.order: FairOrder[LaneEntry] = FairOrder(lead=options["lead"], batch_share=options["batch_share"])
        self.is_looking = False

    async def run(self, call: Any, ticket: Ticket) -> Any:
        await trio.lowlevel.checkpoint_if_cancelled()
        with ticket.scope:
            entry = self.offer(call, ticket)
            self.order.add(entry)
            self.rouse()
            return await entry.wait(self.left)
        raise entry.parting

    def left(self, entry: LaneEntry) -> None:  # inside cancel()
        if self.leave(entry):
            self.order.remove(entry)
            self.rouse()

    def shed(self, entry: LaneEntry, error: EmbedkitError) -> bool:
        if entry.state != "queued":
            entry.end_pause()
            return False
        self.order.remove(entry)
        self.refuse(entry, error)
        return True

    def close(self) -> None:
        self.is_closed = True
        for entry in list(self.order):
            self.shed(entry, LaneClosed("the lane is closed"))

    def rouse(self) -> None:
        if not self.is_looking and not self.is_closed and self.order.choose(self.room) is not None:
            self.is_looking = True
            self.nursery.start_soon(self.work)

    async def work(self) -> None:
        self.is_looking = False
        await trio.lowlevel.checkpoint_if_cancelled()
        while (entry := self.take()) is not None:
            self.rouse()
            try:
                word, result = await self.make_attempts(entry)
            finally:
                self.room.leave(entry)
                self.order.settle(entry, entry.seconds, is_sample=True)
            self.settle(entry, word, result)  # tells the run's hook, before the next take
            await trio.lowlevel.checkpoint_if_cancelled()  # none, unless the engine has ended

    def take(self) -> LaneEntry | None:
        while not self.is_closed and trio.current_time() >= self.held_until:
            entry = self.order.choose(self.room)
            if entry is None or entry.deadline_at > trio.current_time():
                break
            self.order.remove(entry)
            self.withdraw(entry)
        else:
            return None
        if entry is not None:
            self.order.commit(entry)
            self.room.enter(entry)
            self.dispatch(entry)
        return entry


class PlainQueueLane(PlainLane):
    settlement = "queue"
