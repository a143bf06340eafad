"""Law 4. Engine time is shared fairly between classes and tenants; people go first, up to their lead.

The bound, as it is checked here. Take two flows of one level, and any span of time in which ``f`` waits all along.
What ``g`` receives in it, divided by its share, exceeds what ``f`` receives, divided by its own, by at most what
``f``'s offset is above ``g``'s (0, if it is below) and one service of each slot on either side. To receive is to have
a call out: weight times seconds. So a scenario needs to know of a lane only when calls begin and end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import trio

from embedkit import ProviderFailure
from embedkit.testing.caller import Caller, Step, answers, fails
from embedkit.testing.lane_under_test import Feature
from embedkit.testing.laws.scenario import Law
from embedkit.testing.stage import Stage
from embedkit.testing.trace import require

LAW = Law(4)
RATIOS = ((1.0, 1.0), (1.0, 20.0), (20.0, 1.0))
_CLASSES = {"i": "interactive", "b": "batch", "p": "probe"}


@attrs.define(eq=False)
class Flow:
    """Callers of one class and tenant, whose calls are alike.

    Attributes:
        name: For reports.
        callers: Those it brought on.
        service: Engine time of one call.
        share: What it is entitled to.
        offset: Of its class.
    """

    name: str
    service: float
    share: float = 1.0
    offset: float = 0.0
    callers: list[Caller] = attrs.field(factory=list)

    def received(self, since: float, until: float) -> float:
        """Engine time, divided by its share."""
        return sum(caller.received(since, until) for caller in self.callers) / self.share


async def _bring_on(stage: Stage, flow: Flow, count: int, seconds: float, **ticket: Any) -> None:
    for _ in range(count):
        name = f"{flow.name} {len(flow.callers) + 1}"
        flow.callers.append(stage.offer(name, answers(seconds), **ticket))
    await stage.rest()


def check_bound(stage: Stage, f: Flow, g: Flow, since: float, until: float, *, allowed: float | None = None) -> None:
    """The bound of the law, for every span within ``since`` and ``until``, in which ``f`` waits all along.

    Args:
        stage: Where they play.
        f: Who waits.
        g: Who is served.
        since: Instant.
        until: Instant.
        allowed: How much ``g`` may receive more, if not what the head of this file says.

    Raises:
        LawBroken: It was exceeded.
    """
    assert stage.capacity is not None
    if allowed is None:
        allowed = max(f.offset - g.offset, 0.0) + stage.capacity * (f.service / f.share + g.service / g.share)
    # What g is ahead, at each instant; its greatest rise is what no span may exceed.
    ahead = lowest = rate = 0.0
    last = since
    for at, change in sorted([*_changes(g, 1.0, since, until), *_changes(f, -1.0, since, until)]):
        ahead += rate * (at - last)
        rate += change
        last = at
        lowest = min(lowest, ahead)
        require(
            ahead - lowest <= allowed + 1e-6,
            f"while {f.name} waited, {g.name} received {ahead - lowest:g} s more of the engine than it, each by its "
            f"share; the bound is {allowed:g} s",
        )


def _changes(flow: Flow, sign: float, since: float, until: float) -> Iterator[tuple[float, float]]:
    """When a call of the flow begins or ends, and by how much it then receives more, in seconds a second."""
    for caller in flow.callers:
        weight = sign * caller.ticket.weight / flow.share
        ends = [*caller.ended_at, *[until] * (caller.calls - len(caller.ended_at))]
        for begin, end in zip(caller.began_at, ends, strict=True):
            if begin < until and end > since:
                yield max(begin, since), weight
                yield min(end, until), -weight


async def _until_served(stage: Stage, *flows: Flow) -> float:
    """Wait until all callers of one of the flows have been dispatched; until when all of them waited."""
    while all(any(not caller.calls for caller in flow.callers) for flow in flows):
        await stage.next_call()
    return trio.current_time()


# Between classes.


@LAW.scenario("people go first, up to their lead")
async def people_first(stage: Stage) -> None:
    """And then batch work before probes."""
    await stage.park("blocker", priority="batch")
    for name in ("p1", "b1", "i1", "p2", "b2", "i2", "i3"):
        await stage.park(name, priority=_CLASSES[name[0]])
    await stage.run_dry()
    stage.check_order("blocker", "i1", "i2", "i3", "b1", "b2", "p1", "p2")


@LAW.scenario("with no lead and equal services, batch work and people by turns", lead=0.0)
async def by_turns(stage: Stage) -> None:
    """After whatever was out as they came."""
    await stage.park("blocker")
    stage.order.clear()
    await _check_turns(stage)


async def _check_turns(stage: Stage) -> None:
    for number in range(1, 5):
        for name in (f"i{number}", f"b{number}"):
            await stage.park(name, priority=_CLASSES[name[0]])
    await stage.run_dry()
    by_turns = [[f"{kind}{number}" for number in range(1, 5) for kind in kinds] for kinds in ("ib", "bi")]
    require(stage.order in by_turns, f"not by turns: the order is {stage.order}")


def _each_ratio(people: float, batch: float, capacity: int, share: float) -> None:
    of_share = "" if share == 1.0 else f", a share of {share:g} for batch"

    @LAW.scenario(
        f"people of {people:g} s and batch work of {batch:g} s, {capacity} slots, and neither ceases{of_share}",
        capacity=capacity,
        lead=10.0,
        batch_share=share,
    )
    async def standing(stage: Stage) -> None:
        enough = 60.0 + 8 * capacity * (people + batch / share)
        persons = Flow("people", people, offset=-10.0)
        work = Flow("batch", batch, share=share)
        await _bring_on(stage, persons, int(capacity * enough / people) // capacity + 5, people)
        await _bring_on(stage, work, int(capacity * enough * share / batch) // capacity + 5, batch, priority="batch")
        since = trio.current_time()
        until = await _until_served(stage, persons, work)
        check_bound(stage, work, persons, since, until)
        check_bound(stage, persons, work, since, until)
        require(until - since >= enough / capacity / 2, f"one of the two was served alone, until {until:g} s")
        await _leave(stage)


async def _leave(stage: Stage) -> None:
    """What was to be seen has been seen."""
    for caller in stage.everybody:
        if not caller.calls:
            stage.cancel(caller, "outer scope")
    await stage.run_dry()


for _people, _batch in RATIOS:
    for _capacity in (1, 3):
        _each_ratio(_people, _batch, _capacity, 1.0)
_each_ratio(1.0, 1.0, 1, 0.25)
_each_ratio(2.0, 3.0, 1, 4.0)


@LAW.scenario("a stream of people that never ceases, and one batch ticket", lead=30.0)
async def stream(stage: Stage) -> None:
    """It is served after the lead and one service at most, however long the stream has been going."""
    persons = Flow("people", 1.0)
    await _bring_on(stage, persons, 250, 1.0)
    for before in (0.0, 50.0):
        await trio.sleep(before)
        offered = trio.current_time()
        single = await stage.park(f"b after {before:g} s", answers(2.0), priority="batch")
        await single.back.wait()
        waited = single.began_at[0] - offered
        # The call that is out as it comes, the lead, and the service in which the lead runs out.
        require(waited <= 32.0, f"one batch ticket waited {waited:g} s; the lead is 30 s, and a person's service 1 s")
        require(waited >= 29.0, f"people have a lead of 30 s, and a batch ticket was served after {waited:g} s")
    await _leave(stage)


@LAW.scenario("batch work that never ceases, and one person", capacity=2)
async def single_person(stage: Stage) -> None:
    """Waits for no more than the calls that are out."""
    work = Flow("batch", 20.0)
    await _bring_on(stage, work, 20, 20.0, priority="batch")
    for number in range(4):
        await trio.sleep(25.0)
        person = await stage.park(f"i{number}")
        await person.back.wait()
        waited = person.began_at[0] - person.offered_at
        require(waited <= 20.0, f"a person who needs 1 s of the engine waited {waited:g} s behind batch calls of 20 s")
    await _leave(stage)


@LAW.scenario("batch work that never ceases, and one probe", lead=5.0)
async def single_probe(stage: Stage) -> None:
    """Batch goes before probes as people go before batch: up to the lead."""
    work = Flow("batch", 1.0)
    await _bring_on(stage, work, 40, 1.0, priority="batch")
    await trio.sleep(10.0)
    probe = await stage.park("p", priority="probe")
    await probe.back.wait()
    waited = probe.began_at[0] - probe.offered_at
    require(waited <= 7.0, f"a probe waited {waited:g} s; the lead of batch work is 5 s")
    require(waited >= 4.0, f"batch work has a lead of 5 s before probes, and one was served after {waited:g} s")
    await _leave(stage)


@LAW.scenario("probes that never cease, and a batch ticket and a person", lead=5.0)
async def probes(stage: Stage) -> None:
    """They hold up neither."""
    asking = Flow("probes", 2.0)
    await _bring_on(stage, asking, 20, 2.0, priority="probe")
    for number in range(3):
        await trio.sleep(5.0)
        for priority in ("batch", "interactive"):
            single = await stage.park(f"{priority} {number}", priority=priority)
            await single.back.wait()
            waited = single.began_at[0] - single.offered_at
            require(waited <= 2.0, f"{single.name} waited {waited:g} s; what was out was one probe of 2 s")
    await _leave(stage)


@LAW.scenario("a class that had nothing waiting is owed nothing for it", lead=4.0)
async def idle_class(stage: Stage) -> None:
    """Neither people, nor batch work, has saved up anything."""
    for first, second in (("batch", "interactive"), ("interactive", "batch")):
        alone = Flow(f"{first} (first)", 2.0, offset=-4.0 if first == "interactive" else 0.0)
        await _bring_on(stage, alone, 90, 2.0, priority=first)
        await trio.sleep(100.0)
        late = Flow(f"{second} (second)", 2.0, offset=-4.0 if second == "interactive" else 0.0)
        await _bring_on(stage, late, 20, 2.0, priority=second)
        since = trio.current_time()
        until = await _until_served(stage, alone, late)
        check_bound(stage, alone, late, since, until)
        check_bound(stage, late, alone, since, until)
        await _leave(stage)


@LAW.scenario("whoever was served while nobody else waited owes nothing for it", lead=2.0)
async def alone_class(stage: Stage) -> None:
    """People who had the engine for themselves, a call at a time, keep their lead when batch work comes."""
    for number in range(20):
        await (await stage.park(f"alone {number}", answers(5.0))).back.wait()
    await stage.park("blocker")
    for name in ("b1", "i1", "i2"):
        await stage.park(name, priority=_CLASSES[name[0]])
    await stage.run_dry()
    begun = [name for name in stage.order if name in ("b1", "i1", "i2")]
    require(begun[0] == "i1", f"nobody was owed anything, so a person was next; the order was {begun}")


@LAW.scenario("withdrawals cost their class nothing", lead=0.0)
async def withdrawn_class(stage: Stage) -> None:
    """By turns, as if those who left had never been there."""
    for name in ("i", "b"):  # so that the lane knows how long they take
        await (await stage.park(name, priority=_CLASSES[name])).back.wait()
    await stage.park("blocker")
    waiting = [await stage.park(f"waits {number}", answers(2.0)) for number in range(2)]
    for number in range(12):
        late = trio.current_time() + (0.25 if number % 3 == 0 else 1e6)
        caller = await stage.park(f"gone {number}", priority="batch", deadline_at=late)
        if number % 3:
            stage.cancel(caller, "own scope" if number % 2 else "outer scope")
    await trio.sleep(0.5)
    batch = [await stage.park(f"b{number}", answers(2.0), priority="batch") for number in range(2)]
    await stage.run_dry()
    ends = [caller.back_at for caller in (waiting[-1], batch[-1])]
    require(abs(ends[0] - ends[1]) <= 2.0, f"two of each, by turns, whoever left before; they ended at {ends}")


@LAW.scenario("a look costs nothing", capacity=2, lead=3.0, needs=("weights",))
async def looks(stage: Stage) -> None:
    """A head that does not fit is looked at whenever anything happens; people keep the lead that they have."""
    for name in ("i", "b"):
        await (await stage.park(name, priority=_CLASSES[name])).back.wait()
    await stage.park("blocker", answers(30.0), priority="batch")
    await stage.park("i1", weight=2)
    batch = [await stage.park(name, priority="batch") for name in ("b1", "b2")]
    for number in range(30):
        gone = await stage.park(f"gone {number}")
        stage.cancel(gone)
        await trio.sleep(0.5)
    await stage.park("i2")
    stage.order.clear()
    await stage.run_dry()
    require(stage.order[:2] == ["i1", "i2"], f"30 looks, nothing served; then the order was {stage.order}")
    require(all(caller.calls for caller in batch), "batch work was never served")


# Between tenants.


def _each_pair(priority: str, capacity: int, quick: float, slow: float) -> None:
    @LAW.scenario(
        f"a tenant of {quick:g} s texts and one of {slow:g} s texts, {priority}, {capacity} slots",
        capacity=capacity,
        needs=("tenants",),
    )
    async def in_time(stage: Stage) -> None:
        enough = 8 * capacity * (quick + slow)
        x, y = Flow("x", quick), Flow("y", slow)
        await _bring_on(stage, x, int(enough / quick) + 2, quick, priority=priority, tenant="x")
        await _bring_on(stage, y, int(enough / slow) + 2, slow, priority=priority, tenant="y")
        since = trio.current_time()
        until = await _until_served(stage, x, y)
        for one, other in ((x, y), (y, x)):
            check_bound(stage, one, other, since, until)
        require(until - since >= enough / capacity / 2, f"one of the two was served alone, until {until:g} s")
        await _leave(stage)


for _priority in ("batch", "interactive"):
    _each_pair(_priority, 1, 1.0, 20.0)
    _each_pair(_priority, 2, 1.0, 20.0)
_each_pair("batch", 2, 3.0, 3.0)


@LAW.scenario("a tenant with much work does not hold up one with little", needs=("tenants",))
async def little(stage: Stage) -> None:
    """However long the line of the first is."""
    for number in range(30):
        await stage.park(f"big{number}", priority="batch", tenant="big")
    small = [await stage.park(f"small{number}", priority="batch", tenant="small") for number in range(3)]
    for caller in small:
        await caller.back.wait()
    require(small[-1].back_at <= 8.0, f"three tickets of a second tenant took until {small[-1].back_at:g} s")
    await _leave(stage)


@LAW.scenario("a tenant is charged as it is dispatched, not when it is over", capacity=4, needs=("tenants",))
async def charged(stage: Stage) -> None:
    """Else whoever is a little behind takes every slot that comes free before it has paid for one."""
    blockers = [await stage.park(f"blocker{number}", answers(12.0)) for number in range(3)]
    x, y = Flow("x", 4.0), Flow("y", 5.0)
    await _bring_on(stage, x, 8, 4.0, priority="batch", tenant="x")
    await _bring_on(stage, y, 8, 5.0, priority="batch", tenant="y")
    for caller in blockers:
        await caller.back.wait()
    await stage.rest()
    out = [sum(caller.is_out for caller in flow.callers) for flow in (x, y)]
    require(out == [2, 2], f"x had had 4 s and has a call out, y had had 5 s; of four slots they were given {out}")
    await _leave(stage)


@LAW.scenario("a tenant that had nothing waiting is owed nothing for it", needs=("tenants",))
async def idle_tenant(stage: Stage) -> None:
    """Nor does one owe anything for what nobody else wanted."""
    x, y = Flow("x", 2.0), Flow("y", 2.0)
    first = await stage.park("y was here", answers(2.0), priority="batch", tenant="y")
    await first.back.wait()
    await _bring_on(stage, x, 70, 2.0, priority="batch", tenant="x")
    await trio.sleep(81.0)
    await _bring_on(stage, y, 20, 2.0, priority="batch", tenant="y")
    since = trio.current_time()
    until = await _until_served(stage, x, y)
    check_bound(stage, x, y, since, until)
    check_bound(stage, y, x, since, until)
    await _leave(stage)


@LAW.scenario("withdrawals cost their tenant nothing", needs=("tenants",))
async def withdrawn_tenant(stage: Stage) -> None:
    """Head or not, by whichever scope or deadline, while another tenant waits."""
    for tenant in "xy":
        await (await stage.park(tenant, answers(2.0), priority="batch", tenant=tenant)).back.wait()
    await stage.park("blocker", answers(10.0))
    x, y = Flow("x", 2.0), Flow("y", 2.0)
    await _bring_on(stage, y, 6, 2.0, priority="batch", tenant="y")
    for number in range(12):
        late = trio.current_time() + (1.0 if number % 3 == 0 else 1e6)
        gone = await stage.park(f"gone {number}", priority="batch", tenant="x", deadline_at=late)
        if number % 3:
            stage.cancel(gone, "own scope" if number % 3 == 1 else "outer scope")
    await trio.sleep(2.0)
    stage.order.clear()
    await _bring_on(stage, x, 6, 2.0, priority="batch", tenant="x")
    await stage.run_dry()
    of_x = [name.startswith("x") for name in stage.order]
    require(
        all(abs(2 * sum(of_x[:n]) - n) <= 1 for n in range(len(of_x))),
        f"x and y by turns, whatever left before; the order was {stage.order}",
    )


@LAW.scenario("a tenant whose attempts fail pays for its engine time like any other", needs=("tenants",))
async def failing_tenant(stage: Stage) -> None:
    """What was shared is the engine's time, whatever came of it."""
    x, y = Flow("x", 8.0), Flow("y", 2.0)
    for number in range(20):
        step = fails(ProviderFailure("no"), 8.0)
        x.callers.append(stage.offer(f"x {number}", step, priority="batch", tenant="x"))
    await _bring_on(stage, y, 80, 2.0, priority="batch", tenant="y")
    since = trio.current_time()
    until = await _until_served(stage, x, y)
    check_bound(stage, y, x, since, until)
    check_bound(stage, x, y, since, until)
    await _leave(stage)


