"""A random schedule: callers of all kinds, who leave, run late or fail, in a lane that is drawn too.

Nothing is checked here that the stage does not check of every play: room and ceiling, turns, books, everything
answered, and all places there at the end. ``tests/laws/soak.py`` plays a million of them.
"""

from __future__ import annotations

import random

import trio

from embedkit import Circuit, LaneFull, ProviderBusy, ProviderFailure, ProviderTimeout
from embedkit.testing.caller import By, Caller, Step
from embedkit.testing.laws.retries import UpTo
from embedkit.testing.laws.scenario import Method, Options, Scenario
from embedkit.testing.stage import Stage
from embedkit.testing.trace import require

BY: tuple[By, ...] = ("own scope", "outer scope")


def mixture(seed: int, *, calls: frozenset[Method] = frozenset()) -> Scenario:
    """The schedule of ``seed``.

    Args:
        seed: Of everything that is drawn.
        calls: The methods that the lane has besides those that it must have; they are used.
    """
    draw = random.Random(seed)  # noqa: S311  # a schedule, not a secret
    capacity = draw.choice((1, 1, 2, 3, 4))
    options = Options(
        capacity=capacity,
        reserve=draw.choice((0, 0, 1, 2)),
        lead=draw.choice((0.0, 2.0, 30.0)),
        batch_share=draw.choice((1.0, 0.5, 3.0)),
        max_queued=draw.choice((1, 2, 4, 1024)),
        retry=UpTo(draw.choice((1, 1, 2, 3)), delay=draw.choice((0.0, 0.5, 2.0))),
    )
    ending = draw.choice(("runs dry", "runs dry", "runs dry", "is tripped", "is closed", "ends with its engine"))

    async def play(stage: Stage) -> None:
        circuits = [Circuit(), Circuit()]
        await _bring_on(stage, random.Random(seed + 1), circuits, calls)  # noqa: S311
        if ending == "is tripped":
            circuits[0].trip(ProviderTimeout("another's"))
        elif ending == "is closed":
            stage.close()
            stage.check_written(stage.totals.queued == 0, "the lane is closed, and tickets are queued")
        elif ending == "ends with its engine":
            stage.end_engine()
        await stage.run_dry()
        await trio.sleep(5.0)  # until no hint holds the lane any more
        for caller in stage.everybody:
            _check_fate(caller)

    name = f"schedule {seed}: {capacity} units, {options.reserve} reserved, and it {ending}"
    return Scenario(6, name, play, options, conserves=True, calls=calls)


async def _bring_on(stage: Stage, draw: random.Random, circuits: list[Circuit], calls: frozenset[Method]) -> None:
    first = stage.capacity or 1
    for number in range(draw.choice((5, 10, 10, 20, 40))):
        _offer(stage, draw, number, circuits, calls)
        for _ in range(draw.randrange(4)):
            await trio.lowlevel.checkpoint()
        if draw.random() < 0.3:
            stage.cancel(draw.choice(stage.everybody), draw.choice(BY))
        if draw.random() < 0.25:
            await trio.sleep(draw.choice((0.25, 0.5, 1.0)))
        if "refresh" in calls and draw.random() < 0.1:
            stage.resize(draw.choice((1, 2, 3, 5)))
    if "refresh" in calls:
        stage.resize(first)


def _offer(stage: Stage, draw: random.Random, number: int, circuits: list[Circuit], calls: frozenset[Method]) -> None:
    steps = [_step(stage, draw) for _ in range(draw.choice((1, 1, 3)))]
    circuit = draw.choice((None, *circuits))
    stage.offer(
        str(number),
        *steps,
        by_nowait="run_nowait" in calls and draw.random() < 0.3,
        priority=draw.choice(("interactive", "interactive", "batch", "batch", "probe")),
        weight=draw.choice((1, 1, 1, 2, 3)),
        tenant=draw.choice((None, "x", "y", "z")),
        timeout=draw.choice((None, None, 0.75, 5.0)),
        deadline_at=trio.current_time() + draw.choice((2.0, 1e6, 1e6, 1e6)),
        circuit=circuit,
        on_provider_timeout=None if circuit is None or draw.random() < 0.7 else circuit.trip,
    )


def _step(stage: Stage, draw: random.Random) -> Step:
    seconds = draw.choice((0.0, 0.5, 1.0, 2.5))

    def cancel_anybody() -> None:
        stage.cancel(draw.choice(stage.everybody), draw.choice(BY))

    at_end = cancel_anybody if draw.random() < 0.15 else None
    if_cut = draw.choice((None, None, OSError("reset"), ProviderTimeout("cut")))
    error = draw.choice(
        (
            None,
            None,
            None,
            ProviderFailure("no"),
            ProviderTimeout("late"),
            ProviderBusy("later", retry_after=draw.choice((None, 0.5, 1.5))),
            ZeroDivisionError("a bug"),
        )
    )
    return Step(seconds, error, draw.choice((0.0, 0.0, 0.5)), at_end, if_cut)


def _check_fate(caller: Caller) -> None:
    """Each got what its own last call came to, or a reason why there was none."""
    if caller.value is not None:
        require(caller.value == caller.name, f"{caller.name} got the answer of {caller.value}")
        require(caller.endings[-1:] == ["value"], f"{caller.name} got an answer that its call did not give")
    elif caller.error is not None and caller.calls == 0:
        require(
            not isinstance(caller.error, LaneFull) or caller.by_nowait, f"{caller.name} waits, and gets {caller.fate}"
        )
    elif caller.error is not None and caller.endings[-1] == "value" and not caller.left:
        require(False, f"the call of {caller.name} answered, and it gets {caller.fate}")
