"""The store under a command: moved away beneath a sweep, and read by those who only read."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from command_line import COMMAND, Shell, environment
from fakes import FakeCall, FakeProvider, numbered, opened, tenant, write_tree

from embedkit.database import Database, open_database
from embedkit.errors import StoreMoved
from embedkit.surfaces.sync_command import _EXITS
from embedkit.sweep.sweep import open_sweep


def replace(path: Path) -> None:
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").replace(path)


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


MOVES: dict[str, Callable[[Path], object]] = {
    "deleted": Path.unlink,
    "renamed": lambda path: path.rename(path.with_name("elsewhere")),
    "replaced": replace,
    "cut to nothing": lambda path: os.truncate(path, 0),
    "its folder renamed": lambda path: path.parent.rename(path.parent.with_name("away")),
    "a folder in its place": make_folder,
}


@pytest.mark.parametrize("move", MOVES)
async def test_a_store_that_is_moved_beneath_a_sweep_is_a_named_failure(tmp_path: Path, move: str) -> None:
    """It was `completed`, with what was bought in a file without a name."""
    store = tmp_path / "kept" / "store.sqlite3"
    roots = [write_tree(tmp_path / name, numbered(8, name)) for name in "ab"]

    async def script(call: FakeCall) -> None:
        if call.number == 3:
            await trio.to_thread.run_sync(MOVES[move], store)

    provider = FakeProvider(script)
    async with opened(store, provider, concurrency=1) as engine:
        tenants = [tenant("acme", a=roots[0]), tenant("globex", b=roots[1])]
        async with open_sweep(engine, tenants, all=True) as sweep:
            report = await sweep.run()
    assert (report.status, _EXITS[report.status]) == ("failed", 1)
    assert "KB_STORE_MOVED" in {item.code for item in report.repositories}
    assert {item.outcome for item in report.repositories} <= {"failed", "complete"}
    (failed, *_) = [item for item in report.repositories if item.code == "KB_STORE_MOVED"]
    assert "it was removed, renamed or replaced while it was in use" in (failed.reason or "")
    assert len(provider.calls) <= 6, "vectors are bought for a store that is gone"


@pytest.mark.parametrize("move", MOVES)
async def test_nothing_is_read_or_committed_under_another_files_name(tmp_path: Path, move: str) -> None:
    path = tmp_path / "kept" / "store.sqlite3"

    def insert(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO notes VALUES (1)")
        MOVES[move](path)

    async def refuses(database: Database, work: Callable[[sqlite3.Connection], object]) -> None:
        with pytest.raises(StoreMoved):
            await database.write(work)
        with pytest.raises(StoreMoved):
            await database.read(lambda connection: connection.execute("SELECT * FROM notes").fetchall())

    async with open_database(path) as database:
        await database.write(lambda connection: connection.execute("CREATE TABLE notes (n)"))
        await refuses(database, insert)
    assert not path.exists() or path.is_dir() or move in ("replaced", "cut to nothing")


def test_an_empty_file_is_no_store(shell: Shell) -> None:
    shell.store.parent.mkdir()
    shell.store.touch()
    for command in (("status",), ("search", "apple")):
        ended = shell(*command)
        assert ended.code == 2
        ended.check_one_line("no store at", "embedkit sync")
    assert shell.store.stat().st_size == 0
    write_tree(shell.folder / "docs", {"fruit.txt": "apple\n"})
    assert shell("sync", "docs").code == 0
    assert len(shell("search", "apple", "--json").json["hits"]) == 1


def test_readers_take_no_write_lock(shell: Shell) -> None:
    write_tree(shell.folder / "docs", {"fruit.txt": "apple\n"})
    shell("sync", "docs")
    other = sqlite3.connect(shell.store, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        other.execute("UPDATE tenants SET version = version + 1")
        assert len(shell("search", "apple", "--json", "--mode", "text").json["hits"]) == 1
        assert shell("status", "--json").json["access"] == {"ready": 1, "degraded": 0}
    finally:
        other.close()


FULL = f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
{COMMAND[2]}
"""


@pytest.mark.parametrize("write_ahead", [False, True])
def test_readers_need_no_room_on_the_disk(shell: Shell, write_ahead: bool) -> None:
    """No file may grow by a byte, as on a disk that is full."""
    write_tree(shell.folder / "docs", {"fruit.txt": "apple\n"})
    shell("sync", "docs")
    other = None
    if write_ahead:  # a process at work: its changes are seen
        other = sqlite3.connect(shell.store, isolation_level=None)
        other.execute("UPDATE repositories SET outstanding = 3")
    try:
        for command, expected in ((["search", "apple", "--mode", "text"], "apple"), (["status"], "default/docs")):
            ended = subprocess.run(
                [sys.executable, "-c", FULL, *command, "--store", str(shell.store)],
                capture_output=True, cwd=shell.folder, env=environment(), text=True, timeout=60,
            )  # fmt: skip
            assert (ended.returncode, expected in ended.stdout) == (0, True), ended.stderr
            assert "Traceback" not in ended.stderr
            if command == ["status"]:
                assert ("3 documents outstanding" in ended.stdout) is write_ahead
    finally:
        if other is not None:
            other.close()
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 0


async def test_a_search_beside_a_sync_finds_what_is_there_before_and_after(tmp_path: Path) -> None:
    """8 % of 3,876 searches found nothing: candidates and texts were of two states."""
    root, store = write_tree(tmp_path / "root", numbered(12, "apple")), tmp_path / "store.sqlite3"
    acme = [tenant("acme", api=root)]
    found: list[int] = []
    async with opened(store) as writing, opened(store) as reading:
        async with open_sweep(writing, acme, all=True) as sweep:
            await sweep.run()

        async def search(mode: str) -> None:
            while True:
                hits = await reading.search("apple", tenant="acme", mode=mode, k=5)  # type: ignore[arg-type]
                assert all("apple" in hit.text for hit in hits)
                found.append(len(hits))

        async with trio.open_nursery() as nursery:
            for mode in ("text", "hybrid", "vector"):
                nursery.start_soon(search, mode)
            for turn in range(12):
                write_tree(root, numbered(12, f"{turn} apple"))
                async with open_sweep(writing, acme, all=True) as sweep:
                    assert (await sweep.run()).status == "completed"
            nursery.cancel_scope.cancel()
    assert len(found) > 20
    assert set(found) == {5}