def _leaver(step: Step, who: str, needs: Sequence[Feature], **ticket: Any) -> None:
    @LAW.scenario(
        f"whoever leaves its calls at once, again and again, pays for what they take ({who})",
        needs=tuple(needs),
        lead=0.0,
    )
    async def leaves(stage: Stage) -> None:
        flow, honest = Flow("those who leave", 10.0), Flow("those who stay", 10.0)
        for number in range(16):
            flow.callers.append(stage.offer(f"leaves {number}", step, **ticket))
        await _bring_on(stage, honest, 16, 10.0, priority="batch", tenant="y")
        since = trio.current_time()
        while trio.current_time() < 200.0:
            await stage.next_call()
            for caller in flow.callers:
                if caller.is_out and not caller.back.is_set():
                    stage.cancel(caller, "own scope" if caller.calls % 2 else "outer scope")
            await stage.rest()
        check_bound(stage, honest, flow, since, 200.0)
        require(honest.received(since, 200.0) > 0.0, "those who stayed were not served")
        await _leave(stage)


# A call that its caller has left takes 10 s either way: it runs on, or its transport takes so long to close.
_leaver(answers(10.0, closing=10.0), "a tenant", ("tenants",), priority="batch", tenant="x")
_leaver(answers(10.0, closing=10.0), "people", ())


