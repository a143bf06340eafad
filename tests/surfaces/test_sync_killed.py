"""``kill -9`` of a real ``embedkit sync``, again and again: the next run goes on, and loses and doubles nothing."""

from __future__ import annotations

import random
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from command_line import settings_text
from fakes import write_tree
from processes import ForkServer
from store_content import Content, content_of

from embedkit.testing.scripted_engine import ScriptedEngine, open_scripted_engine

SLOTS = 2
BATCH = 3
SERVICE = 0.002


@pytest.mark.parametrize("kills", [pytest.param(12), pytest.param(200, marks=pytest.mark.soak)])
async def test_killed_at_random_moments(tmp_path: Path, kills: int, server: ForkServer) -> None:
    draw = random.Random(kills)
    folder = tmp_path / "here"

    async def run(*more: str) -> int:
        return await server.start(folder, "sync", "docs", *more).wait()

    async with open_scripted_engine(slots=SLOTS, service=SERVICE) as engine:
        write_tree(folder, {"embedkit.toml": settings_text(engine.openai_url, capacity=SLOTS, batch=BATCH)})
        write_tree(folder / "docs", {f"first{number}.txt": f"first {number}\n" for number in range(30)})
        killed = 0
        for turn in range(kills):
            change(folder / "docs", turn, draw)
            sync = server.start(folder, "sync", "docs")
            await some_moment(engine, draw)
            sync.send(signal.SIGKILL)
            killed += await sync.wait() == -signal.SIGKILL
            holds_together(folder)
        assert killed > kills // 2
        assert await run() == 0
        calls = len(engine.log.records)
        assert await run() == 0
        assert len(engine.log.records) == calls, "nothing is left to buy"
        held = content_of(folder / ".embedkit" / "knowledge.sqlite3")
        asked = Counter(hash_ for record in engine.log.records for hash_ in record.hashes)

        assert await run("--store", "undisturbed.sqlite3") == 0
    assert held == content_of(folder / "undisturbed.sqlite3")
    # Bought twice is at most what each kill found under way.
    assert sum(asked.values()) - len(asked) <= killed * 2 * SLOTS * BATCH


def change(root: Path, turn: int, draw: random.Random) -> None:
    """Add, change, delete and rename: whatever is under way for the old texts is for nothing."""
    write_tree(root, {f"turn{turn:03}-{number}.txt": f"turn {turn} number {number}\n" for number in range(20)})
    present = sorted(root.iterdir())
    edits: list[Callable[[Path], object]] = [
        lambda path: path.unlink(),
        lambda path: path.write_text(f"changed in turn {turn}: {path.name}\n"),
        lambda path: path.rename(path.with_name(f"renamed{turn}-{path.name}")),
    ]
    for path in draw.sample(present, 6):
        draw.choice(edits)(path)
    for path in present[: max(len(present) - 60, 0)]:
        path.unlink(missing_ok=True)


async def some_moment(engine: ScriptedEngine, draw: random.Random) -> None:
    """Anywhere in a run: by requests, so that it does not depend on how fast the machine is, and a little later."""
    requests = len(engine.log.records) + draw.randrange(5)
    with trio.move_on_after(0.5):
        await engine.wait_for_requests(requests)
    await trio.sleep(draw.random() * 0.03)  # real: a commit takes a few milliseconds, and may be hit anywhere


def holds_together(folder: Path) -> Content | None:
    store = folder / ".embedkit" / "knowledge.sqlite3"
    if not store.exists():
        return None
    try:
        return content_of(store)
    except sqlite3.OperationalError as error:  # killed before it had made its tables
        if "no such table" not in str(error):
            raise
        return None
