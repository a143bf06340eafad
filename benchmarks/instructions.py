"""The price of a call in instructions: ``python -m benchmarks.instructions``; a part of ``benchmarks.admission``.

Time moves with the machine, its load and its clock: the same lane was 2.46 times `CapacityLimiter` on one machine and
3.4 times on another. Instructions do not: two runs differ by less than a thousandth. callgrind (of valgrind, a Debian
package) counts those of a child Python; where it is not installed the figures are skipped, and the table says so.

The child imports once, which costs more under callgrind than all that is measured, and forks for each run, so that all
runs begin with the same heap. Of each case two runs are made that differ only in their number of calls. Their
difference has nothing in it of the import, of opening and closing a lane, or of the interpreter's warming up.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from benchmarks.measure import ROOT, Figure, report

# Calls that both runs make, and those that only the second makes. Divisible by the number of callers.
WARM: Final = 400
COUNTED: Final = 5_000

_TOTALS = re.compile(r"^totals: (\d+)$", re.MULTILINE)


@attrs.frozen
class Case:
    """Who calls, and how: ``callers`` take turns on ``capacity`` slots or tokens."""

    name: str
    callers: int
    capacity: int
    bound: float


CASES: Final = (
    Case("one call, 100 callers on 4 slots", 100, 4, 2.2),
    Case("one call, uncontended", 1, 1, 3.2),
)
WAYS: Final = ("lane", "limiter")


def figures(valgrind: str | None = None, *, warm: int = WARM, counted: int = COUNTED) -> Iterator[Figure]:
    """A ratio for each case, with its bound, and what it is made of.

    Args:
        valgrind: The program; without one, that of the search path.
        warm: Calls that are made and not counted.
        counted: Calls over which the price is taken.

    Raises:
        RuntimeError: callgrind or its child failed.
    """
    valgrind = valgrind or shutil.which("valgrind")
    if valgrind is None:
        for case in CASES:
            name = f"{case.name} / under CapacityLimiter, instructions"
            yield Figure(name, case.bound, 0.0, "at most", skipped="valgrind is not installed")
        return
    prices = instructions(valgrind, warm, counted)
    for case in CASES:
        ours, baseline = (prices[case.name, way] for way in WAYS)
        yield Figure(f"{case.name} / under CapacityLimiter, instructions", case.bound, ours / baseline, "at most")
        yield Figure("  through a lane", None, ours, unit="instructions")
        yield Figure("  under CapacityLimiter", None, baseline, unit="instructions")


def instructions(valgrind: str, warm: int, counted: int) -> dict[tuple[str, str], float]:
    """Instructions of one call, for each case and way.

    Raises:
        RuntimeError: callgrind or its child failed.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [valgrind, "--tool=callgrind", f"--callgrind-out-file={folder}/%p", sys.executable]
        command += ["-m", "benchmarks.instructions", "--child", str(warm), str(counted)]
        unwanted = ("PYTHONPERFSUPPORT", "PYTHONPROFILEIMPORTTIME", "PYTHONDEVMODE", "PYTHONMALLOC")
        environ = {key: value for key, value in os.environ.items() if key not in unwanted}
        environ |= {"PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"callgrind ended with {done.returncode}: {done.stderr[-2000:]}")
        processes = iter(done.stdout.split())
        prices: dict[tuple[str, str], float] = {}
        for case in CASES:
            for way in WAYS:
                few, many = (_total(folder / next(processes)) for _ in range(2))
                prices[case.name, way] = (many - few) / counted
    return prices


def _total(written: Path) -> int:
    found = _TOTALS.search(written.read_text("utf-8")) if written.exists() else None
    if found is None:
        raise RuntimeError(f"callgrind wrote no total for process {written.name}")
    return int(found[1])


def _child(warm: int, counted: int) -> None:
    """Make every run in a process of its own, and print their ids in order."""
    # Only here: that module imports this one, to show these figures beside its own.
    import trio

    from benchmarks.admission import through_lane, through_limiter

    ways = {"lane": through_lane, "limiter": through_limiter}
    # What was imported is not a call's: a collection that walks it in one run of two costs a tenth of what is measured.
    gc.collect()
    gc.freeze()
    for case in CASES:
        for way in WAYS:
            for calls in (warm, warm + counted):
                process = os.fork()
                if process == 0:
                    trio.run(lambda way=way, calls=calls: ways[way](case.callers, case.capacity, calls=calls))  # type: ignore[misc]  # noqa: B023  # run at once
                    os._exit(0)
                _, status = os.waitpid(process, 0)
                if status != 0:
                    raise SystemExit(f"{case.name}, {way}: status {status}")
                print(process)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _child(int(sys.argv[2]), int(sys.argv[3]))
    else:
        sys.exit(report("instructions", list(figures())))
