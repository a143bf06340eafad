"""Law 6. At every instant each offered ticket is in exactly one place.

The totals are added up between any two steps of any tasks, all through these scenarios.
"""

from __future__ import annotations

import trio

from embedkit import LaneClosed, LaneFull, ProviderTimeout
from embedkit.testing.books import ENDINGS as ENDINGS
from embedkit.testing.books import accounted as accounted
from embedkit.testing.caller import Caller
from embedkit.testing.laws.mixture import mixture
from embedkit.testing.laws.scenario import Law
from embedkit.testing.stage import Stage, answers, fails, hangs
from embedkit.testing.trace import require

LAW = Law(6)

for _seed in range(16):
    LAW.scenarios.append(mixture(_seed))
    LAW.scenarios.append(mixture(100 + _seed, calls=frozenset({"run_nowait"})))
    LAW.scenarios.append(mixture(200 + _seed, calls=frozenset({"refresh"})))


@LAW.scenario("closing sheds what is queued; what is out goes on", conserves=True)
async def closing(stage: Stage) -> None:
    """And nothing is taken any more."""
    first = await stage.park("A", answers(5.0))
    queued = [await stage.park(name) for name in "BCD"]
    stage.close()
    totals = stage.totals
    stage.check_written(totals.shed == 3, f"three tickets were queued as the lane closed; it says {totals}")
    await first.back.wait()
    stage.check_answered(first, at=5.0)
    for caller in queued:
        stage.check_error(caller, LaneClosed)
    late = await stage.park("E")
    stage.check_error(late, LaneClosed)
    stage.check_written(stage.totals.offered == 4, "a closed lane counts what it refuses as offered")


@LAW.scenario("the engine's nursery is cancelled", capacity=2, conserves=True)
async def engine_ends(stage: Stage) -> None:
    """What is out is unsettled, what is queued is shed, and nobody stays parked."""
    out = [await stage.park(name, hangs()) for name in "AB"]
    queued = [await stage.park(name) for name in "CDE"]
    stage.cancel(queued[-1])
    stage.end_engine()
    for caller in [*out, *queued]:
        await caller.back.wait()
    for caller in [*out, *queued[:2]]:
        stage.check_error(caller, LaneClosed)
    totals = stage.totals
    stage.check_written((totals.unsettled, totals.shed, totals.withdrawn) == (2, 2, 1), f"the lane says {totals}")


@LAW.scenario("the engine's nursery is cancelled while a call cannot be cut", conserves=True)
async def engine_ends_slowly(stage: Stage) -> None:
    """As one in a thread. Nothing is sent meanwhile; who is queued hears at once, and who comes is refused."""
    first = await stage.park("A", answers(100.0, closing=30.0))
    queued = [await stage.park(name) for name in "BC"]
    await trio.sleep(1.0)
    stage.end_engine()
    await stage.rest()
    for caller in queued:
        require(
            caller.back_at == 1.0, f"the engine ended at 1 s; {caller.name}, queued, is back at {caller.back_at:g} s"
        )
        stage.check_error(caller, LaneClosed)
    late = await stage.park("D")
    stage.check_error(late, LaneClosed)
    await first.back.wait()


@LAW.scenario("the engine's nursery is cancelled between two attempts, and in an idle lane", conserves=True)
async def engine_ends_idle(stage: Stage) -> None:
    """Nobody waits for what will not come."""
    await (await stage.park("A")).back.wait()
    stage.end_engine()
    await stage.rest()
    late = await stage.park("B")
    stage.check_error(late, LaneClosed)


def _each_moment(rounds: int) -> None:
    @LAW.scenario(f"the engine's nursery is cancelled {rounds} steps after offers", capacity=3, conserves=True)
    async def engine_ends_then(stage: Stage) -> None:
        await (await stage.park("A")).back.wait()
        await stage.rest()
        callers = [stage.offer(name) for name in "BC"]
        for _ in range(rounds):
            await trio.lowlevel.checkpoint()
        stage.end_engine()
        for caller in callers:
            await caller.back.wait()

    @LAW.scenario(
        f"the engine's nursery is cancelled {rounds} steps after the capacity has grown",
        calls=("refresh",),
        conserves=True,
    )
    async def engine_ends_grown(stage: Stage) -> None:
        await stage.park("A", answers(10.0))
        caller = await stage.park("B")
        stage.resize(3)
        for _ in range(rounds):
            await trio.lowlevel.checkpoint()
        stage.end_engine()
        await caller.back.wait()


for _rounds in range(5):
    _each_moment(_rounds)


