from __future__ import annotations

import os
import sqlite3
import time
from functools import partial
from pathlib import Path

import pytest
import trio
from command_line import Ended, Shell, in_a_process
from fakes import FakeCall, FakeProvider, numbered, opened, until, write_tree
from trio.testing import MockClock

from embedkit.activity import tables
from embedkit.activity.disk import read_lanes
from embedkit.activity.process import this_process
from embedkit.admission.snapshot import snapshot_from
from embedkit.admission.waiting import Priority
from embedkit.admission.whose_turn import whose_turn
from embedkit.database import open_database
from embedkit.engine import Engine


def test_the_shape_of_a_status(shell: Shell) -> None:
    write_tree(shell.folder / "docs", numbered(3))
    shell("sync", "docs")
    ended = shell("status", "--json")
    assert (ended.code, ended.err) == (0, "")
    status = ended.json
    promised = ["at", "age", "lanes", "probe", "access", "config", "repositories", "activity"]
    assert [key for key in status if key in promised] == promised
    (lane,) = status["lanes"]
    assert {"provider", "capacity", "in_flight", "waiting", "longest_wait", "totals"} <= set(lane)
    assert (lane["provider"], lane["in_flight"], lane["waiting"]) == ("local", 0, {})
    totals = lane["totals"]
    assert (totals["offered"], totals["succeeded"], totals["queued"], totals["in_flight"]) == (1, 1, 0, 0)
    assert status["access"] == {"ready": 1, "degraded": 0}
    assert status["config"] == {"repositories": 0, "disabled": 0, "errors": []}
    (repository,) = status["repositories"]
    assert (repository["tenant"], repository["name"], repository["outstanding"]) == ("default", "docs", 0)
    assert (repository["streak"], repository["last"]["outcome"], repository["last"]["code"]) == (0, "complete", None)
    assert set(repository["last"]["clocks"]) == {"queue_wait", "provider_time", "retry_wait"}
    assert 0 < repository["next_due_in"] <= 1800
    (row,) = status["activity"]
    assert "ingestion" in str(row)


