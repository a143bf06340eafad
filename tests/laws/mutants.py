"""Mutants: the real source, broken on purpose, must turn the named test red.

``python -m tests.laws.mutants`` applies each to a copy of the package, runs the one test that is to kill it, and prints
a table. ``--quick`` takes one mutant a law; ``--law N`` those of one law. The exit code is the number of mutants that
live. A mutant whose text is not in the source exactly once is an error: it has to be rewritten with the source.

``--checker`` asks another question: does the public checker alone, ``embedkit.testing.judge_lane``, notice the mutant,
without any test of ours? A row that says why a lane cannot show it (``unseen``) is not counted.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECONDS = 180
WORKERS = 2

# Played by an interpreter of its own, on the mutant: until something is found, the scenarios of its own law first.
CHECKER = """
import logging, sys
import hypothesis  # it makes trio shuffle the tasks of a step
sys.path.insert(0, "tests/laws")
from our_lanes import SETTLEMENTS, maker
from embedkit.testing import play_scenario, scenario_names
from embedkit.testing.check import SEEDS

logging.disable()
for laws in ([int(sys.argv[1])], ()):
    for seed in SEEDS:
        for settlement in SETTLEMENTS:
            for name in scenario_names(settlement=settlement, laws=laws):
                verdict = play_scenario(name, maker(settlement), settlement=settlement, seed=seed)
                if not verdict.is_kept:
                    kind = "does" if verdict.does else "writes"
                    print(f"{settlement} {kind} {sorted(verdict.laws)}: law {verdict.law}, {name!r}")
                    sys.exit(1)
"""


@dataclass(frozen=True)
class Mutant:
    """One edit.

    Attributes:
        law: Which law it breaks.
        name: What it does.
        file: Below ``embedkit/``.
        old: Text that is there once.
        new: What stands there instead.
        test: Below ``tests/``; fails on the mutant.
        unseen: Why no lane could show it to a stranger; empty: the checker alone must notice it.
    """

    law: int
    name: str
    file: str
    old: str
    new: str
    test: str
    unseen: str = ""


def load_mutants() -> list[Mutant]:
    """All of them, as ``mutants.toml`` lists them."""
    listed = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["mutant"]
    return [Mutant(**fields) for fields in listed]


MUTANTS = load_mutants()


def quick() -> Iterator[Mutant]:
    """The first mutant of each law."""
    for law in range(1, 8):
        yield next(mutant for mutant in MUTANTS if mutant.law == law)


def copy_of_the_house(folder: Path) -> Path:
    """A copy of what a test run needs."""
    ignored = shutil.ignore_patterns("__pycache__", ".hypothesis")
    for name in ("embedkit", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def run_test(folder: Path, *tests: str) -> tuple[int, str]:
    """pytest's exit code, and the end of what it said; -1 for one that did not end."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", "--tb=line", "--no-header"]
    return _run(folder, [*command, *(f"tests/{test}" for test in tests)])


def run_checker(folder: Path, law: int) -> tuple[int, str]:
    """1 and what it noticed, 0 for nothing; -1 for one that did not end."""
    return _run(folder, [sys.executable, "-c", CHECKER, str(law)])


def verdict(mutant: Mutant) -> str:
    """``killed``, ``killed (no end)``, ``LIVES``, or what went wrong."""
    code, said = _on_the_mutant(mutant, lambda folder: run_test(folder, mutant.test))
    words = {-1: "killed (no end)", 0: "LIVES", 1: "killed"}
    return words.get(code) or f"ERROR: pytest ended with {code}: {said}"


def notice(mutant: Mutant) -> str:
    """What the checker alone says: ``noticed ...``, ``unseen ...``, ``MISSED``, or what went wrong."""
    code, said = _on_the_mutant(mutant, lambda folder: run_checker(folder, mutant.law))
    if code == 1:
        return f"noticed ({said.strip().splitlines()[-1]})"
    if code == -1:
        return "noticed (no end)"
    if code == 0:
        return f"unseen ({mutant.unseen})" if mutant.unseen else "MISSED"
    return f"ERROR: the checker ended with {code}: {said}"


def _on_the_mutant(mutant: Mutant, run: Callable[[Path], tuple[int, str]]) -> tuple[int, str]:
    source = (ROOT / "embedkit" / mutant.file).read_text(encoding="utf-8")
    found = source.count(mutant.old)
    if found != 1:
        return 100, f"its text is in {mutant.file} {found} times"
    with tempfile.TemporaryDirectory() as name:
        folder = copy_of_the_house(Path(name))
        (folder / "embedkit" / mutant.file).write_text(source.replace(mutant.old, mutant.new), encoding="utf-8")
        return run(folder)


def _run(folder: Path, command: list[str]) -> tuple[int, str]:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return -1, f"no end within {SECONDS} s"
    # A traceback ends an interpreter with 1 too, and is no verdict of a checker.
    code = 101 if done.returncode == 1 and "Traceback" in done.stderr and "-c" in command else done.returncode
    return code, done.stdout[-2000:] + done.stderr[-2000:]


def _is_clean(chosen: list[Mutant], *, by_checker: bool) -> bool:
    """Whether, without any mutant, nothing is found."""
    with tempfile.TemporaryDirectory() as name:
        folder = copy_of_the_house(Path(name))
        if by_checker:
            code, said = run_checker(folder, 1)
        else:
            code, said = run_test(folder, *sorted({mutant.test for mutant in chosen}))
    if code != 0:
        print(f"the tests fail without any mutant:\n{said}")  # noqa: T201
    return code == 0


def main(arguments: list[str] | None = None) -> int:
    """Run, print the table, and give the number of mutants that live, or that the checker misses."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one mutant a law")
    parser.add_argument("--law", type=int, choices=range(1, 8), help="those of one law")
    parser.add_argument("--checker", action="store_true", help="by the public checker alone")
    parser.add_argument("--named", default="", help="those whose name has this in it")
    options = parser.parse_args(arguments)
    listed = list(quick()) if options.quick else MUTANTS
    chosen = [mutant for mutant in listed if options.law in (None, mutant.law) and options.named in mutant.name]
    if not _is_clean(chosen, by_checker=options.checker):
        return 1
    words: list[str] = []
    with ThreadPoolExecutor(WORKERS) as pool:
        for mutant, word in zip(chosen, pool.map(notice if options.checker else verdict, chosen), strict=True):
            words.append(word)
            where = "" if options.checker else f"  [{mutant.test}]"
            print(f"law {mutant.law}  {mutant.name}: {word}{where}", flush=True)  # noqa: T201
    done = "noticed" if options.checker else "killed"
    good = sum(word.startswith(done) for word in words)
    unseen = sum(word.startswith("unseen") for word in words)
    said = f", {unseen} that no lane could show" if unseen else ""
    print(f"{good} of {len(chosen)} mutants {done}{said}")  # noqa: T201
    return len(chosen) - good - unseen


if __name__ == "__main__":
    sys.exit(main())