# Width.


@LAW.scenario("first come first served within a flow")
async def fifo(stage: Stage) -> None:
    """And a withdrawal changes no places."""
    await stage.park("blocker")
    callers = [await stage.park(name) for name in ("i1", "i2", "i3", "i4")]
    stage.cancel(callers[1])
    await stage.run_dry()
    for name in ("b1", "b2", "b3"):
        await stage.park(name, priority="batch")
    await stage.run_dry()
    stage.check_order("blocker", "i1", "i3", "i4", "b1", "b2", "b3")


@LAW.scenario("if the chosen ticket does not fit, nobody overtakes it", capacity=2, needs=("weights",))
async def wide(stage: Stage) -> None:
    """However small, of whichever class; a stream of small ones does not starve it."""
    for number in range(3):
        since = trio.current_time()
        await stage.park(f"a{number}", answers(1.0))
        await stage.park(f"b{number}", answers(3.0))
        chosen = await stage.park(f"wide{number}", weight=2)
        for priority in ("interactive", "batch", "probe"):
            for small in range(3):
                await stage.park(f"small {number} {priority} {small}", priority=priority)
        await chosen.back.wait()
        require(chosen.began_at == [since + 3.0], f"there was room from {since + 3:g} s on; {chosen.began_at}")
        begun = stage.order[stage.order.index(f"a{number}") :][:3]
        require(begun == [f"a{number}", f"b{number}", f"wide{number}"], f"somebody passed 'wide': {begun}")
        await stage.run_dry()


