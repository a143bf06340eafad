"""What asking adds to those who are asked, and how soon the commands are there: ``python -m benchmarks.ask``.

``ask_all`` asks 20 members whose adapters answer at once, and 20 of which one takes 50 ms: what it took beyond the
slowest is its own. The commands run as processes, in a folder without settings and with nothing on PATH, so that no
other program's start is measured with them.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import trio

from benchmarks.measure import ROOT, Figure, interleaved, ratio, report, seconds_of
from embedkit.ask import Question, Said, ask_all
from embedkit.engine import open_engine
from embedkit.settings import PanelMember, Settings

MEMBERS = 20
SLOWEST = 0.05
ASKED = 40  # times
ROUNDS = 15

_COMMAND = "import sys; from embedkit.surfaces.cli import main; sys.exit(main())"
_STARTS = {
    "packages": ["-c", "import trio, httpx, attrs, cattrs"],
    "--help": ["-c", _COMMAND, "--help"],
    "doctor": ["-c", _COMMAND, "doctor"],
}


class Instant:
    """Answers after so many seconds; with none, at once."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds

    async def attempt(self, question: Question) -> Said:
        """See ``Adapter.attempt``.

        Cancellation:
            Nothing is left.
        """
        await trio.sleep(self._seconds)
        return Said("It is fair.")


def figures(asked: int = ASKED, rounds: int = ROUNDS) -> list[Figure]:
    """Measure."""
    instant = trio.run(_added, 0.0, asked)
    slow = trio.run(_added, SLOWEST, asked)
    with tempfile.TemporaryDirectory() as folder:
        works = {name: partial(seconds_of, partial(_start, words, Path(folder))) for name, words in _STARTS.items()}
        interleaved(works, 1)
        measured = interleaved(works, rounds)
    bare = "import trio, httpx, attrs, cattrs"
    return [
        Figure("ask_all over 20 instant members, beyond the slowest", 5.0, 1000 * instant, "at most", "ms"),
        Figure("the same, one of them takes 50 ms", 5.0, 1000 * slow, "at most", "ms"),
        Figure(f"embedkit --help / {bare}", 1.5, ratio(measured["--help"], measured["packages"]), "at most"),
        Figure(f"embedkit doctor / {bare}", 1.5, ratio(measured["doctor"], measured["packages"]), "at most"),
    ]


async def _added(slowest: float, asked: int) -> float:
    """Seconds that a fan-out takes beyond its slowest member, the median of ``asked``."""
    wanted = [PanelMember(provider="own", alias=f"m{number}") for number in range(MEMBERS)]
    adapters = {member.alias: Instant() for member in wanted} | {"m7": Instant(slowest)}
    took = []
    async with open_engine(Settings()) as engine:
        for _ in range(asked + 1):
            began_at = time.perf_counter()
            replies = await ask_all(engine, "Is it fair?", wanted, adapters=adapters)
            took.append(time.perf_counter() - began_at - slowest)
            assert len(replies.answers) == MEMBERS
    return statistics.median(took[1:])


def _start(words: Sequence[str], folder: Path) -> None:
    environ = {"PATH": "", "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    if "LC_ALL" in os.environ:
        environ["LC_ALL"] = os.environ["LC_ALL"]
    command = [sys.executable, *words]
    subprocess.run(command, cwd=folder, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True)


if __name__ == "__main__":
    sys.exit(report("ask", figures()))
