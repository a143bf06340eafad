"""F-6: the tables of law 4, through a whole engine, for both kinds of lane."""

from __future__ import annotations

import pytest

from benchmarks.fair_shares import CASES, SECONDS, Kind, figures, run, table

# Runs are kept: whoever needs the same one is to find it, and so is played by the same worker.
pytestmark = pytest.mark.xdist_group("fair shares")
KINDS: tuple[Kind, ...] = ("openai-compatible", "ollama")
ONE_SLOT, FOUR_SLOTS, TWICE, TENANTS = CASES


def test_before_people_starve_behind_batch_though_they_ask_for_a_sixth() -> None:
    before = run(ONE_SLOT)
    assert before["people"].answered < 660
    assert before["people"].waited > 25 * 60
    assert run(FOUR_SLOTS)["people"].answered < 160


@pytest.mark.parametrize("kind", KINDS)
def test_f_6_people_who_need_less_than_their_share_wait_for_the_calls_that_are_out(kind: Kind) -> None:
    after = run(ONE_SLOT, kind)
    assert after["people"].answered >= after["people"].asked - 1
    assert after["people"].waited <= 8.0
    assert after["people"].engine_seconds + after["batch"].engine_seconds >= SECONDS - 10
    assert run(FOUR_SLOTS, kind)["people"].answered >= 1_000


@pytest.mark.parametrize("kind", KINDS)
def test_f_6_people_who_ask_for_twice_the_engine_get_half_of_it(kind: Kind) -> None:
    after = run(TWICE, kind)
    assert abs(after["people"].engine_seconds - after["batch"].engine_seconds) <= 30 + 2 * (2 + 10)


@pytest.mark.parametrize("kind", KINDS)
def test_f_6_tenants_get_the_same_engine_time(kind: Kind) -> None:
    after = run(TENANTS, kind)
    long, short = after["batch of tenant long"], after["batch of tenant short"]
    assert abs(long.engine_seconds - short.engine_seconds) <= 2 * (20 + 1)
    assert long.engine_seconds + short.engine_seconds >= 2 * SECONDS - 2 * 20


def test_the_figures_hold_and_the_table_has_a_line_for_each_stream() -> None:
    assert all(figure.ok for figure in figures())
    lines = table().splitlines()
    assert len(lines) == 1 + len(CASES) + sum(len(case.streams) for case in CASES)
    assert max(map(len, lines)) <= 110
