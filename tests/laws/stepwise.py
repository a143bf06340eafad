"""trio, a step at a time: for drivers that are not async themselves, such as a hypothesis state machine.

It is a guest run whose host runs only as many of trio's ticks as it is asked to. Between two commands trio stands
still, with whatever it had scheduled not yet run: a driver can put a cancellation exactly between a wake-up and the
step that it leads to. One task is always ready to run, so that trio never goes to a thread to wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeVar

import outcome
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

T = TypeVar("T")


class Stepwise:
    """A run of trio in virtual time. ``end`` must be called.

    Attributes:
        clock: It stands still, too.
        root: A nursery that lasts as long as the run.
    """

    root: trio.Nursery

    def __init__(self) -> None:
        self.clock = MockClock()
        self._ticks: deque[Callable[[], object]] = deque()
        self._command: Callable[[], None] | None = None
        self._resting = False
        self._ended = False
        self._outcome: outcome.Outcome[None] | None = None
        trio.lowlevel.start_guest_run(
            self._main,
            run_sync_soon_threadsafe=self._ticks.append,
            run_sync_soon_not_threadsafe=self._ticks.append,
            done_callback=self._done,
            clock=self.clock,
            host_uses_signal_set_wakeup_fd=True,
        )
        self.do(lambda: None)

    def do(self, command: Callable[[], T]) -> T:
        """What ``command`` returns or raises, called in a task of the run. It is the next that this task does; of the
        other tasks some may take a step before it, in the same tick.
        """
        results: list[outcome.Outcome[T]] = []
        self._command = lambda: results.append(outcome.capture(command))
        while not results:
            self._tick()
        return results[0].unwrap()

    def rounds(self, count: int) -> None:
        """Let every task that can run take ``count`` steps."""
        for _ in range(count):
            self._tick()

    def rest(self) -> None:
        """Let tasks run until none can."""
        self._resting = True
        while self._resting:
            self._tick()

    def end(self) -> None:
        """End the run, and raise what came out of it."""
        self._ended = True
        while self._outcome is None:
            self._tick()
        self._outcome.unwrap()

    def _tick(self) -> None:
        if self._outcome is not None and not self._ended:
            self._outcome.unwrap()
            raise AssertionError("the run has ended")
        self._ticks.popleft()()

    async def _main(self) -> None:
        async with trio.open_nursery() as self.root:
            while not self._ended:
                if self._command is not None:
                    command, self._command = self._command, None
                    command()
                elif self._resting:
                    await wait_all_tasks_blocked()
                    self._resting = False
                else:
                    await trio.lowlevel.checkpoint()
            self.root.cancel_scope.cancel()

    def _done(self, result: outcome.Outcome[None]) -> None:
        self._outcome = result
