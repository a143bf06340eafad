from __future__ import annotations

import signal
from pathlib import Path

import pytest
from command_line import Shell
from fakes import write_tree
from processes import running, within
from store_content import content_of

pytest.importorskip("watchfiles")

SETTINGS = """
version = 1
[store]
path = "link/site/own.sqlite3"
[[tenants]]
name = "acme"
repositories = [{ name = "api", path = "link/api" }, { name = "site", path = "link/site" },
                { name = "off", path = "real/off", enabled = false }]
"""


async def test_changes_are_picked_up_by_any_path_and_the_stores_own_writes_are_none(tmp_path: Path) -> None:
    """The folders are reached through a symbolic link, and the store lies in one of them."""
    real = write_tree(tmp_path / "real", {"api/one.txt": "one\n", "site/one.txt": "one\n", "off/one.txt": "one\n"})
    (tmp_path / "link").symlink_to("real")
    write_tree(tmp_path, {"embedkit.toml": SETTINGS})
    async with running(tmp_path, "watch", "--json") as watch:
        first = await watch.json(0)
        assert (first["status"], len(first["repositories"])) == ("completed", 2)
        # What is never indexed comes first: had it counted, its repository would be in the report.
        write_tree(real, {"site/.git/index": "no document\n", "off/two.txt": "two\n", "api/two.txt": "two\n"})
        (report,) = (await watch.json(1))["repositories"]
        assert (report["name"], report["documents"], report["embedded"]) == ("api", 2, 1)
        (real / "api" / "one.txt").unlink()
        (report,) = (await watch.json(2))["repositories"]
        assert (report["name"], report["documents"], report["deleted"]) == ("api", 1, 1)
        (real / "site" / "two.txt").write_text("two\n")
        (report,) = (await watch.json(3))["repositories"]
        assert (report["name"], report["documents"]) == ("site", 2)
        watch.process.send_signal(signal.SIGINT)
        assert await within(1.5, watch.process.wait) == 130  # before the process would end itself the hard way
        assert watch.out.count(b"\n") == 4
    stored = [(row[1], row[2]) for row in content_of(real / "site" / "own.sqlite3").documents]
    assert stored == [("api", "two.txt"), ("site", "one.txt"), ("site", "two.txt")]


@pytest.mark.parametrize("place", ["nowhere", "file.txt"])
def test_what_cannot_be_watched(shell: Shell, place: str) -> None:
    (shell.folder / "file.txt").write_text("x")
    ended = shell("watch", place)
    assert ended.code == 2
    ended.check_one_line(place)


def test_a_folder_of_the_settings_that_is_gone_and_one_that_is_git(shell: Shell) -> None:
    head = "version = 1\n[[tenants]]\nname = 'acme'\nrepositories = [{ name = 'api', "
    for repository, said in (("path = 'gone'", "gone"), ("git = 'https://example.org/x.git'", "nothing to watch")):
        (shell.folder / "embedkit.toml").write_text(f"{head}{repository} }}]\n")
        ended = shell("watch")
        assert ended.code == 2
        ended.check_one_line(said)


def test_a_store_that_cannot_be_used_ends_the_watch_in_one_line(shell: Shell) -> None:
    write_tree(shell.folder, {"docs/one.txt": "one\n", "garbage": "this is no database " * 200})
    ended = shell("watch", "docs", "--store", "garbage")
    assert (ended.code, ended.out) == (1, "")
    ended.check_one_line("garbage", "not a database")
    assert shell("watch", "docs", "--store", "garbage", "--json").json["error"]["kind"] == "store"