def test_no_text_and_no_credential_stands_in_a_status(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOX_KEY", "sk-very-secret")
    text = """
version = 1
[providers.box]
kind = "openai-compatible"
base_url = "http://127.0.0.1:9/v1"
model = "m"
api_key_env = "BOX_KEY"
[[tenants]]
name = "acme"
repositories = [{ name = "docs", path = "docs" }, { name = "gone", path = "gone" },
                { name = "git", git = "https://user:hidden@example.org/x.git", enabled = false }]
"""
    write_tree(shell.folder, {"embedkit.toml": text, "docs/one.txt": "confidential words\n"})
    synced = shell("sync", "--json")
    assert synced.code == 1, synced
    for ended in (synced, shell("sync"), shell("status"), shell("status", "--json"), shell("settings")):
        for secret in ("confidential", "sk-very-secret", "hidden"):
            assert secret not in ended.out + ended.err
    assert shell("status", "--json").json["config"]["disabled"] == 1
    assert "gone" in str(shell("status", "--json").json["config"]["errors"])


def test_a_status_changes_nothing_and_calls_nobody(shell: Shell) -> None:
    write_tree(shell.folder / "docs", numbered(3))
    shell("sync", "docs")
    held = shell.store.read_bytes()
    for _ in range(2):
        assert shell("status").code == 0
    assert shell.store.read_bytes() == held


def test_the_settings_in_force_and_their_schema(shell: Shell) -> None:
    write_tree(shell.folder, {"embedkit.toml": "version = 1\n[sweep]\nconcurrency = 7\n"})
    ended = shell("settings")
    assert (ended.code, ended.err) == (0, "")
    assert "embedkit.toml:3" in ended.out
    assert shell("settings", "--json").code == 0
    assert '"$schema"' in shell("settings", "--schema").out


def test_a_provider_without_a_lane_is_not_shown_as_one(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "g-key")
    text = """
version = 1
[providers.far]
kind = "gemini"
base_url = "http://127.0.0.1:9/v1beta"
model = "m"
[embedding]
provider = "far"
"""
    write_tree(shell.folder, {"embedkit.toml": text, "docs/one.txt": "words\n"})
    assert shell("sync", "docs").code == 3
    assert shell("status", "--json").json["lanes"] == []
    assert "  far: remote, without a lane; in flight 0\n" in shell("status").out


async def offer(engine: Engine, nursery: trio.Nursery, *tickets: tuple[Priority, str]) -> None:
    """One after the other, each by a caller of its own that waits."""
    statistics = engine.lane("fake").statistics
    for priority, tenant in tickets:
        before = statistics().totals.offered
        nursery.start_soon(partial(engine.embed, ["text"], priority=priority, tenant=tenant))
        while statistics().totals.offered == before:
            await trio.lowlevel.checkpoint()


async def test_another_process_reads_whose_turn_it_is(tmp_path: Path) -> None:
    """Law 4 in words, through the file: a lane with people, two tenants and a batch that is out."""
    released = trio.Event()

    async def script(call: FakeCall) -> None:
        await released.wait()

    store = tmp_path / "store.sqlite3"

    async def status(*flags: str) -> Ended:
        return await trio.to_thread.run_sync(in_a_process, tmp_path, "status", "--store", store, *flags)

    async with opened(store, FakeProvider(script)) as engine, trio.open_nursery() as nursery:
        await engine.knowledge()
        await offer(engine, nursery, ("batch", "acme"))
        await until(lambda: engine.lane("fake").statistics().totals.in_flight == 1)
        await offer(engine, nursery, ("interactive", "acme"), ("batch", "zoo"), ("batch", "acme"))
        # The ledger's writer has its second to write this.
        with trio.fail_after(20):
            while True:
                (fake,) = [lane for lane in (await status("--json")).json["lanes"] if lane["provider"] == "fake"]
                if fake["processes"] and fake["processes"][0]["totals"]["queued"] == 3:
                    break
        (process,) = fake["processes"]
        said = "people are next, level with batch; batch is next at 30 ahead"
        assert (process["pid"], process["turn"]) == (os.getpid(), said)
        assert (process["capacity"], process["queued"]) == (1, {"interactive": 1, "batch": 2})
        assert [one["class"] for one in process["accounts"]] == ["interactive", "batch", "probe"]
        assert {(one["class"], one["tenant"]) for one in process["furthest_behind"]} == {
            ("interactive", "acme"), ("batch", "acme"), ("batch", "zoo")
        }  # fmt: skip
        assert f"\n    process {os.getpid()}: {said}\n" in (await status()).out
        released.set()
    # The engine has ended: nobody is owed anything now.
    (fake,) = [lane for lane in (await status("--json")).json["lanes"] if lane["provider"] == "fake"]
    assert (fake["processes"], fake["totals"]["succeeded"]) == ([], 4)


async def test_people_are_ahead_by_the_engine_time_that_they_had(tmp_path: Path, mock_clock: MockClock) -> None:
    async def script(call: FakeCall) -> None:
        await trio.sleep(12.0)

    store = tmp_path / "store.sqlite3"
    async with opened(store, FakeProvider(script)) as engine, trio.open_nursery() as nursery:
        await engine.knowledge()
        statistics = engine.lane("fake").statistics
        people: tuple[Priority, str] = ("interactive", "acme")
        await offer(engine, nursery, people, people, ("batch", "acme"), people)
        mock_clock.jump(12.0)  # the first person has had 12 s, and the second is charged as much
        await until(lambda: statistics().totals.succeeded == 1)
        mock_clock.jump(1.0)
        async with open_database(store, create=False) as reader:
            with trio.fail_after(600):
                while True:
                    stored = await read_lanes(reader, time.time())
                    if stored and stored[0].snapshot["totals"]["succeeded"] == 1:
                        break
        assert whose_turn(snapshot_from(stored[0].snapshot)) == "people are 24 s ahead; batch is next at 30"
        mock_clock.autojump_threshold = 0.0  # the rest need not be waited for


def test_a_process_of_another_version_is_named_and_hides_nothing(shell: Shell) -> None:
    write_tree(shell.folder / "docs", numbered(3))
    shell("sync", "docs")
    connection = sqlite3.connect(shell.store)
    writer = tables.add_writer(this_process(), time.time(), connection)
    tables.write_snapshots(writer, {"local": '{"capacity": "many"}'}, time.time() - 240.0, connection)
    connection.commit()
    connection.close()
    pid = os.getpid()
    assert f"    process {pid}: written by another version of embedkit (unchanged for 4 min)\n" in shell("status").out
    (lane,) = shell("status", "--json").json["lanes"]
    (process,) = lane["processes"]
    assert (process["pid"], process["turn"]) == (pid, None)


def test_of_many_repositories_those_in_trouble_are_shown(shell: Shell) -> None:
    names = [f"r{number:02}" for number in range(25)]
    listed = ", ".join(f"{{ name = '{name}', path = '{name}' }}" for name in names)
    tenants = f"[[tenants]]\nname = 'acme'\nrepositories = [{listed}]\n"
    tenants += "[[tenants]]\nname = 'other'\nrepositories = [{ name = 'docs', path = 'docs' }]\n"
    (shell.folder / "embedkit.toml").write_text(f"version = 1\n{tenants}")
    write_tree(shell.folder, {f"{name}/one.txt": "apples\n" for name in (*names, "docs")})
    shell("sync")
    lines = [line for line in shell("status").out.splitlines() if line.startswith("  acme/")]
    assert lines == []
    assert "  26 repositories are well" in shell("status").out
    (shell.folder / "r07").rename(shell.folder / "elsewhere")
    out = shell("status").out
    assert "25 repositories ready, 1 degraded" in out
    assert "r07 is not there: what is stored is kept" in next(line for line in out.splitlines() if "acme/r07" in line)
    assert "  25 repositories are well" in out
    troubled = shell("status", "--trouble", "--json").json["repositories"]
    assert [(each["name"], each["trouble"]) for each in troubled] == [("r07", True)]
    assert [each["name"] for each in shell("status", "--tenant", "other", "--json").json["repositories"]] == ["docs"]
    assert len([line for line in shell("status", "--tenant", "acme").out.splitlines() if "acme/" in line]) == 25
    ended = shell("status", "--tenant", "nobody")
    assert ended.code == 2
    ended.check_one_line("the store has no tenant 'nobody'; it has acme, other")
