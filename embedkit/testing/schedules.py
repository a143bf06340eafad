"""Runs a scenario in virtual time, under a schedule that can be repeated, and never for ever.

trio runs the tasks of one step in an order that it draws, so that no program comes to depend on it. With hypothesis
imported it shuffles them; without, it reverses half of the batches. Either way it draws from one generator, which is
seeded here: the same seed gives the same interleaving.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import trio
from trio.testing import MockClock

STEPS_AT_ONE_INSTANT = 20_000


class Watch(trio.abc.Instrument):
    """Looks after every task's step: for tasks that run and run while no time passes, and for what it is asked.

    Args:
        after_step: Called between any two steps of tasks; must not raise.
    """

    def __init__(self, after_step: Callable[[], None] = lambda: None) -> None:
        self.after_step = after_step
        self.spins = False
        self.scope: trio.CancelScope | None = None
        self._instant = -1.0
        self._steps = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """See ``trio.abc.Instrument``."""
        now = trio.current_time()
        if now != self._instant:
            self._instant, self._steps = now, 0
        self._steps += 1
        if self._steps > STEPS_AT_ONE_INSTANT and self.scope is not None:
            self.spins = True
            self.scope.cancel()
        self.after_step()


def run_scenario(main: Callable[[MockClock], Awaitable[None]], seed: int, watch: Watch) -> None:
    """``trio.run(main)`` from virtual time 0, with the schedule of ``seed``."""
    seed_schedule(seed)
    clock = MockClock(autojump_threshold=0)
    trio.run(main, clock, clock=clock, instruments=[watch])


def seed_schedule(seed: int) -> None:
    """Make the order in which trio runs the tasks of a step that of ``seed``."""
    # Not in trio's public surface. Where a later trio has it no more, schedules still vary, and cannot be repeated.
    generator = getattr(trio._core._run, "_r", None)
    if isinstance(generator, random.Random):
        generator.seed(seed)
