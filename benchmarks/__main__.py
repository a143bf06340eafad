"""All figures, each script in a process of its own: ``python -m benchmarks``. Exits with 1 if a bound is missed."""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.measure import ROOT, Figure, say, table

SCRIPTS = (
    "imports",
    "admission",
    "fair_shares",
    "production_day",
    "providers",
    "search",
    "chunks",
    "quality",
    "cold_sync",
    "ask",
)


def figures_of(script: str) -> list[Figure]:
    """What a script measures.

    Raises:
        SystemExit: It ended without figures; its own words are on standard error.
    """
    command = [sys.executable, "-m", f"benchmarks.{script}", "--json"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    try:
        return [Figure(**each) for each in json.loads(done.stdout)]
    except ValueError:
        raise SystemExit(f"benchmarks.{script} ended with {done.returncode} and without figures") from None


def main() -> int:
    """Run all, print one table."""
    kept = True
    for script in SCRIPTS:
        say(f"benchmarks.{script} ...")
        found = figures_of(script)
        kept = kept and all(figure.ok for figure in found)
        print(f"\npython -m benchmarks.{script}\n{table(found)}", flush=True)
    print(f"\n{'every bound is kept' if kept else 'A BOUND IS MISSED'}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
