"""Law 4, sharper: the bound on whole lanes, whoever comes, whatever their calls take, whoever leaves.

What the order decides is tested beside it, in ``tests/admission/test_fair_order.py``.
"""

from __future__ import annotations

import random
from itertools import permutations

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from our_lanes import SETTLEMENTS, maker, open_house
from trio.testing import MockClock

from embedkit.testing import Settlement
from embedkit.testing.caller import Caller, Step
from embedkit.testing.laws.fair_shares import Flow, check_bound
from embedkit.testing.laws.scenario import Options, Scenario
from embedkit.testing.production import play
from embedkit.testing.stage import Stage, answers

LEAD = 10.0
OFFSETS = {"interactive": -LEAD, "batch": 0.0, "probe": LEAD}


def spans(callers: list[Caller]) -> list[tuple[float, float]]:
    """When at least one of them waited."""
    found: list[tuple[float, float]] = []
    for since, until in sorted(
        (caller.offered_at, caller.began_at[0] if caller.calls else caller.back_at) for caller in callers
    ):
        if found and since <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], until))
        else:
            found.append((since, until))
    return found


async def crowd(stage: Stage, seed: int) -> list[Caller]:
    """Sixty callers of six flows, in bursts; some leave, before their call or in it."""
    draw = random.Random(seed)
    usual = {flow: draw.choice((0.001, 0.1, 1.0, 20.0, 300.0)) for flow in ("i", "j", "b", "c", "p", "q")}
    classes = {"i": "interactive", "j": "interactive", "b": "batch", "c": "batch", "p": "probe", "q": "probe"}
    for number in range(60):
        flow = draw.choice("iijbbcpq")
        seconds = usual[flow] * draw.choice((0.5, 1.0, 1.0, 2.0))
        step = Step(seconds, closing=seconds)  # who leaves it has it run on, or close as slowly
        stage.offer(
            f"{flow} {number}",
            step,
            priority=classes[flow],
            tenant=flow,
            weight=draw.choice((1, 1, 1, 2)),
            timeout=draw.choice((None, None, 30.0)),
        )
        if draw.random() < 0.2:
            stage.cancel(draw.choice(stage.everybody), draw.choice(("own scope", "outer scope")))
        if draw.random() < 0.3:
            await trio.sleep(draw.choice((0.01, 1.0, 50.0)))
    await stage.run_dry()
    return stage.everybody


def longest(callers: list[Caller]) -> float:
    """The most engine time of one call of theirs."""
    return max((caller.received(0.0, 1e9) for caller in callers), default=0.0)


def check_all(
    stage: Stage, flows: dict[str, list[Caller]], offsets: dict[str, float], shares: dict[str, float]
) -> None:
    """The bound as docs/fair-shares.md proves it, for each two of the flows, wherever the first waits."""
    assert stage.capacity is not None
    least = min((offsets.get(name, 0.0) for name in flows), default=0.0)
    service = longest([caller for callers in flows.values() for caller in callers])
    for f, g in permutations(flows, 2):
        of_f, of_g = (
            # A call that has not settled is charged what one of its class takes on average, so the longest counts.
            Flow(name, service, shares.get(name, 1.0), offsets.get(name, 0.0), flows[name])
            for name in (f, g)
        )
        on_either_side = service / of_f.share + service / of_g.share
        allowed = of_f.offset - least + stage.capacity * 2 * on_either_side
        for since, until in spans(flows[f]):
            check_bound(stage, of_f, of_g, since, until, allowed=allowed)


@pytest.mark.parametrize("settlement", SETTLEMENTS)
@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(1, 4), st.sampled_from([0.25, 1.0, 2.0]))
def test_the_bound_between_classes_and_between_tenants(
    settlement: Settlement, seed: int, capacity: int, share: float
) -> None:
    async def in_play(stage: Stage) -> None:
        callers = await crowd(stage, seed)
        by_class = {name: [caller for caller in callers if caller.ticket.priority == name] for name in OFFSETS}
        check_all(stage, by_class, OFFSETS, {"interactive": 1.0, "batch": share, "probe": 0.05})
        for of_class in by_class.values():
            tenants = {caller.ticket.tenant or "" for caller in of_class}
            by_tenant = {name: [caller for caller in of_class if caller.ticket.tenant == name] for name in tenants}
            check_all(stage, by_tenant, {}, {})

    options = Options(capacity=capacity, lead=LEAD, batch_share=share)
    verdict = play(Scenario(4, "a crowd", in_play, options), maker(settlement), settlement, seed % 1000)
    assert verdict.is_kept, f"{verdict}\n{verdict.trace}"


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_f_6_people_who_need_a_sixth_of_the_engine_wait_for_what_is_out_and_no_more(
    settlement: Settlement, autojump_clock: MockClock
) -> None:
    """The first table of the law: one slot, a standing batch backlog of 10 s, a person every 6 s who needs 1 s."""
    async with open_house(settlement, autojump_clock) as house:
        for number in range(200):
            house.stage.offer(f"b{number}", answers(10.0), priority="batch")
        persons = []
        for number in range(200):
            persons.append(house.stage.offer(f"i{number}", answers(1.0)))
            await trio.sleep(6.0)
        waits = [caller.began_at[0] - caller.offered_at for caller in persons if caller.calls]
        assert len(waits) >= 198
        assert max(waits) <= 11.0
        served = sum(caller.received(0.0, 1200.0) for caller in house.stage.everybody if caller.name[0] == "b")
        assert served >= 1000.0 - 10.0
        house.lane.close()


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_statistics_show_who_is_owed_what(settlement: Settlement, autojump_clock: MockClock) -> None:
    async with open_house(settlement, autojump_clock, lead=5.0, batch_share=0.5) as house:
        for name, priority in (("b", "batch"), ("i", "interactive")):
            await (await house.stage.park(name, answers(4.0), priority=priority)).back.wait()
        blocker = await house.stage.park("blocker", answers(4.0))
        await house.stage.park("b2", answers(1.0), priority="batch", tenant="x")
        accounts = {account.flow: account for account in house.lane.statistics().accounts}
        assert (accounts["batch"].share, accounts["batch"].offset, accounts["batch"].queued) == (0.5, 0.0, 1)
        assert (accounts["interactive"].share, accounts["interactive"].offset) == (1.0, -5.0)
        assert [account.flow for account in house.lane.statistics().furthest_behind] == ["x"]
        before = accounts["batch"].account
        await blocker.back.wait()
        await house.stage.run_dry()
        after = {account.flow: account for account in house.lane.statistics().accounts}["batch"].account
        assert after - before == pytest.approx(1.0 / 0.5)