@LAW.scenario(
    "the engine's nursery is cancelled in the step in which others left and made room",
    capacity=4,
    needs=("weights",),
    conserves=True,
)
async def engine_ends_as_others_leave(stage: Stage) -> None:
    """Whoever was woken for that finds the lane closed."""
    for name in "ab":  # so that there is more than one to be woken
        stage.offer(name)
    await stage.run_dry()
    await stage.park("A", answers(10.0), weight=3)
    wide = await stage.park("wide", weight=2)
    small = await stage.park("small")
    others = [await stage.park(name) for name in "cd"]
    for caller in (wide, *others):
        stage.cancel(caller)
    stage.end_engine()
    await small.back.wait()
    stage.check_never_called(small, "was queued as the engine ended")


@LAW.scenario("the lane is closed by what happens as a call ends", conserves=True)
async def closed_at_end(stage: Stage) -> None:
    """Nothing is taken after that."""
    first = await stage.park("A", answers(at_end=stage.close))
    queued = [await stage.park(name) for name in "BC"]
    await first.back.wait()
    stage.check_answered(first)
    await stage.rest()
    for caller in queued:
        stage.check_error(caller, LaneClosed)


@LAW.scenario("more callers than there is room to wait", max_queued=2, conserves=True)
async def outside(stage: Stage) -> None:
    """Those who wait for room are queued, in order, and may leave."""
    await stage.park("A", answers(2.0))
    callers = [await stage.park(name) for name in "BCDEF"]
    stage.check_written(stage.totals.queued == 5, f"five callers wait; the lane says {stage.totals.queued}")
    for leaver in (callers[1], callers[3]):
        stage.cancel(leaver)
    stage.check_written(stage.totals.queued == 3, f"three callers wait; the lane says {stage.totals.queued}")
    for caller in callers:
        await caller.back.wait()
    stage.check_order("A", "B", "D", "F")


@LAW.scenario("more callers than there is room to wait, and the lane is closed", max_queued=2, conserves=True)
async def outside_closed(stage: Stage) -> None:
    """Those who wait for room hear of it as well."""
    await stage.park("A", answers(2.0))
    callers = [await stage.park(name) for name in "BCDEF"]
    stage.close()
    await stage.rest()
    for caller in callers:
        stage.check_error(caller, LaneClosed)


@LAW.scenario(
    "each tenant of a class has places of its own to wait", max_queued=1, needs=("tenants",), calls=("run_nowait",)
)
async def places(stage: Stage) -> None:
    """One that fills its own keeps nobody else out."""
    await stage.park("A", answers(5.0))
    waiting = [
        await stage.park(f"{tenant} {priority}", tenant=tenant, priority=priority, by_nowait=True)
        for tenant in "xy"
        for priority in ("interactive", "batch")
    ]
    for caller in waiting:
        require(not caller.back.is_set(), f"{caller.name} was to wait, and comes back with {caller.fate}")
    full = await stage.park("another of x", tenant="x", by_nowait=True)
    stage.check_error(full, LaneFull)
    stage.check_written(stage.totals.offered == 5, "a ticket that was refused is counted as offered")


@LAW.scenario("a place to wait is free once its ticket is dispatched or shed", max_queued=1, calls=("run_nowait",))
async def places_again(stage: Stage) -> None:
    """However it left."""
    await stage.park("A", fails(ProviderTimeout("late")))
    for number in range(6):
        caller = await stage.park(str(number), by_nowait=True)
        require(not caller.back.is_set(), f"the place is free, and {number} comes back with {caller.fate}")
        await trio.sleep(1.0)


def _each_growth(weight: int) -> None:
    @LAW.scenario(
        f"the capacity changes, and tickets weigh {weight}",
        capacity=2 * weight,
        needs=() if weight == 1 else ("weights",),
        calls=("refresh",),
    )
    async def grows(stage: Stage) -> None:
        callers = [await stage.park(str(number), answers(10.0), weight=weight) for number in range(12)]
        await trio.sleep(1.0)
        stage.resize(5 * weight)
        await stage.rest()
        _check_out(callers, 5, "it grew from 2 to 5")
        await trio.sleep(1.0)
        stage.resize(weight)
        await trio.sleep(9.5)  # all five have ended
        _check_out(callers, 1, "it shrank to 1")
        stage.resize(3 * weight)
        await stage.rest()
        _check_out(callers, 3, "it grew again, to 3")
        await stage.run_dry()
        for caller in callers:
            stage.check_answered(caller)


def _check_out(callers: list[Caller], expected: int, why: str) -> None:
    out = sum(caller.is_out for caller in callers)
    require(out == expected, f"the capacity: {why} tickets; {out} calls are out")


_each_growth(1)
_each_growth(2)


@LAW.scenario("the capacity shrinks and grows in an idle lane", capacity=4, calls=("refresh",), conserves=True)
async def idle_changes(stage: Stage) -> None:
    """Slots that retire, and those that come, lose nobody."""
    for rounds, capacity in enumerate((1, 3, 1, 2, 4, 1, 4)):
        await stage.run_dry()
        stage.resize(capacity)
        for number in range(rounds % 3):
            stage.offer(f"{rounds}.{number}")
    await stage.run_dry()
