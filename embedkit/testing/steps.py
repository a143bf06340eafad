"""Cancels a call at each of its awaits in turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio


async def cancelled_after(steps: int, call: Callable[[], Awaitable[object]]) -> tuple[bool, bool]:
    """Cancel ``call()`` after so many steps of its task; whether it ended all the same, and whether it took so many."""
    with trio.CancelScope() as scope:
        counter = _StepCounter(trio.lowlevel.current_task(), steps, scope)
        trio.lowlevel.add_instrument(counter)
        try:
            await call()
        finally:
            trio.lowlevel.remove_instrument(counter)
        return True, counter.left <= 0
    return False, True


class _StepCounter(trio.abc.Instrument):
    def __init__(self, task: trio.lowlevel.Task, steps: int, scope: trio.CancelScope) -> None:
        self._task = task
        self.left = steps
        self._scope = scope

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._task:
            self.left -= 1
            if self.left == 0:
                self._scope.cancel()