@LAW.scenario("a ticket wider than the lane runs alone", capacity=2, needs=("weights",))
async def wider(stage: Stage) -> None:
    """It is admitted once the lane is idle, and those behind it wait."""
    for priority in ("interactive", "batch"):
        since = trio.current_time()
        await stage.park(f"a, {priority}", answers(2.0))
        widest = await stage.park(f"widest, {priority}", answers(2.0), weight=5, priority=priority)
        behind = [await stage.park(f"b{number}, {priority}", answers(2.0), priority=priority) for number in range(3)]
        await stage.run_dry()
        require(widest.began_at == [since + 2.0], f"the lane was idle from {since + 2:g} s on: {widest.began_at}")
        begun = [caller.began_at[0] - since for caller in behind]
        require(begun == [4.0, 4.0, 6.0], f"after the widest, two at once and then one; they began after {begun} s")


@LAW.scenario("a stream of small tickets, and one as wide as the lane", capacity=3, lead=0.0, needs=("weights",))
async def stream_of_small(stage: Stage) -> None:
    """Its turn comes; then it waits for room, and nobody takes that."""
    for number in range(60):
        await stage.park(f"small {number}", answers(1.0 + number % 3))
    whole = await stage.park("wide", answers(1.0), priority="batch", weight=3)
    await whole.back.wait()
    require(whole.began_at[0] <= 12.0, f"a batch ticket as wide as the lane waited until {whole.began_at[0]:g} s")
    await _leave(stage)


