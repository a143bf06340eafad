"""``embedkit sync`` of Python's standard library beside the embedder alone: ``python -m benchmarks.cold_sync``.

The sync is the command itself in a process of its own, on a new store, from its start to its exit: listing, reading,
cutting, embedding, storing and the full-text index, durable. The embedder alone has the very same inputs in lists
before its clock starts, and embeds them in batches of the same size from one thread (its tokenizer brings threads of
its own, in the sync as well). The tokenizer alone does the first half of that. A chunk is counted, and embedded by the
embedder alone, as often as it stands in the library; the sync buys the same text once.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import attrs

from benchmarks.measure import Child, Figure, interleaved, ratio, report, run_child, say, seconds_of
from embedkit.knowledge.searching.words import embedding_input
from embedkit.providers.static_model import StaticModel
from embedkit.settings import Settings

ROUNDS = 5
BATCH = Settings().batch_for()


@attrs.define
class Command:
    """The command line on one folder and one store.

    Attributes:
        folder: What is synced.
        store: The file; a cold run begins by removing it.
        cold: What the cold runs used and said.
    """

    folder: Path
    store: Path
    cold: list[tuple[Child, dict[str, Any]]] = attrs.field(factory=list)

    def run_cold(self) -> float:
        """Sync into a new store; seconds from start to exit."""
        for file in self.store.parent.glob(self.store.name + "*"):
            file.unlink()
        child = self._sync()
        said = json.loads(child.output)["repositories"][0]
        assert said["outcome"] == "complete", said
        self.cold.append((child, said))
        say(
            f"  cold: {said['embedded']:,} inputs in {child.seconds:.1f} s, {child.cpu_seconds:.1f} s of processor time"
        )
        return child.seconds

    def run_again(self) -> float:
        """Sync again, with nothing changed; seconds from start to exit."""
        child = self._sync()
        assert json.loads(child.output)["repositories"][0]["provider_calls"] == 0
        return child.seconds

    def _sync(self) -> Child:
        main = "import sys; from embedkit.surfaces.cli import main; sys.exit(main())"
        options = ["--json", "--store", str(self.store)]
        return run_child([sys.executable, "-c", main, "sync", str(self.folder), *options])


def copy_library(target: Path) -> None:
    """A copy of the standard library, without other people's packages and without compiled modules."""
    shutil.copytree(
        sysconfig.get_path("stdlib"), target, symlinks=True, ignore=shutil.ignore_patterns("*-packages", "__pycache__")
    )


def inputs_of(store: Path) -> list[str]:
    """What an embedder is given for each chunk of a store, in their order."""
    connection = sqlite3.connect(store)
    rows = connection.execute("SELECT scope, text FROM chunks ORDER BY id")
    inputs = [embedding_input(scope, text) for scope, text in rows]
    connection.close()
    return inputs


def batches_of(inputs: Sequence[str], size: int = BATCH) -> list[list[str]]:
    """The inputs in lists of ``size``."""
    rest = iter(inputs)
    return list(iter(lambda: list(islice(rest, size)), []))


def figures(folder: Path, store: Path, rounds: int = ROUNDS) -> list[Figure]:
    """Measure on ``folder``, with stores at ``store``."""
    command = Command(folder, store)
    command.run_cold()  # fills the file system's cache, and tells what the inputs are
    inputs = inputs_of(store)
    command.cold.clear()
    batches = batches_of(inputs)
    model = StaticModel.load()

    cold: list[float] = []
    processor: list[float] = []

    def cold_then_again() -> float:
        cold.append(command.run_cold())
        return command.run_again()

    def embed() -> float:
        before = time.process_time()
        seconds = seconds_of(partial(_each, model.embed, batches))
        processor.append(time.process_time() - before)
        return seconds

    def embed_on_one_core() -> float:
        # The tokenizer asks for it at each call.
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        try:
            return seconds_of(partial(_each, model.embed, batches))
        finally:
            del os.environ["TOKENIZERS_PARALLELISM"]

    works: dict[str, Callable[[], float]] = {
        "again": cold_then_again,
        "embedder": embed,
        "one core": embed_on_one_core,
        "tokenizer": partial(seconds_of, partial(_each, model.tokenize, batches)),
    }
    measured = interleaved(works, rounds)
    inside = [said["elapsed"] for _, said in command.cold]
    peak = max(child.peak_bytes for child, _ in command.cold)
    embedder, tokenizer = measured["embedder"], measured["tokenizer"]
    return [
        Figure("cold sync, start to exit / the embedder alone on one core", 0.7, ratio(measured["one core"], cold)),
        Figure("the same without the process's start and exit", None, ratio(measured["one core"], inside)),
        Figure("cold sync, start to exit / the embedder alone on all cores", None, ratio(embedder, cold)),
        Figure("the embedder alone / its tokenizer alone, chunks a second", 0.5, ratio(tokenizer, embedder)),
        Figure("peak memory of the cold sync", 400, peak / 1e6, "at most", "MB"),
        Figure("unchanged rerun / cold sync, seconds", 1 / 20, ratio(measured["again"], cold), "at most"),
        Figure(
            "processor time of the embedder alone / of the cold sync",
            None,
            ratio(processor, [child.cpu_seconds for child, _ in command.cold]),
        ),
        Figure("cold sync", None, len(inputs) / median(cold), unit="chunks/s"),
        Figure("the embedder alone on one core", None, len(inputs) / median(measured["one core"]), unit="chunks/s"),
        Figure("the embedder alone on all cores", None, len(inputs) / median(embedder), unit="chunks/s"),
    ]


def _each(work: Callable[[Sequence[str]], object], batches: Sequence[Sequence[str]]) -> None:
    for batch in batches:
        work(batch)


def main() -> int:
    """Measure in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="embedkit-bench-") as place:
        library = Path(place, "library")
        copy_library(library)
        return report("cold_sync", figures(library, Path(place, "store", "knowledge.db")))


if __name__ == "__main__":
    sys.exit(main())
