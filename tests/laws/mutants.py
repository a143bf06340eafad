"""Mutants: the real source, broken on purpose, must turn the named test red.

``python -m tests.laws.mutants`` applies each to a copy of the package, runs the one test that is to kill it, and prints
a table. ``--quick`` takes one mutant a law; ``--law N`` those of one law. The exit code is the number of mutants that
live. A mutant whose text is not in the source exactly once is an error: it has to be rewritten with the source.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECONDS = 120
WORKERS = 2


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
    """

    law: int
    name: str
    file: str
    old: str
    new: str
    test: str


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
    paths = [f"tests/{test}" for test in tests]
    try:
        done = subprocess.run([*command, *paths], cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return -1, f"no end within {SECONDS} s"
    return done.returncode, done.stdout[-2000:] + done.stderr[-2000:]


def verdict(mutant: Mutant) -> str:
    """``killed``, ``killed (no end)``, ``LIVES``, or what went wrong."""
    source = (ROOT / "embedkit" / mutant.file).read_text(encoding="utf-8")
    found = source.count(mutant.old)
    if found != 1:
        return f"ERROR: its text is in {mutant.file} {found} times"
    with tempfile.TemporaryDirectory() as name:
        folder = copy_of_the_house(Path(name))
        (folder / "embedkit" / mutant.file).write_text(source.replace(mutant.old, mutant.new), encoding="utf-8")
        code, said = run_test(folder, mutant.test)
    words = {-1: "killed (no end)", 0: "LIVES", 1: "killed"}
    return words.get(code) or f"ERROR: pytest ended with {code}: {said}"


def main(arguments: list[str] | None = None) -> int:
    """Run, print the table, and give the number of mutants that were not killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one mutant a law")
    parser.add_argument("--law", type=int, choices=range(1, 8), help="those of one law")
    options = parser.parse_args(arguments)
    chosen = [mutant for mutant in (quick() if options.quick else MUTANTS) if options.law in (None, mutant.law)]
    with tempfile.TemporaryDirectory() as name:
        code, said = run_test(copy_of_the_house(Path(name)), *sorted({mutant.test for mutant in chosen}))
    if code != 0:
        print(f"the tests fail without any mutant:\n{said}")  # noqa: T201
        return 1
    with ThreadPoolExecutor(WORKERS) as pool:
        verdicts = list(pool.map(verdict, chosen))
    for mutant, word in zip(chosen, verdicts, strict=True):
        print(f"law {mutant.law}  {word:16} {mutant.name}  [{mutant.test}]")  # noqa: T201
    living = sum(not word.startswith("killed") for word in verdicts)
    print(f"{len(chosen) - living} of {len(chosen)} mutants killed")  # noqa: T201
    return living


if __name__ == "__main__":
    sys.exit(main())