@LAW.scenario("weight counts: engine time is weight times seconds", capacity=4, needs=("tenants", "weights"))
async def weighs(stage: Stage) -> None:
    """A tenant of tickets of weight 4 has one where another has four."""
    x, y = Flow("x", 8.0), Flow("y", 2.0)
    await _bring_on(stage, x, 30, 2.0, priority="batch", tenant="x", weight=4)
    await _bring_on(stage, y, 120, 2.0, priority="batch", tenant="y")
    since = trio.current_time()
    until = await _until_served(stage, x, y)
    for one, other in ((x, y), (y, x)):
        _check_weighed(one, other, since, until)
    await _leave(stage)


def _check_weighed(f: Flow, g: Flow, since: float, until: float) -> None:
    ahead = g.received(since, until) - f.received(since, until)
    # One service of each slot on either side: four of 2 s, and one that takes all four.
    require(ahead <= 16.0, f"{g.name} received {ahead:g} s more of the engine than {f.name}; the bound is 16 s")


# The batch ceiling.


@LAW.scenario("batch work leaves the reserve to people", capacity=4, reserve=1, needs=("weights", "reserve"))
async def ceiling(stage: Stage) -> None:
    """Over all batch callers together."""
    await stage.park("b1", answers(10.0), priority="batch", weight=2)
    await stage.park("b2", answers(10.0), priority="batch", weight=2)
    require(stage.order == ["b1"], f"a ceiling of 3 let in {stage.order}, of weight 2 each")
    person = await stage.park("i1", weight=2)
    require(person.calls == 1, "a person found no room in what batch work must leave free")
    await stage.run_dry()


