"""Where a lane's idle slots sleep, holding nothing. A wake-up says only "look again"."""

from __future__ import annotations

import math
from collections import OrderedDict

import trio

from embedkit.admission.slot import Slot


class Resting:
    """Sleeping slots, in the order in which they fell asleep."""

    def __init__(self) -> None:
        self._tasks: OrderedDict[Slot, trio.lowlevel.Task] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tasks)

    async def sleep(self, slot: Slot, until: float = math.inf) -> None:
        """Sleep until somebody wakes ``slot``, or until an instant.

        Cancellation:
            It was asleep, or its wake-up is lost: whoever is cancelled in between passes it on.
        """
        slot.rest()
        if until == math.inf:
            await self._park(slot)
        else:
            with trio.move_on_at(until):
                await self._park(slot)

    def wake(self) -> None:
        """Wake the slot that fell asleep last: its connection is the one most likely still open."""
        self._wake(last=True)

    def wake_longest(self) -> None:
        """Wake the slot that has slept longest."""
        self._wake(last=False)

    async def _park(self, slot: Slot) -> None:
        self._tasks[slot] = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            del self._tasks[slot]
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def _wake(self, *, last: bool) -> None:
        _, task = self._tasks.popitem(last=last)
        trio.lowlevel.reschedule(task)
