"""What ``make demo`` shows: the main job, on real input, through the real command line; then a day of production.

The repository is a copy of Python's own standard library, which every machine has; the engine is the embedded model.
All of it happens in a temporary folder that is gone afterwards.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import chdir, redirect_stdout
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import fill
from typing import Any

from benchmarks import fair_shares
from benchmarks.production_day import AFTER, BEFORE, PRODUCTION, run_day, table
from embedkit.surfaces.cli import main as embedkit

QUERIES = (
    "parse a date from a string",
    "cancel all tasks of a group when one of them fails",
    "read the table of contents of a zip file",
)
ADDED = '''

def roman_numeral(number):
    """Write a whole number in the manner of the Romans."""
    signs = [(10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")]
    return "".join(sign * (number // worth % 5) for worth, sign in signs)
'''

# What is no Python source of the library itself: compiled files, other people's packages, its own tests.
_LEFT_OUT = shutil.ignore_patterns(
    "__pycache__", "*-packages", "test", "tests", "idle_test", "lib-dynload", "config-*", "*.so", "*.exe", "*.pickle"
)
_HITS = 2
_WIDTH = 110


def main() -> int:
    """Show it, and return the exit code."""
    code = main_job(Path(sysconfig.get_path("stdlib")))
    production()
    return code


def main_job(library: Path) -> int:
    """Sync a copy of ``library``, search it, change it, and sync again.

    Args:
        library: A folder of Python source; nothing in it is touched.

    Returns:
        The exit code of the first command that did not end with 0, else 0.
    """
    with TemporaryDirectory(prefix="embedkit-demo-") as folder, chdir(folder):
        # A settings file of its own, so that none in a parent folder is found.
        Path("embedkit.toml").write_text("version = 1\n", "utf-8")
        copy = Path("library")
        shutil.copytree(library, copy, ignore=_LEFT_OUT)
        _introduce(copy)
        return _first_failure([partial(_first_sync, copy), _searches, partial(_changes, copy)])


def production() -> None:
    """Virtual time: what the lane and the broker change for a batch, and what fair shares change for people."""
    _say("\nWhy a lane: a day of the shape that starved in production, in virtual time, without one and with one.")
    _say("(An engine of 4 slots, 2 health checks every 15 s, one batch at a time, of 183 s.)\n")
    _say(table(run_day(BEFORE), run_day(AFTER)))
    _say(f"\n{fill(PRODUCTION, _WIDTH)}")
    _say("\nAnd why fair shares of engine time: two hours in virtual time, counting overtakes, and now.\n")
    _say(fair_shares.table())


def _introduce(copy: Path) -> None:
    files = [path for path in copy.rglob("*") if path.is_file()]
    megabytes = sum(path.stat().st_size for path in files) / 1e6
    _say("embedkit: one command turns a repository into searchable vectors.")
    _say(f"The repository: a copy of Python's standard library, {len(files):,} files, {megabytes:.1f} MB.")
    _say(f"The engine: the embedded model, in this process, on {_counted(os.cpu_count() or 1, 'core')}.")


def _first_sync(copy: Path) -> int:
    """The report as it is printed; on a terminal, its progress before it."""
    _say(f"\n$ embedkit sync {copy}")
    return embedkit(["sync", str(copy)])


def _searches() -> int:
    return _first_failure(partial(_search, query) for query in QUERIES)


def _search(query: str) -> int:
    """The nearest places, one a line."""
    _say(f'\n$ embedkit search "{query}" -k {_HITS}')
    began = time.perf_counter()
    code = embedkit(["search", query, "-k", str(_HITS)])
    _say(f"  in {time.perf_counter() - began:.2f} s")
    return code


def _changes(copy: Path) -> int:
    """Only what is new is bought: a function; nothing for a new name; nothing at all."""
    _say(f"\n$ embedkit sync {copy}    # again, after a change to the copy; only what is new is embedded")
    steps: Sequence[tuple[str, Callable[[], object]]] = (
        ("json/tool.py has one more function", lambda: _append(copy / "json" / "tool.py", ADDED)),
        ("email/ is called post/ now", lambda: (copy / "email").rename(copy / "post")),
        ("nothing changed", lambda: None),
    )
    return _first_failure(partial(_sync_after, words, change, copy) for words, change in steps)


def _sync_after(words: str, change: Callable[[], object], copy: Path) -> int:
    change()
    code, document, seconds = _json_of("sync", str(copy))
    for did in document.get("repositories", ()):
        calls = _counted(did["provider_calls"], "call")
        bought = f"{did['embedded']:>5,} embedded  {did['reused']:>5,} reused  {calls:>8}"
        _say(f"  {words:36}{bought}  {seconds:8.2f} s")
    return code


def _append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def _json_of(*words: str) -> tuple[int, dict[str, Any], float]:
    """Run a command with ``--json``: its exit code, its document, and the seconds it took."""
    began = time.perf_counter()
    with redirect_stdout(io.StringIO()) as printed:
        code = embedkit([*words, "--json"])
    document: dict[str, Any] = json.loads(printed.getvalue()) if printed.getvalue() else {}
    if "error" in document:
        _say(f"  {document['error']['message']}")
    return code, document, time.perf_counter() - began


def _first_failure(steps: Iterable[Callable[[], int]]) -> int:
    return next((code for step in steps if (code := step())), 0)


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
