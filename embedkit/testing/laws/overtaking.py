"""Law 4. People first, but one batch head is overtaken at most so often, and not at all once it is old."""

from __future__ import annotations

import trio

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


@LAW.scenario("one overtake: blocker, interactive, batch, interactive")
async def one(stage: Stage) -> None:
    """The default bound."""
    await stage.park("blocker")
    await _all_back(await _park_all(stage, "batch", "i1", "i2"))
    stage.check_order("blocker", "i1", "batch", "i2")


@LAW.scenario("three overtakes", max_overtakes=3)
async def three(stage: Stage) -> None:
    """A bound of three."""
    await stage.park("blocker")
    await _all_back(await _park_all(stage, "batch", "i1", "i2", "i3", "i4"))
    stage.check_order("blocker", "i1", "i2", "i3", "batch", "i4")


@LAW.scenario("no overtakes", max_overtakes=0)
async def none(stage: Stage) -> None:
    """A bound of none."""
    await stage.park("blocker")
    await _all_back(await _park_all(stage, "batch", "i1"))
    stage.check_order("blocker", "batch", "i1")


@LAW.scenario("people never stop coming; the k-th batch ticket is overtaken at most k times")
async def polling(stage: Stage) -> None:
    """A closed loop of pollers that keeps somebody waiting all the time."""
    await stage.park("blocker")
    batch = await _park_all(stage, *[f"b{number}" for number in range(1, 6)])
    people = [await stage.park(f"i{number}") for number in range(3)]
    while not batch[-1].back.is_set():
        await people.pop(0).back.wait()
        people.append(await stage.park(f"i{len(stage.order)}"))
    for number, caller in enumerate(batch, start=1):
        passed = sum(name.startswith("i") for name in stage.order[: stage.order.index(caller.name)])
        require(passed <= number, f"{caller.name} was overtaken {passed} times")


@LAW.scenario("a head that is old enough is overtaken by nobody", max_overtakes=9, max_age=5.0)
async def aged(stage: Stage) -> None:
    """The bound would allow more."""
    await stage.park("blocker", answers(6.0))
    await _all_back(await _park_all(stage, "batch", "i1", "i2"))
    stage.check_order("blocker", "batch", "i1", "i2")


@LAW.scenario("the successor of a head that left starts with bounds of its own", max_age=5.0)
async def successor(stage: Stage) -> None:
    """The first head is aged and overtaken, then withdrawn."""
    await stage.park("blocker", answers(4.0))
    callers = await _park_all(stage, "b1", "b2", "i1")
    await trio.sleep(4.5)
    leaving, *staying = callers
    stage.cancel(leaving)
    staying += await _park_all(stage, "i2", "i3", seconds=2.0)
    await _all_back(staying)
    stage.check_order("blocker", "i1", "i2", "b2", "i3")


@LAW.scenario("looking spends nothing", capacity=2)
async def peek(stage: Stage) -> None:
    """Whatever makes the lane look while nothing fits, the bound is spent on dispatches alone."""
    await stage.park("blocker", answers(3.0))
    callers = await _park_all(stage, "batch", "i1", weight=2)
    for number in range(10):
        passing = await stage.park(f"passing{number}")
        stage.cancel(passing)
    await _all_back(callers)
    stage.check_order("blocker", "i1", "batch")


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


@LAW.scenario(
    "a head that only the ceiling holds back blocks nobody, and is overtaken by nobody", capacity=2, reserve=1
)
async def held(stage: Stage) -> None:
    """People use the room that it could not."""
    batch = await _park_all(stage, "b1", "b2", seconds=4.5)
    for number in range(4):
        (person,) = await _park_all(stage, f"i{number}")
        await person.back.wait()
        require(person.back_at == number + 1.0, f"{person.name} waited although there was room for it alone")
    blocker, behind = await _park_all(stage, "i4", "i5")
    await _all_back([*batch, blocker, behind])
    # As b1 ends b2 would fit, and i5 may pass it: those before were no overtakes.
    stage.check_order("b1", "i0", "i1", "i2", "i3", "i4", "i5", "b2")


@LAW.scenario("one person behind a backlog waits for what is in flight, and one batch service", max_overtakes=1)
async def backlog(stage: Stage) -> None:
    """Batch work does not hold a person up."""
    await _park_all(stage, *[f"b{number}" for number in range(100)])
    await trio.sleep(10.5)
    (person,) = await _park_all(stage, "i")
    await person.back.wait()
    require(
        person.back_at <= 13.0, f"a person came at 10.5 s behind calls of 1 s, and was answered at {person.back_at}"
    )


@LAW.scenario("a tenant with much work does not hold up one with little")
async def tenants(stage: Stage) -> None:
    """The head is chosen by fair share."""
    for number in range(30):
        await stage.park(f"big{number}", priority="batch", tenant="big")
    small = [await stage.park(f"small{number}", priority="batch", tenant="small") for number in range(3)]
    await _all_back(small)
    require(small[-1].back_at <= 8.0, f"three tickets of a second tenant took until {small[-1].back_at:g} s")
