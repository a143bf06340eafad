"""Flows and their accounts, by themselves: what is charged, what absence costs, and what may be forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from embedkit.admission.fair_share import FairShare, Flow


def waiting(level: FairShare[Flow], *accounts: float) -> list[Flow]:
    """Flows that wait with these accounts; virtual time is 0."""
    flows = [Flow() for _ in accounts]
    for flow, account in zip(flows, accounts, strict=True):
        level.wait(flow)
        serve(level, flow, account - flow.account)
    return flows


def serve(level: FairShare[Flow], flow: Flow, cost: float, *, charged: float | None = None) -> None:
    """A service of ``flow``, charged and corrected."""
    charged = cost if charged is None else charged
    level.begin(flow, charged)
    level.correct(flow, cost - charged)


def test_whoever_has_been_served_least_is_next() -> None:
    level: FairShare[Flow] = FairShare()
    one, other = Flow(), Flow()
    assert level.least() is None
    level.wait(one)
    level.wait(other)
    level.begin(one, 2.0)
    assert level.least() is other
    level.begin(other, 3.0)
    assert level.least() is one


def test_of_equal_accounts_whoever_was_served_longest_ago_is_next() -> None:
    level: FairShare[Flow] = FairShare()
    flows = waiting(level, 0.0, 0.0, 0.0)
    served = []
    for _ in range(6):
        least = level.least()
        assert least is not None
        served.append(flows.index(least))
        level.begin(least, 0.0)  # nothing is known yet of what it costs
    assert served == [0, 1, 2, 0, 1, 2]


def test_a_share_of_two_is_served_twice_as_much() -> None:
    level: FairShare[Flow] = FairShare()
    flows = {"two": Flow(2.0), "one": Flow(1.0)}
    for flow in flows.values():
        level.wait(flow)
    spent = dict.fromkeys(flows, 0.0)
    for _ in range(300):
        name = "two" if level.least() is flows["two"] else "one"
        serve(level, flows[name], 1.0)
        spent[name] += 1.0
    assert spent == {"two": 200.0, "one": 100.0}


def test_a_charge_is_corrected_to_what_the_service_cost() -> None:
    level: FairShare[Flow] = FairShare()
    one, other = waiting(level, 0.0, 0.0)
    level.begin(one, 10.0)
    level.begin(other, 5.0)
    level.correct(one, -8.0)
    assert (one.account, level.least()) == (2.0, one)
    level.correct(other, -4.0)
    assert (other.account, level.least()) == (1.0, other)


def test_a_correction_is_divided_by_the_share_as_the_charge_was() -> None:
    level: FairShare[Flow] = FairShare()
    flow = Flow(4.0)
    level.wait(flow)
    serve(level, flow, 12.0, charged=2.0)
    assert flow.account == 3.0
    serve(level, flow, 2.0, charged=10.0)
    assert flow.account == 3.5


def test_whoever_comes_back_is_owed_nothing_for_its_absence_and_forgiven_nothing() -> None:
    level: FairShare[Flow] = FairShare()
    stays, behind = waiting(level, 100.0, 70.0)
    level.begin(behind, 5.0)  # virtual time: 70
    comes = Flow()
    level.wait(comes)
    assert comes.account == 70.0
    level.rest(comes)
    serve(level, comes, 500.0)
    level.wait(comes)
    assert comes.account == 570.0
    assert (stays.account, behind.account) == (100.0, 75.0)


def test_where_nobody_waits_nobody_is_owed_anything() -> None:
    level: FairShare[Flow] = FairShare()
    (alone,) = waiting(level, 100.0)
    level.rest(alone)
    comes = Flow()
    level.wait(comes)
    assert comes.account == 100.0
    level.wait(alone)
    assert (alone.account, level.least()) == (100.0, comes)


def test_virtual_time_never_goes_back_however_many_come_and_go() -> None:
    """Each is charged too much, comes back before that is known, and is corrected; a newcomer gains nothing by it."""
    level: FairShare[Flow] = FairShare()
    (waits,) = waiting(level, 0.0)
    for _ in range(50):
        flow = Flow()
        level.wait(flow)
        level.begin(flow, 100.0)
        level.rest(flow)
        level.wait(flow)
        level.correct(flow, -99.0)
        before = level.virtual_time
        level.begin(waits, 1.0)
        assert level.virtual_time >= before
    newcomer = Flow()
    level.wait(newcomer)
    assert newcomer.account >= waits.account - 1.0


def test_waiting_costs_nothing_and_neither_does_leaving() -> None:
    level: FairShare[Flow] = FairShare()
    one, other = waiting(level, 5.0, 7.0)
    for _ in range(3):
        level.rest(one)
        level.wait(one)
        assert (one.account, other.account) == (5.0, 7.0)


def test_a_flow_that_would_be_raised_anyway_may_be_forgotten() -> None:
    level: FairShare[Flow] = FairShare()
    waits, gone = waiting(level, 5.0, 10.0)
    assert not level.may_forget(gone)  # it waits
    level.rest(gone)
    assert not level.may_forget(gone)  # it has been served more than those who wait
    level.begin(waits, 6.0)
    level.begin(waits, 6.0)
    assert level.may_forget(gone)
    gone.out += 1
    assert not level.may_forget(gone)  # something of it is out


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from("wrci"), st.floats(0.0, 10.0)), max_size=200))
def test_the_index_says_what_a_search_through_all_flows_says(moves: list[tuple[int, str, float]]) -> None:
    level: FairShare[Flow] = FairShare()
    flows = [Flow(share) for share in (1.0, 1.0, 2.0, 0.5, 1.0, 4.0)]
    for number, move, cost in moves:
        flow = flows[number]
        if move == "w" and not flow.is_waiting:
            level.wait(flow)
        elif move == "r" and flow.is_waiting:
            level.rest(flow)
        elif move == "c" and flow.is_waiting:
            level.begin(flow, cost)
        elif move == "i" and flow.out:
            level.correct(flow, cost - 5.0)
        accounts = [other.account for other in flows if other.is_waiting]
        least = level.least()
        assert (least.account if least is not None else None) == min(accounts, default=None)
        assert [one.account for one in level.behind(3)] == sorted(accounts)[:3]
        assert level.waiting == len(accounts)
        assert all(other.account <= level.horizon for other in flows)
        assert len(level._heap) <= 2 * level.waiting + 9
