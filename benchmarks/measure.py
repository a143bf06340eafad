"""How figures are measured: rounds that take turns, medians of ratios, and the memory of a process.

Every figure is a ratio within one run. Seconds of a shared machine say little; that two things which took turns on it
needed so much of one another says a lot. A round measures each thing once, in an order that turns from round to round;
a ratio is taken within each round, and the median of these counts.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs

ROOT = Path(__file__).resolve().parent.parent


@attrs.frozen
class Figure:
    """One figure.

    Attributes:
        name: What it is.
        bound: What it must reach; ``None`` for one that is only told.
        measured: What it is in this run.
        direction: On which side of the bound it must lie.
        unit: ``""`` for a ratio.
        skipped: Why it could not be measured; ``""`` where it was.
    """

    name: str
    bound: float | None
    measured: float
    direction: Literal["at least", "at most"] = "at least"
    unit: str = ""
    skipped: str = ""

    @property
    def ok(self) -> bool:
        """Whether the bound is kept; a figure without one, or that was skipped, breaks none."""
        if self.bound is None or self.skipped:
            return True
        return self.measured >= self.bound if self.direction == "at least" else self.measured <= self.bound


@attrs.frozen
class Child:
    """A process that has ended.

    Attributes:
        seconds: From its start to its exit.
        peak_bytes: The most memory that was resident at once.
        cpu_seconds: Processor time of all its threads.
        output: What it printed.
    """

    seconds: float
    peak_bytes: int
    cpu_seconds: float
    output: str = attrs.field(repr=False)


def run_child(arguments: Sequence[str]) -> Child:
    """Run ``arguments`` in the repository's folder; its standard error is ours.

    A small process stands between: on Linux a new process's peak begins with the memory of the one that started it.

    Raises:
        subprocess.CalledProcessError: It did not exit with 0.
    """
    command = [sys.executable, str(Path(__file__)), *arguments]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    output, _, usage = done.stdout.rstrip("\n").rpartition("\n")
    return Child(**json.loads(usage), output=output)


def resident_bytes() -> int:
    """How much memory of this process is resident now; Linux only."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize()


def seconds_of(work: Callable[[], object]) -> float:
    """How long ``work`` takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def interleaved(works: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Measure each of ``works`` once a round, in an order that turns by one from round to round.

    Returns:
        For each name what its calls returned, by round.
    """
    names = list(works)
    measured: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            measured[name].append(works[name]())
    return measured


def ratio(of: Sequence[float], to: Sequence[float]) -> float:
    """The median of the rounds' own ratios: ``of[i] / to[i]`` was measured within a moment."""
    return statistics.median(above / below for above, below in zip(of, to, strict=True))


def say(text: str) -> None:
    """Tell on standard error how far it is: standard output is for the result."""
    print(text, file=sys.stderr, flush=True)


def report(name: str, figures: Sequence[Figure]) -> int:
    """Print the figures of ``benchmarks/NAME.py``, as JSON where the command line asks for it.

    Returns:
        The exit code: 1 if a bound is missed.
    """
    if "--json" in sys.argv[1:]:
        print(json.dumps([attrs.asdict(figure) for figure in figures]))
    else:
        print(f"python -m benchmarks.{name}")
        print(table(figures))
    return 0 if all(figure.ok for figure in figures) else 1


def table(figures: Sequence[Figure]) -> str:
    """The figures in lines: name, measured, bound, and whether it is kept."""
    lines = [f"{'figure':64}  {'measured':>12}  {'bound':>16}  ok"]
    for figure in figures:
        if figure.skipped:
            lines.append(f"{figure.name:64}  skipped: {figure.skipped}")
            continue
        bound = "" if figure.bound is None else f"{figure.direction} {figure.bound:g} {figure.unit}".rstrip()
        verdict = "" if figure.bound is None else "yes" if figure.ok else "NO"
        lines.append(f"{figure.name:64}  {_shown(figure):>12}  {bound:>16}  {verdict}".rstrip())
    return "\n".join(lines)


def _shown(figure: Figure) -> str:
    number = f"{figure.measured:,.0f}" if abs(figure.measured) >= 100 else f"{figure.measured:.3f}"
    return f"{number} {figure.unit}".rstrip()


def _stand_between(arguments: Sequence[str]) -> int:
    """Run ``arguments``, add a line with what it used, and exit as it did."""
    began = time.perf_counter()
    process = subprocess.Popen(arguments)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    used: dict[str, Any] = {
        "seconds": time.perf_counter() - began,
        "peak_bytes": usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
    }
    print("\n" + json.dumps(used), flush=True)
    return process.returncode


if __name__ == "__main__":
    sys.exit(_stand_between(sys.argv[1:]))
