"""Where a lane's idle slots sleep, holding nothing. A wake-up says only "look again"."""

from __future__ import annotations

import math
from collections import OrderedDict

import trio

from embedkit.admission.slot import Slot


class Resting:
    """Sleeping slots, in the order in which they fell asleep."""

    def __init__(self) -> None:
        # Read by the lane, which asks at each offer whether anybody sleeps; written here alone.
        self.tasks: OrderedDict[Slot, trio.lowlevel.Task] = OrderedDict()

    async def sleep(self, slot: Slot, until: float = math.inf) -> None:
        """Sleep until somebody wakes ``slot``, or until an instant. One that has just passed ends it at once.

        No clock is read here: whoever decided to sleep has read it, and by a second reading the instant may have
        passed, of which nobody would tell.

        Cancellation:
            It was asleep, or its wake-up is lost: whoever is cancelled in between passes it on.
        """
        slot.rest()
        self.tasks[slot] = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            del self.tasks[slot]
            return trio.lowlevel.Abort.SUCCEEDED

        if until == math.inf:
            await trio.lowlevel.wait_task_rescheduled(abort)
        else:
            with trio.move_on_at(until):
                await trio.lowlevel.wait_task_rescheduled(abort)

    def wake(self) -> None:
        """Wake the slot that fell asleep last: its connection is the one most likely still open."""
        self._wake(last=True)

    def wake_longest(self) -> None:
        """Wake the slot that has slept longest."""
        self._wake(last=False)

    def _wake(self, *, last: bool) -> None:
        _, task = self.tasks.popitem(last=last)
        trio.lowlevel.reschedule(task)
