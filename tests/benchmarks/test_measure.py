from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.measure import Figure, interleaved, ratio, resident_bytes, run_child, seconds_of, table

MIB = 1024 * 1024


def test_rounds_take_turns_and_the_first_changes() -> None:
    order: list[str] = []

    def work(name: str) -> float:
        order.append(name)
        return float(len(order))

    measured = interleaved({name: lambda name=name: work(name) for name in "abc"}, rounds=3)  # type: ignore[misc]
    assert "".join(order) == "abcbcacab"
    assert measured == {"a": [1, 6, 8], "b": [2, 4, 9], "c": [3, 5, 7]}


def test_a_ratio_is_the_median_of_the_rounds_own() -> None:
    # The second round met a machine that was ten times as slow: it changes both, and so nothing.
    assert ratio([2.0, 20.0, 3.0], [1.0, 10.0, 1.0]) == 2.0
    with pytest.raises(ValueError, match="zip"):
        ratio([1.0], [1.0, 2.0])


def test_seconds_are_those_of_the_work() -> None:
    assert 0 <= seconds_of(lambda: None) < 1


@pytest.mark.parametrize(
    ("direction", "measured", "ok"),
    [("at least", 0.7, True), ("at least", 0.69, False), ("at most", 0.7, True), ("at most", 0.71, False)],
)
def test_a_figure_knows_whether_its_bound_is_kept(direction: str, measured: float, ok: bool) -> None:
    figure = Figure("f", 0.7, measured, direction)  # type: ignore[arg-type]  # one of the two words
    assert figure.ok is ok
    assert table([figure]).splitlines()[1].endswith("yes" if ok else "NO")


def test_a_figure_without_a_bound_is_only_told() -> None:
    figure = Figure("pace", None, 12345.6, unit="chunks/s")
    assert figure.ok
    assert table([figure]).splitlines()[1].endswith("12,346 chunks/s")


def test_a_child_is_measured_and_its_output_kept() -> None:
    child = run_child([sys.executable, "-c", "print('one'); print('two')"])
    assert child.output.split() == ["one", "two"]
    assert 0 < child.cpu_seconds < 5
    assert 0 < child.seconds < 60


def test_a_childs_peak_is_its_own_and_not_ours() -> None:
    ours = bytearray(b"x") * (200 * MIB)
    small = run_child([sys.executable, "-c", "pass"])
    large = run_child([sys.executable, "-c", f"bytearray(b'x') * ({100 * MIB})"])
    assert small.peak_bytes < 100 * MIB < large.peak_bytes < len(ours)


def test_a_child_that_fails_is_an_error() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        run_child([sys.executable, "-c", "raise SystemExit(3)"])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_resident_memory_grows_with_what_is_held() -> None:
    before = resident_bytes()
    held = bytearray(b"x") * (64 * MIB)
    assert resident_bytes() - before > 0.9 * len(held)