@LAW.scenario(
    "two batch callers and probes never exceed the ceiling together", capacity=3, reserve=1, needs=("reserve",)
)
async def ceiling_of_all(stage: Stage) -> None:
    """And a person always gets the last slot, however much batch work waits."""
    for number in range(6):
        for tenant in "xy":
            stage.offer(f"b {tenant} {number}", answers(5.0), priority="batch", tenant=tenant)
        stage.offer(f"p {number}", answers(5.0), priority="probe")
    await stage.rest()
    for number in range(6):
        require(stage.out == 2, f"batch work may use 2 of 3; {stage.out} calls are out")
        person = await stage.park(f"i {number}")
        require(person.calls == 1, f"a person waits while batch work must leave a slot free: {stage.out} calls are out")
        await person.back.wait()
        await trio.sleep(3.0)
    await stage.run_dry()


@LAW.scenario(
    "a class that only the ceiling holds back holds nobody up", capacity=3, reserve=1, lead=0.0, needs=("reserve",)
)
async def passed_over(stage: Stage) -> None:
    """People use what it may not; and it is owed what they take."""
    for number in range(4):
        await stage.park(f"b{number}", answers(20.0), priority="batch")
    persons = [await stage.park(f"i{number}", answers(2.0)) for number in range(6)]
    for caller in persons:
        await caller.back.wait()
    require(
        persons[-1].back_at == 12.0, f"six people of 2 s had one slot; the last was back at {persons[-1].back_at:g} s"
    )
    await stage.run_dry()


