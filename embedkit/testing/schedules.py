"""Runs a scenario in virtual time, under a schedule that can be repeated, and never for ever.

trio runs the tasks of one step in an order that it draws, so that no program comes to depend on it. With hypothesis
imported it shuffles them; without, it reverses half of the batches. Either way it draws from one generator, which is
seeded here: the same seed gives the same interleaving.

A lane under test may spin, poll, shield its callers, or swallow Cancelled. So the run is a guest of a loop that can
stop asking it to go on. It gives up in three steps: it cancels everything; it lifts every shield; it leaves the run
where it stands. Only code that never comes to a checkpoint can hold that loop up.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator

import outcome
import trio
from trio.testing import MockClock

STEPS_AT_ONE_INSTANT = 20_000
STEPS = 60_000
REAL_SECONDS = 15.0
# Turns of the loop that a cancelled run has to end in; a clean one needs some dozens.
GRACE = 5_000
# Runs that nothing could end, or that ended in the middle of a step. Kept, since collecting one would throw
# GeneratorExit into each of its tasks.
_LEFT: list[object] = []


class Watch(trio.abc.Instrument):
    """Looks after every task's step: for tasks that run and run, and for what it is asked.

    Args:
        after_step: Called between any two steps of tasks; must not raise.

    Attributes:
        scope: Around the whole run; cancelled to give up.
        given_up: Why, in words; ``None``: it ended by itself.
        is_ending: The run has cancelled all that is left of it, and ends on its own.
        was_stuck: It did not end though everything was cancelled.
    """

    def __init__(self, after_step: Callable[[], None] = lambda: None) -> None:
        self.after_step = after_step
        self.scope: trio.CancelScope | None = None
        self.given_up: str | None = None
        self.was_stuck = False
        self.is_ending = False
        self._instant = -1.0
        self._here = 0
        self._steps = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """See ``trio.abc.Instrument``."""
        now = trio.current_time()
        if now != self._instant:
            self._instant, self._here = now, 0
        self._here += 1
        self._steps += 1
        if self._here > STEPS_AT_ONE_INSTANT:
            self.give_up("tasks run and run at one instant: the lane spins, and no time passes")
        elif self._steps > STEPS:
            self.give_up(f"no end after {STEPS} steps of tasks, at {now:g} s of virtual time: does the lane poll?")
        self.after_step()

    def give_up(self, why: str) -> None:
        """End the run, for this reason."""
        if self.given_up is None and self.scope is not None:
            self.given_up = why
            self.scope.cancel()


def run_scenario(
    main: Callable[[MockClock], Awaitable[None]], seed: int, watch: Watch, *, real_seconds: float = REAL_SECONDS
) -> None:
    """``trio.run(main)`` from virtual time 0, with the schedule of ``seed``, in bounded real time.

    Args:
        main: Sets ``watch.scope`` before its first checkpoint.
        seed: Of the schedule.
        watch: Is told if the run does not end by itself.
        real_seconds: How long it may take.
    """
    seed_schedule(seed)
    _Guest(main, watch, real_seconds).run()


def seed_schedule(seed: int) -> None:
    """Make the order in which trio runs the tasks of a step that of ``seed``."""
    # Not in trio's public surface. Where a later trio has it no more, schedules still vary, and cannot be repeated.
    generator = getattr(trio._core._run, "_r", None)
    if isinstance(generator, random.Random):
        generator.seed(seed)


class _Guest:
    """A run whose loop is ours."""

    def __init__(self, main: Callable[[MockClock], Awaitable[None]], watch: Watch, real_seconds: float) -> None:
        self._main = main
        self._watch = watch
        self._ends_at = time.perf_counter() + real_seconds
        self._real_seconds = real_seconds
        self._ticks: deque[Callable[[], object]] = deque()
        self._outcome: outcome.Outcome[None] | None = None

    def run(self) -> None:
        clock = MockClock(autojump_threshold=0)
        trio.lowlevel.start_guest_run(
            self._note_token,
            clock,
            run_sync_soon_threadsafe=self._ticks.append,
            run_sync_soon_not_threadsafe=self._ticks.append,
            done_callback=self._done,
            clock=clock,
            instruments=[self._watch],
            host_uses_signal_set_wakeup_fd=True,
        )
        watch = self._watch
        while watch.given_up is None and self._turn():
            if watch.is_ending:
                if self._ends_in_time():
                    break
                watch.given_up = "the play is over, and the lane does not end"
            elif time.perf_counter() > self._ends_at:
                self._in_the_run(lambda: watch.give_up(f"no end within {self._real_seconds:g} s of real time"))
        if self._outcome is None and not self._ends_in_time():
            watch.was_stuck = True
            self._in_the_run(_lift_shields)
            if not self._ends_in_time():
                self._leave()
        if isinstance(self._outcome, outcome.Error) and isinstance(self._outcome.error, trio.TrioInternalError):
            _LEFT.append(self)  # trio has come to grief in mid-step, and what it leaves would be collected
        if self._outcome is not None:
            self._outcome.unwrap()

    def _turn(self) -> bool:
        """One turn; whether there is another."""
        if self._ticks:
            self._ticks.popleft()()
        else:
            time.sleep(0.001)  # a thread has the next
        return self._outcome is None

    def _ends_in_time(self) -> bool:
        return not all(self._turn() for _ in range(GRACE))

    def _in_the_run(self, what: Callable[[], object]) -> None:
        self._token.run_sync_soon(what)
        for _ in range(20):
            if not self._turn():
                return

    def _leave(self) -> None:
        """Nothing ends it. What trio keeps of this thread's run must go, or there could be no other."""
        _LEFT.append(self)
        context = getattr(trio._core._run, "GLOBAL_RUN_CONTEXT", None)
        if context is not None:
            context.__dict__.clear()

    async def _note_token(self, clock: MockClock) -> None:
        self._token = trio.lowlevel.current_trio_token()
        await self._main(clock)

    def _done(self, result: outcome.Outcome[None]) -> None:
        self._outcome = result


def _lift_shields() -> None:
    for task in _below(trio.lowlevel.current_root_task()):
        # Not in trio's public surface: the scopes that a task is in, from the innermost.
        status = getattr(task, "_cancel_status", None)
        while status is not None:
            scope = getattr(status, "_scope", None)
            if isinstance(scope, trio.CancelScope) and scope.shield:
                scope.shield = False
            status = getattr(status, "_parent", None)


def _below(task: trio.lowlevel.Task | None) -> Iterator[trio.lowlevel.Task]:
    if task is not None:
        yield task
        for nursery in task.child_nurseries:
            for child in tuple(nursery.child_tasks):
                yield from _below(child)
