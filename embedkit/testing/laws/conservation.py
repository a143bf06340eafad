"""Law 6. At every instant each offered ticket is in exactly one place.

The totals are added up between any two steps of any tasks, all through these scenarios.
"""

from __future__ import annotations

import random

import trio

from embedkit import Circuit, LaneClosed, ProviderFailure, ProviderTimeout
from embedkit.testing.lane_under_test import TotalsUnderTest
from embedkit.testing.laws.scenario import Law
from embedkit.testing.stage import Caller, Stage, Step, answers, fails, hangs
from embedkit.testing.trace import require

LAW = Law(6)
ENDINGS = ("succeeded", "failed", "withdrawn", "shed", "aborted", "unsettled")


def accounted(totals: TotalsUnderTest) -> int:
    """The right side of the law."""
    return totals.queued + totals.in_flight + sum(int(getattr(totals, word)) for word in ENDINGS)


def _step(draw: random.Random) -> Step:
    seconds = draw.choice((0.5, 1.0, 2.5))
    return draw.choice(
        (
            answers(seconds),
            answers(seconds, closing=0.5),
            fails(ProviderFailure("no"), seconds),
            fails(ProviderTimeout("late"), seconds),
        )
    )


async def _mixture(stage: Stage, seed: int, circuit: Circuit) -> list[Caller]:
    """Forty callers of all kinds; some are cancelled, one way or the other, at any moment."""
    draw = random.Random(seed)  # noqa: S311  # a schedule, not a secret
    callers: list[Caller] = []
    for number in range(40):
        caller = stage.offer(
            str(number),
            _step(draw),
            priority=draw.choice(("interactive", "batch", "probe")),
            weight=draw.choice((1, 1, 2)),
            tenant=draw.choice("xyz"),
            deadline_at=trio.current_time() + draw.choice((2.0, 1000.0, 1000.0)),
            circuit=circuit if number % 2 else None,
        )
        callers.append(caller)
        for _ in range(draw.randrange(4)):
            await trio.lowlevel.checkpoint()
        if draw.random() < 0.3:
            stage.cancel(draw.choice(callers), draw.choice(("own scope", "outer scope")))
        if draw.random() < 0.2:
            await trio.sleep(draw.choice((0.5, 1.0)))
    return callers


def _check_ended(stage: Stage, callers: list[Caller]) -> None:
    for caller in callers:
        require(caller.back.is_set(), f"{caller.name} is still parked")
    totals = stage.totals
    require((totals.queued, totals.in_flight) == (0, 0), f"all is over; the lane says {totals}")


def _each_seed(seed: int) -> None:
    @LAW.scenario(f"a mixture runs to its end ({seed})", capacity=3, reserve=1, max_queued=4, conserves=True)
    async def to_the_end(stage: Stage) -> None:
        callers = await _mixture(stage, seed, Circuit())
        await trio.sleep(1000.0)
        _check_ended(stage, callers)
        answered = sum(caller.value is not None for caller in callers)
        totals = stage.totals
        require(totals.succeeded >= answered, f"{answered} callers have answers; {totals.succeeded} succeeded")
        require(totals.unsettled == 0, "nothing was cut off, and the lane counts unsettled tickets")

    @LAW.scenario(f"a mixture is tripped and then closed ({seed})", capacity=2, max_queued=4, conserves=True)
    async def tripped(stage: Stage) -> None:
        circuit = Circuit()
        callers = await _mixture(stage, seed, circuit)
        circuit.trip(ProviderTimeout("another's"))
        await stage.rest()
        stage.lane.close()
        require(stage.totals.queued == 0, "the lane is closed, and tickets are queued")
        await trio.sleep(100.0)
        _check_ended(stage, callers)


for _seed in range(4):
    _each_seed(_seed)


@LAW.scenario("closing sheds what is queued; what is out goes on", conserves=True)
async def closing(stage: Stage) -> None:
    """And nothing is taken any more."""
    first = await stage.park("A", answers(5.0))
    queued = [await stage.park(name) for name in "BCD"]
    stage.lane.close()
    require(stage.totals.shed == 3, f"three tickets were queued as the lane closed; {stage.totals.shed} were shed")
    await first.back.wait()
    stage.check_answered(first, at=5.0)
    for caller in queued:
        stage.check_error(caller, LaneClosed)
    late = await stage.park("E")
    stage.check_error(late, LaneClosed)
    require(stage.totals.offered == 4, "a closed lane counts what it refuses as offered")
    _check_ended(stage, [first, *queued, late])


@LAW.scenario("the engine's nursery is cancelled", capacity=2, conserves=True)
async def engine_ends(stage: Stage) -> None:
    """What is out is unsettled, what is queued is shed, and nobody stays parked."""
    out = [await stage.park(name, hangs()) for name in "AB"]
    queued = [await stage.park(name) for name in "CDE"]
    stage.cancel(queued[-1])
    stage.end_engine()
    for caller in [*out, *queued]:
        await caller.back.wait()
    totals = stage.totals
    require((totals.unsettled, totals.shed, totals.withdrawn) == (2, 2, 1), f"the lane says {totals}")
    _check_ended(stage, [*out, *queued])


@LAW.scenario("more callers than there is room to wait", max_queued=2, conserves=True)
async def outside(stage: Stage) -> None:
    """Those who wait for room are queued, in order, and may leave."""
    await stage.park("A", answers(2.0))
    callers = [await stage.park(name) for name in "BCDEF"]
    require(stage.totals.queued == 5, f"five callers wait; the lane says {stage.totals.queued}")
    for leaver in (callers[1], callers[3]):
        stage.cancel(leaver)
    require(stage.totals.queued == 3, f"three callers wait; the lane says {stage.totals.queued}")
    for caller in callers:
        await caller.back.wait()
    stage.check_order("A", "B", "D", "F")
