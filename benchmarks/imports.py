"""What ``import embedkit`` costs beside ``import trio, httpx, attrs, cattrs``: ``python -m benchmarks.imports``.

Each import is a process of its own; the time of one that imports nothing is taken off both. A first round that does
not count leaves the bytecode behind.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from functools import partial

from benchmarks.measure import ROOT, Figure, interleaved, report, seconds_of

ROUNDS = 25
STATEMENTS = {"nothing": "pass", "packages": "import trio, httpx, attrs, cattrs", "embedkit": "import embedkit"}
# What a user pays for on first use, and not before.
LATE = ("numpy", "sqlite3", "tokenizers", "safetensors", "chardet", "dulwich")


def figures(rounds: int = ROUNDS) -> list[Figure]:
    """Measure."""
    works = {name: partial(seconds_of, partial(_run, statement)) for name, statement in STATEMENTS.items()}
    interleaved(works, 1)
    measured = interleaved(works, rounds)
    nothing, packages, embedkit = (statistics.median(measured[name]) for name in STATEMENTS)
    bound = "import embedkit / import trio, httpx, attrs, cattrs"
    return [
        Figure(bound, 1.3, (embedkit - nothing) / (packages - nothing), "at most"),
        Figure("import embedkit, without the interpreter's own start", None, 1000 * (embedkit - nothing), unit="ms"),
        Figure("modules among numpy, sqlite3, ... that it brings in", 0, _early(), "at most"),
    ]


def _run(statement: str) -> str:
    command = [sys.executable, "-c", statement]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


def _early() -> int:
    return int(_run(f"import embedkit, sys; print(sum(name in sys.modules for name in {LATE}))"))


if __name__ == "__main__":
    sys.exit(report("imports", figures()))