@LAW.scenario(
    "small work under the ceiling does not keep a wide batch ticket out",
    capacity=4,
    reserve=1,
    lead=0.0,
    needs=("weights", "reserve"),
)
async def wide_under_ceiling(stage: Stage) -> None:
    """Probes that never cease would take each unit as it comes free."""
    for number in range(40):
        await stage.park(f"p{number}", answers(1.0 + number % 3), priority="probe")
    single = await stage.park("wide", answers(1.0), priority="batch", weight=3)
    await single.back.wait()
    waited = single.began_at[0] - single.offered_at
    require(waited <= 4.0, f"what was out took 3 s; a batch ticket as wide as the ceiling waited {waited:g} s")
    await _leave(stage)


@LAW.scenario(
    "a batch ticket wider than the ceiling is not passed for ever", capacity=3, reserve=1, needs=("weights", "reserve")
)
async def wider_than_ceiling(stage: Stage) -> None:
    """It waits for an idle lane; once it is its turn, nobody passes it."""
    for number in range(300):
        stage.offer(f"i{number}", answers(1.0 + number % 2))
    await stage.rest()
    single = await stage.park("wide", answers(1.0), priority="batch", weight=3)
    await single.back.wait()
    waited = single.began_at[0] - single.offered_at
    require(waited <= 34.0, f"the lead is 30 s and a service 2 s; it waited {waited:g} s")
    await _leave(stage)
