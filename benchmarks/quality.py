"""The quality of the default search, through the whole of embedkit: ``python -m benchmarks.quality``.

Docstring to function over Python's standard library. A set is 1,000 functions, drawn with a fixed seed; the two sets
have none in common. Each function, its docstring removed, is a file of its own under a name that says nothing. The
real engine syncs the folder into a real store. A query is the first line of a function's docstring, the right answer
its file: the first chunk of it counts, at its place among the files. One that is not among the first 100 chunks counts
nothing. The figure is the mean reciprocal rank.

A third set is of other languages' trees (see ``trees``): 1,000 functions whose names are in camel case, asked for by
name alone, as it is written and in lower case. It is left out where no registry is reached.
"""

from __future__ import annotations

import random
import sys
import sysconfig
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import trio

import embedkit
from benchmarks.functions import SEED, SET_SIZE, Function, read_functions
from benchmarks.measure import Figure, report, say
from benchmarks.named_functions import NamedFunction, read_named_functions
from embedkit.knowledge.searching.search import Mode

if TYPE_CHECKING:
    from embedkit import Engine

SETS = 2
DEPTH = 100
TENANT = "bench"


def write_files(functions: Sequence[Function], folder: Path) -> None:
    """One file a function, at the left margin: ``f0000.py``, ``f0001.py``, ..."""
    folder.mkdir()
    for number, function in enumerate(functions):
        (folder / file_name(number)).write_text(textwrap.dedent(function.code), "utf-8")


def file_name(number: int) -> str:
    """A name that says nothing."""
    return f"f{number:04}.py"


def reciprocal_rank(paths: Sequence[str], right: str) -> float:
    """One over the place of ``right`` among the files of ``paths`` (each at its first place); 0 if it is not there."""
    files = list(dict.fromkeys(paths))
    return 1 / (1 + files.index(right)) if right in files else 0.0


async def synced(engine: Engine, folder: Path) -> None:
    """Sync ``folder`` into the engine's knowledge base.

    Cancellation:
        What was stored stays.
    """
    repository = embedkit.RepositorySettings(name="functions", path=folder)
    tenant = embedkit.TenantSettings(name=TENANT, repositories=(repository,))
    async with embedkit.open_sweep(engine, [tenant]) as sweep:
        report = await sweep.run()
    assert report.status == "completed", report


async def mean_reciprocal_rank(engine: Engine, functions: Sequence[Function], mode: Mode) -> float:
    """Ask for every function.

    Cancellation:
        Changes nothing.
    """
    total = 0.0
    for number, function in enumerate(functions):
        hits = await engine.search(function.query, tenant=TENANT, k=DEPTH, mode=mode)
        total += reciprocal_rank([hit.path for hit in hits], file_name(number))
    return total / len(functions)


async def quality_of(functions: Sequence[Function], place: Path) -> dict[Mode, float]:
    """The mean reciprocal rank of each mode, with a store of its own in ``place``.

    Cancellation:
        Leaves files in ``place``.
    """
    write_files(functions, place / "functions")
    settings = embedkit.Settings(store=embedkit.StoreSettings(path=place / "knowledge.db"))
    async with embedkit.open_engine(settings) as engine:
        await synced(engine, place / "functions")
        return {mode: await mean_reciprocal_rank(engine, functions, mode) for mode in get_args(Mode)}


async def named_quality_of(functions: Sequence[NamedFunction], place: Path) -> tuple[float, float]:
    """The mean reciprocal rank of hybrid search by names as they are written, and in lower case.

    Cancellation:
        Leaves files in ``place``.
    """
    (place / "named").mkdir()
    for number, function in enumerate(functions):
        (place / "named" / f"f{number:04}{function.suffix}").write_text(function.code, "utf-8")
    settings = embedkit.Settings(store=embedkit.StoreSettings(path=place / "knowledge.db"))
    async with embedkit.open_engine(settings) as engine:
        await synced(engine, place / "named")
        totals = []
        for spelled in (str, str.lower):
            total = 0.0
            for number, function in enumerate(functions):
                hits = await engine.search(spelled(function.name), tenant=TENANT, k=DEPTH)
                total += reciprocal_rank([hit.path for hit in hits], f"f{number:04}{function.suffix}")
            totals.append(total / len(functions))
        return totals[0], totals[1]


def named_figures(size: int = SET_SIZE) -> list[Figure]:
    """Measure the third set."""
    name = "set C: names in lower case / as written"
    functions = read_named_functions(size)
    if len(functions) < size:
        return [Figure(name, 1.0, 0.0, skipped=f"{len(functions)} functions could be had")]
    with tempfile.TemporaryDirectory(prefix="embedkit-bench-") as place:
        written, lower = trio.run(named_quality_of, functions, Path(place))
    say(f"  set C: names as written {written:.3f}, in lower case {lower:.3f}")
    return [
        Figure(name, 1.0, lower / written),
        Figure("set C: mean reciprocal rank of hybrid by names as written", None, written),
        Figure("set C: in lower case", None, lower),
    ]


def draw(functions: Sequence[Function], size: int = SET_SIZE, sets: int = SETS) -> list[list[Function]]:
    """Sets of ``size`` functions, none in two of them."""
    shuffled = list(functions)
    random.Random(SEED).shuffle(shuffled)
    assert len(shuffled) >= size * sets, f"{len(shuffled)} functions are too few"
    return [shuffled[number * size : (number + 1) * size] for number in range(sets)]


def figures(functions: Sequence[Function], size: int = SET_SIZE) -> list[Figure]:
    """Measure each set."""
    found: list[Figure] = []
    for letter, chosen in zip("AB", draw(functions, size), strict=True):
        with tempfile.TemporaryDirectory(prefix="embedkit-bench-") as place:
            rank = trio.run(quality_of, chosen, Path(place))
        say(f"  set {letter}: " + ", ".join(f"{mode} {value:.3f}" for mode, value in rank.items()))
        hybrid, text, vector = rank["hybrid"], rank["text"], rank["vector"]
        found += [
            Figure(f"set {letter}: hybrid / full text alone", 1.0, hybrid / text),
            Figure(f"set {letter}: hybrid / vectors alone", 1.25, hybrid / vector),
            Figure(f"set {letter}: mean reciprocal rank of hybrid", 0.52, hybrid),
            Figure(f"set {letter}: of full text alone", None, text),
            Figure(f"set {letter}: of vectors alone", None, vector),
        ]
    return found


if __name__ == "__main__":
    own = figures(read_functions(Path(sysconfig.get_path("stdlib"))))
    sys.exit(report("quality", [*own, *named_figures()]))
