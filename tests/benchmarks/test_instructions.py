"""The price in instructions, on few calls: that it is measured, repeatable, and skipped by name; not what comes out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import attrs
import pytest
import trio

from benchmarks import admission, instructions
from benchmarks.measure import Figure, table

NAMES = [f"{case.name} / under CapacityLimiter, instructions" for case in instructions.CASES]

with_valgrind = pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")


@pytest.mark.soak
@with_valgrind
@pytest.mark.timeout(300)  # callgrind is fifty times as slow
def test_a_call_costs_instructions() -> None:
    figures = list(instructions.figures(warm=100, counted=100))
    assert [(figure.name, figure.bound) for figure in figures if figure.bound] == list(
        zip(NAMES, [2.2, 3.2], strict=True)
    )
    assert all(1.0 < figure.measured < 10.0 for figure in figures if figure.bound)
    # Of one call, and not with the import in it, which is a thousand million.
    assert all(10_000 < figure.measured < 1_000_000 for figure in figures if not figure.bound)


@with_valgrind
@pytest.mark.soak
def test_it_costs_the_same_again() -> None:
    first, second = (list(instructions.figures()) for _ in range(2))
    for one, again in zip(first, second, strict=True):
        assert one.measured == pytest.approx(again.measured, rel=0.005)


def test_where_valgrind_is_missing_the_figures_are_skipped_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    skipped = list(instructions.figures())
    assert [figure.name for figure in skipped] == NAMES
    assert all(figure.ok for figure in skipped)
    lines = table(skipped).splitlines()[1:]
    assert [" ".join(line.split()) for line in lines] == [
        f"{name} skipped: valgrind is not installed" for name in NAMES
    ]
    as_json = json.loads(json.dumps([attrs.asdict(figure) for figure in skipped]))
    assert [Figure(**each) for each in as_json] == skipped


@pytest.mark.parametrize(
    ("script", "says"),
    [("echo no such tool >&2; exit 3", "callgrind ended with 3: no such tool"), ("echo 1 2 3 4 5 6 7 8", "no total")],
)
def test_one_that_fails_is_an_error_and_no_figure(tmp_path: Path, script: str, says: str) -> None:
    valgrind = tmp_path / "valgrind"
    valgrind.write_text(f"#!/bin/sh\n{script}\n")
    valgrind.chmod(0o755)
    with pytest.raises(RuntimeError, match=says):
        list(instructions.figures(str(valgrind)))


def test_the_table_of_admission_has_them_first_and_its_times_have_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    for costly in ("ratio", "memory_ratio"):
        monkeypatch.setattr(admission, costly, lambda *_: 1.0)
    monkeypatch.setattr(admission, "lane_growth", dict)
    monkeypatch.setattr(admission, "growth", lambda *_: {})
    figures = list(admission.figures())
    assert [figure.name for figure in figures[:2]] == NAMES
    times = [figure for figure in figures if figure.name.endswith("time")]
    assert len(times) == 2
    assert all(figure.bound is None for figure in times)


async def test_both_ways_make_the_calls_that_they_are_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0

    async def counted(_: None) -> None:
        nonlocal made
        made += 1
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(admission, "_one_checkpoint", counted)
    await admission.through_limiter(10, 2, calls=40)
    assert made == 40
    await admission.through_lane(10, 2, calls=40)
    assert made == 40 + 41  # one to open the slots
