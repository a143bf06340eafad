"""Ctrl-C, SIGTERM, and readers that leave: in processes of their own, on real signals and real time."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import attrs
import pytest
import trio
from command_line import environment, settings_text
from fakes import numbered, write_tree
from processes import NOBODY, ForkServer, Started, within
from store_content import content_of, paths_in

from embedkit.testing.engine_rules import Behaviour, Rule
from embedkit.testing.scripted_engine import ScriptedEngine, open_scripted_engine

PATIENCE = 2.0


@attrs.frozen
class Place:
    folder: Path
    engine: ScriptedEngine
    released: trio.Event

    @property
    def store(self) -> Path:
        return self.folder / ".embedkit" / "knowledge.sqlite3"


@asynccontextmanager
async def stuck_engine(tmp_path: Path, *, after: int, files: int = 8) -> AsyncGenerator[Place]:
    """A folder ``docs``, and an engine that answers no request but the first ``after`` until it is released."""
    folder = tmp_path / "here"
    released = trio.Event()
    rules = [Rule(lambda request: request.number > after, Behaviour(until=released))]
    async with open_scripted_engine(rules=rules) as engine:
        write_tree(folder, {"embedkit.toml": settings_text(engine.openai_url)})
        write_tree(folder / "docs", numbered(files))
        yield Place(folder, engine, released)


async def ends_soon(command: Started, number: int, *, again: bool = False, seconds: float = PATIENCE) -> None:
    command.send(number)
    if again:
        await trio.sleep(0.05)  # real: two signals at once are one
        command.send(number)
    assert await within(seconds, command.wait) == 130
    assert command.err == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
async def test_a_signal_ends_a_sync_with_the_report_so_far_and_the_next_goes_on(
    tmp_path: Path, number: signal.Signals, server: ForkServer
) -> None:
    async with stuck_engine(tmp_path, after=3) as place:
        sync = server.start(place.folder, "sync", "docs", "--json")
        await place.engine.wait_for_requests(4)
        await ends_soon(sync, number)
        assert sync.json["status"] == "aborted"
        (report,) = sync.json["repositories"]
        assert (report["outcome"], report["embedded"], report["documents"]) == ("aborted", 3, 8)
        assert len(content_of(place.store).documents) == 3
        place.released.set()
        sync = server.start(place.folder, "sync", "docs", "--json")
        assert await sync.wait() == 0
        (report,) = sync.json["repositories"]
        assert (report["outcome"], report["embedded"]) == ("complete", 5)
        assert len(paths_in(place.store)) == 8


@pytest.mark.parametrize(("again", "seconds"), [(False, PATIENCE), (True, 1.0)])
async def test_a_thread_that_hangs_is_not_waited_for_and_after_a_second_signal_not_at_all(
    tmp_path: Path, again: bool, seconds: float, server: ForkServer
) -> None:
    """What was bought is being kept, shielded, and the database is held by somebody else."""
    async with stuck_engine(tmp_path, after=0) as place:
        sync = server.start(place.folder, "sync", "docs", "--json")
        await place.engine.wait_for_requests(1)
        with closing(sqlite3.connect(place.store, isolation_level=None)) as somebody:
            somebody.execute("BEGIN IMMEDIATE")
            place.released.set()
            await place.engine.wait_until(lambda log: log.records[0].outcome == "answered")
            await trio.sleep(0.1)  # real: until the answer is being written
            await ends_soon(sync, signal.SIGINT, again=again, seconds=seconds)
            somebody.execute("ROLLBACK")
        assert await server.start(place.folder, "sync", "docs").wait() == 0
        assert len(paths_in(place.store)) == 8


async def test_a_search_that_waits_for_its_engine_is_interrupted(tmp_path: Path, server: ForkServer) -> None:
    async with stuck_engine(tmp_path, after=2, files=2) as place:
        assert await server.start(place.folder, "sync", "docs").wait() == 0
        search = server.start(place.folder, "search", "text")
        await place.engine.wait_for_requests(3)
        await ends_soon(search, signal.SIGINT)
        assert search.out_file.read_text() == ""


async def test_of_two_processes_one_is_in_and_the_other_says_who(tmp_path: Path, server: ForkServer) -> None:
    async with stuck_engine(tmp_path, after=2) as place:
        first = server.start(place.folder, "sync", "docs", "--json")
        await place.engine.wait_for_requests(3)
        second = server.start(place.folder, "sync", "docs", "--json")
        assert await second.wait() == 3
        (report,) = second.json["repositories"]
        assert (report["outcome"], report["code"]) == ("deferred", "KB_REPOSITORY_LEASED")
        assert str(first.pid) in report["reason"]
        assert report["provider_calls"] == 0
        place.released.set()
        assert await first.wait() == 0
        assert len(paths_in(place.store)) == 8


INTERRUPTED_IN_IMPORT = """
import builtins, os, signal, sys
import embedkit_command
real, left = builtins.__import__, int(sys.argv.pop(1))
def imported(*arguments, **options):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGINT)
    return real(*arguments, **options)
builtins.__import__ = imported
sys.exit(embedkit_command.main())
"""


@pytest.mark.parametrize("number", [1, 40, 400, 1500])
def test_a_ctrl_c_while_the_command_is_loaded_is_one_line(tmp_path: Path, number: int) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IN_IMPORT, str(number), "status"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "embedkit: interrupted\n")


def test_a_reader_that_has_left_is_no_failure(tmp_path: Path, server: ForkServer) -> None:
    folder = tmp_path / "here"
    write_tree(folder / "docs", numbered(40))
    for command in (["sync", "docs"], ["sync", "docs", "--json"], ["search", "text", "-k", "50"], ["settings"]):
        gone = server.start(folder, *command, out=NOBODY)
        assert (gone.wait_here(), gone.err) == (0, ""), command


def test_output_that_cannot_be_written_is_said_in_one_line(tmp_path: Path, server: ForkServer) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("needs /dev/full")
    folder = write_tree(tmp_path / "here", {})
    settings = server.start(folder, "settings", out=full)
    assert settings.wait_here() == 1
    assert settings.err.startswith("embedkit: standard output cannot be written")
    assert settings.err.count("\n") == 1
