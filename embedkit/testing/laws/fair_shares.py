"""Law 4. Engine time is shared fairly between classes and tenants; people go first, up to their lead."""

from __future__ import annotations

from embedkit.testing.laws.scenario import Law
from embedkit.testing.stage import Caller, Stage, answers
from embedkit.testing.trace import require

LAW = Law(4)


async def _park_all(stage: Stage, *names: str, seconds: float = 1.0, weight: int = 1) -> list[Caller]:
    """Callers whose class is their name's first letter: i, b or p."""
    classes = {"i": "interactive", "b": "batch", "p": "probe"}
    return [await stage.park(name, answers(seconds), priority=classes[name[0]], weight=weight) for name in names]


async def _all_back(callers: list[Caller]) -> None:
    for caller in callers:
        await caller.back.wait()


@LAW.scenario("first come first served within a class")
async def fifo(stage: Stage) -> None:
    """And a withdrawal changes no places."""
    await stage.park("blocker")
    callers = await _park_all(stage, "i1", "i2", "i3", "i4")
    stage.cancel(callers[1])
    await _all_back(callers)
    batch = await _park_all(stage, "b1", "b2", "b3")
    await _all_back(batch)
    stage.check_order("blocker", "i1", "i3", "i4", "b1", "b2", "b3")


@LAW.scenario("if whose turn it is does not fit, nobody overtakes it", capacity=2)
async def wide(stage: Stage) -> None:
    """Small tickets behind a wide one wait, however well they would fit."""
    await stage.park("a", answers(1.0))
    await stage.park("b", answers(3.0))
    await _all_back([await stage.park("wide", weight=2), await stage.park("small1"), await stage.park("small2")])
    require(stage.order[:3] == ["a", "b", "wide"], f"the order of dispatch is {stage.order}: somebody passed 'wide'")


@LAW.scenario("a ticket wider than the lane runs alone", capacity=2)
async def wider(stage: Stage) -> None:
    """It is admitted once the lane is idle."""
    await stage.park("a", answers(2.0))
    widest = await stage.park("widest", answers(2.0), weight=5)
    behind = await stage.park("b")
    await _all_back([widest, behind])
    require(widest.began_at == [2.0], f"the lane was idle at 2 s; the widest began at {widest.began_at}")
    require(behind.began_at == [4.0], f"something ran beside a ticket wider than the lane: it began {behind.began_at}")


@LAW.scenario("batch work leaves the reserve to people", capacity=4, reserve=1)
async def ceiling(stage: Stage) -> None:
    """Over all batch callers together."""
    batch = await _park_all(stage, "b1", "b2", seconds=10.0, weight=2)
    require(stage.order == ["b1"], f"a ceiling of 3 let in {stage.order}, of weight 2 each")
    (person,) = await _park_all(stage, "i1", weight=2)
    require(person.calls == 1, "a person found no room in what batch work must leave free")
    await _all_back([*batch, person])


@LAW.scenario("a tenant with much work does not hold up one with little")
async def tenants(stage: Stage) -> None:
    """The head is chosen by fair share."""
    for number in range(30):
        await stage.park(f"big{number}", priority="batch", tenant="big")
    small = [await stage.park(f"small{number}", priority="batch", tenant="small") for number in range(3)]
    await _all_back(small)
    require(small[-1].back_at <= 8.0, f"three tickets of a second tenant took until {small[-1].back_at:g} s")
