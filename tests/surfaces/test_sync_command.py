from __future__ import annotations

import importlib.util
import os
import resource
import shlex
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from command_line import Shell, in_a_process, settings_text
from fakes import numbered, write_tree
from processes import ForkServer
from store_content import paths_in

from embedkit.providers import local

REPOSITORY_KEYS = [
    "tenant", "name", "outcome", "code", "reason", "attribution", "revision", "documents", "skipped", "chunks",
    "embedded", "reused", "deleted", "fenced", "provider_calls", "clocks", "elapsed", "next_due_in", "last",
]  # fmt: skip


def refused_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_the_report_in_json_and_what_a_second_run_says(shell: Shell) -> None:
    write_tree(shell.folder / "docs", numbered(3))
    first = shell("sync", "docs", "--json")
    assert (first.code, first.err) == (0, "")
    document = first.json
    assert list(document) == ["run", "status", "circuit", "repositories"]
    assert (document["status"], document["circuit"]) == ("completed", None)
    (report,) = document["repositories"]
    assert set(REPOSITORY_KEYS) <= set(report)
    assert (report["tenant"], report["name"], report["outcome"]) == ("default", "docs", "complete")
    assert (report["documents"], report["chunks"], report["embedded"], report["provider_calls"]) == (3, 3, 3, 1)
    assert set(report["clocks"]) == {"queue_wait", "provider_time", "retry_wait"}
    (again,) = shell("sync", "docs", "--json").json["repositories"]
    assert (again["embedded"], again["provider_calls"], again["revision"]) == (0, 0, report["revision"])


def test_the_report_for_people(shell: Shell) -> None:
    write_tree(shell.folder / "docs", numbered(3))
    (shell.folder / "docs" / "picture.txt").write_bytes(b"\0\1\2")
    ended = shell("sync", "docs")
    assert (ended.code, ended.err) == (0, "")
    assert "default/docs: complete; 3 documents, 3 chunks; 3 vectors bought, 1 call in " in ended.out
    assert "left out: 1 binary" in ended.out
    assert ended.out.endswith("sync completed: done\n")


def test_the_store_lies_here_and_no_repository_takes_it_in(shell: Shell) -> None:
    write_tree(shell.folder, {"one.txt": "one\n"})
    for _ in range(2):
        assert shell("sync", ".").code == 0
    assert paths_in(shell.store) == ["one.txt"]
    assert (shell.store.parent / ".gitignore").read_text() == "*\n"


def test_another_store_lies_where_it_is_said(shell: Shell) -> None:
    write_tree(shell.folder / "docs", {"one.txt": "one\n"})
    assert shell("sync", "docs", "--store", "deep/own.sqlite3").code == 0
    assert paths_in(shell.folder / "deep" / "own.sqlite3") == ["one.txt"]
    assert not shell.store.exists()


def test_two_folders_of_one_name_are_two_repositories(shell: Shell) -> None:
    for place in ("x/api", "y/api"):
        write_tree(shell.folder / place, {"one.txt": f"{place}\n"})
    reports = shell("sync", "x/api", "y/api", "--json").json["repositories"]
    assert [report["name"] for report in reports] == ["api", "y/api"]


def test_an_empty_repository_is_complete(shell: Shell) -> None:
    (shell.folder / "empty").mkdir()
    ended = shell("sync", "empty", "--json")
    assert ended.code == 0
    assert ended.json["repositories"][0]["outcome"] == "complete"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sync", "nowhere"], ["nowhere", "is not there"]),
        (["sync", "file.txt"], ["file.txt", "is no folder"]),
        (["sync", "docs", "docs"], ["docs", "named twice"]),
        (["sync", "docs", "../here/docs"], ["named twice"]),
        (["sync", "loop"], ["loop", "symbolic links"]),
        (["sync", "docs/one.txt/below"], ["docs/one.txt/below"]),
        (["sync", "a\0b"], ["null"]),
        (["sync", "x" * 300], ["too long"]),
        (["sync"], ["nothing to sync", "embedkit sync FOLDER"]),
        (["sync", "--all"], ["nothing to sync"]),
        (["sync", "docs", "--provider", "nobody"], ["nobody", "local"]),
        (["sync", "docs", "--config", "missing.toml"], ["missing.toml", "no such file"]),
        (["sync", "docs", "--nonsense"], ["--nonsense", "--help"]),
        (["nonsense"], ["nonsense"]),
        (["search"], ["QUERY"]),
        (["search", "x", "-k", "0"], ["-k", "positive"]),
        (["search", "x", "--mode", "magic"], ["magic"]),
        (["search", "x"], ["no store at", "embedkit sync"]),
        (["status"], ["no store at"]),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None,
)
def test_what_cannot_be_is_said_in_one_line_and_in_one_document(
    shell: Shell, arguments: list[str], said: list[str]
) -> None:
    write_tree(shell.folder / "docs", {"one.txt": "one\n"})
    (shell.folder / "file.txt").write_text("x")
    (shell.folder / "loop").symlink_to("loop")
    ended = shell(*arguments)
    assert (ended.code, ended.out) == (2, "")
    ended.check_one_line(*said)
    assert not shell.store.exists()

    as_json = shell(*arguments, "--json")
    assert (as_json.code, as_json.err) == (2, "")
    error = as_json.json["error"]
    assert list(error) == ["kind", "message", "file", "line", "key"]
    assert all(part in error["message"] for part in said)


@pytest.mark.parametrize(
    ("text", "line", "key", "said"),
    [
        ("version = 1\n[sweep]\nconcurrency = 'four'\n", 3, "sweep.concurrency", "four"),
        ("version = 1\n[sweep]\nconcurency = 4\n", 3, "sweep.concurency", "concurrency"),
        ("version = 1\n[sweep\n", 2, None, "TOML"),
        ("version = 2\n", 1, "version", "2"),
        ("version = 1\n[embedding]\nprovider = 'nobody'\n", 3, "embedding.provider", "nobody"),
    ],
)
def test_a_settings_file_that_is_wrong(shell: Shell, text: str, line: int, key: str | None, said: str) -> None:
    write_tree(shell.folder, {"embedkit.toml": text, "docs/one.txt": "one\n"})
    ended = shell("sync", "docs")
    assert ended.code == 2
    ended.check_one_line(f"embedkit.toml:{line}: ", said)
    error = shell("sync", "docs", "--json").json["error"]
    assert (error["kind"], error["file"], error["line"], error["key"]) == ("settings", "embedkit.toml", line, key)


def test_a_key_that_is_not_set(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BOX_KEY", raising=False)
    text = settings_text("http://127.0.0.1:9/v1").replace("[embedding]", 'api_key_env = "BOX_KEY"\n[embedding]')
    write_tree(shell.folder, {"embedkit.toml": text, "docs/one.txt": "one\n"})
    ended = shell("sync", "docs")
    assert ended.code == 2
    ended.check_one_line("BOX_KEY")


def test_a_store_of_another_space(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(shell.folder / "docs", numbered(2))
    assert shell("sync", "docs").code == 0
    monkeypatch.setattr(local.LocalProvider, "model", "another-model")
    for arguments in (["sync", "docs"], ["search", "text"]):
        ended = shell(*arguments)
        assert (ended.code, ended.out) == (2, "")
        ended.check_one_line("another-model", "holds vectors of", "--store")
    assert shell("sync", "docs", "--json").json["error"]["kind"] == "space"
    assert shell("search", "text", "--mode", "text").code == 0


@pytest.mark.parametrize("command", [["sync", "docs"], ["search", "x"], ["status"]], ids=lambda command: command[0])
def test_a_store_that_cannot_be_used_is_no_usage_error(shell: Shell, command: list[str]) -> None:
    write_tree(shell.folder / "docs", numbered(2))
    garbage, damaged, foreign = (shell.folder / name for name in ("garbage", "damaged", "foreign"))
    garbage.write_bytes(b"this is no database " * 200)
    assert shell("sync", "docs", "--store", damaged).code == 0
    half = damaged.read_bytes()
    damaged.write_bytes(half[:4096] + b"\xff" * (len(half) - 4096))
    with closing(sqlite3.connect(foreign)) as connection:
        connection.execute("CREATE TABLE somebody_elses (x)")
    for store, said in ((garbage, "not a database"), (damaged, "damaged"), (foreign, "another program's")):
        held = store.read_bytes()
        ended = shell(*command, "--store", store)
        assert (ended.code, ended.out) == (1, ""), store
        ended.check_one_line(str(store), said)
        assert shell(*command, "--store", store, "--json").json["error"]["kind"] == "store"
        if store != damaged:
            assert store.read_bytes() == held
    assert shell(*command, "--store", shell.folder / "docs").code == 1


def test_odd_files_are_left_out_or_taken_as_they_are(shell: Shell) -> None:
    root = write_tree(shell.folder / "odd", {"good.txt": "good\n", "sub/loop/here.txt": "here\n"})
    with (root / "huge.txt").open("wb") as huge:
        huge.truncate(200 * 1024 * 1024)
    (root / "nulls.txt").write_bytes(b"\0" * 5000)
    (root / "latin.txt").write_bytes("na\u00efve caf\u00e9\n".encode("latin-1"))
    (root / "sub" / "loop" / "up").symlink_to("..")
    (root / "circle").symlink_to("circle")
    (root / "out").symlink_to("/etc")
    os.mkfifo(root / "pipe")
    for name in (b"two\nlines.txt", b"not-utf8-\xff.txt", b"back\\slash.txt", b"\x1b[31mred.txt"):
        (root / os.fsdecode(name)).write_text(f"text of {name!r}\n")
    ended = shell("sync", "odd", "--json")
    assert (ended.code, ended.err) == (0, "")
    (report,) = ended.json["repositories"]
    assert report["skipped"] == {"oversized": 1, "binary": 1, "symlink": 3, "unreadable": 1}
    assert paths_in(shell.store) == sorted(
        ["good.txt", "latin.txt", "sub/loop/here.txt", r"two\nlines.txt", r"not-utf8-\xff.txt", r"back\\slash.txt",
         r"\u001b[31mred.txt"]
    )  # fmt: skip
    assert shell("sync", "odd", "--json").json["repositories"][0]["embedded"] == 0
    found = shell("search", "text of red", "--mode", "text")
    assert "\x1b" not in found.out
    assert r"\u001b[31mred.txt:1" in found.out


@pytest.mark.parametrize("name", [b"bad-\xff", b"two\nlines", b"-dash", b"tab\there", b" "], ids=repr)
def test_a_folder_of_an_odd_name_is_a_repository(shell: Shell, name: bytes) -> None:
    folder = write_tree(shell.folder / os.fsdecode(name), {"one.txt": "one\n"})
    ended = shell("sync", f"./{folder.name}", "--json")
    if not name.strip():  # a name that nobody could type or see
        assert ended.code == 2
        return
    assert (ended.code, ended.err) == (0, "")
    assert ended.json["repositories"][0]["name"].isprintable()
    assert shell("status").code == 0


def test_an_unreadable_file_is_counted_and_the_rest_is_stored(shell: Shell) -> None:
    if os.geteuid() == 0:
        pytest.skip("the superuser reads every file; the folder source's own tests fake the refusal")
    root = write_tree(shell.folder / "docs", {"one.txt": "one\n", "two.txt": "two\n"})
    (root / "two.txt").chmod(0)
    ended = shell("sync", "docs", "--json")
    assert ended.code == 0
    assert ended.json["repositories"][0]["skipped"] == {"unreadable": 1}


def test_an_engine_that_is_not_there_leaves_work_and_fails_nothing(shell: Shell) -> None:
    url = f"http://127.0.0.1:{refused_port()}/v1"
    write_tree(shell.folder, {"embedkit.toml": settings_text(url), "docs/one.txt": "one\n"})
    ended = shell("sync", "docs", "--json")
    assert ended.code == 3
    document = ended.json
    assert (document["status"], document["circuit"]) == ("deferred", None)
    (report,) = document["repositories"]
    assert (report["outcome"], report["code"]) == ("deferred", "KB_VECTOR_EMBED_CONNECTION_REFUSED")
    assert report["provider_calls"] == 2
    people = shell("status").out
    assert "KB_VECTOR_EMBED_CONNECTION_REFUSED" in people
    assert "1 document outstanding" in people


TENANTS = """
version = 1
[[tenants]]
name = "acme"
repositories = [{ name = "api", path = "api" }, { name = "off", path = "gone", enabled = false }]
[[tenants]]
name = "other"
repositories = [{ name = "api", path = "api" }]
"""


def test_the_tenants_of_the_settings_are_swept_when_due_and_all_of_them_if_asked(shell: Shell) -> None:
    write_tree(shell.folder, {"embedkit.toml": TENANTS, "api/one.txt": "one\n"})
    first = shell("sync", "--json").json["repositories"]
    assert [(report["tenant"], report["name"], report["embedded"]) for report in first] == [
        ("acme", "api", 1),
        ("other", "api", 1),
    ]
    again = shell("sync", "--json")
    assert (again.code, {report["outcome"] for report in again.json["repositories"]}) == (0, {"not-due"})
    (shell.folder / "api" / "two.txt").write_text("two\n")
    every = shell("sync", "--all", "--json").json["repositories"]
    assert [report["embedded"] for report in every] == [1, 1]


def test_a_settings_file_of_a_parent_gives_provider_and_store(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(shell.folder, {"embedkit.toml": 'version = 1\n[store]\npath = "own.db"\n', "sub/docs/one.txt": "one\n"})
    monkeypatch.chdir(shell.folder / "sub")
    assert shell("sync", "docs").code == 0
    assert paths_in(shell.folder / "own.db") == ["one.txt"]


def test_a_repository_that_is_gone_fails_the_run_and_not_its_neighbour(shell: Shell) -> None:
    text = TENANTS.replace("enabled = false", "enabled = true")
    write_tree(shell.folder, {"embedkit.toml": text, "api/one.txt": "one\n"})
    ended = shell("sync", "--json")
    assert ended.code == 1
    outcomes = {(report["tenant"], report["name"]): report["outcome"] for report in ended.json["repositories"]}
    assert outcomes == {("acme", "api"): "complete", ("acme", "off"): "failed", ("other", "api"): "complete"}
    (shell.folder / "gone").mkdir()
    (shell.folder / "gone" / "two.txt").write_text("two\n")
    again = shell("sync")
    assert again.code == 0, again.out  # what failed was mended, and the same command goes on
    assert "acme/off: complete" in again.out


def test_a_second_failure_waits_and_the_command_that_goes_on_is_shown(shell: Shell) -> None:
    text = TENANTS.replace("enabled = false", "enabled = true")
    write_tree(shell.folder, {"embedkit.toml": text, "api/one.txt": "one\n"})
    for _ in range(2):
        ended = shell("sync")
        assert "acme/off: failed" in ended.out
        assert "  due: in " in ended.out
    waiting = shell("sync", "--config", "embedkit.toml")
    assert waiting.code == 1
    assert "acme/off: not due for 2.0 h; last failed: " in waiting.out
    assert waiting.out.endswith(
        "sync starved: nothing is due, and some repositories never succeeded\n"
        "  go on at once: embedkit sync --config embedkit.toml --all\n"
    )
    (shell.folder / "gone").mkdir()
    (shell.folder / "gone" / "two.txt").write_text("two\n")
    assert shell(*waiting.out.split("go on at once: embedkit ")[1].split()).code == 0


def test_folders_that_were_put_off_go_on_with_the_command_that_is_shown(shell: Shell) -> None:
    write_tree(shell.folder, {"embedkit.toml": settings_text("http://127.0.0.1:9/v1"), "my docs/one.txt": "one\n"})
    ended = shell("sync", "my docs", "--exclude", "*.log")
    assert ended.code == 3
    command = ended.out.split("go on at once: embedkit ")[1]
    assert shlex.split(command) == ["sync", "--exclude", "*.log", "my docs"]
    assert shell(*shlex.split(command), "--provider", "local").code == 0


def test_a_disk_that_is_full_is_named_and_what_was_committed_is_kept(tmp_path: Path, server: ForkServer) -> None:
    """A bound on the size of files stands for the disk's: SQLite is told of both in the same way."""
    folder, store = tmp_path / "here", tmp_path / "here" / "small.db"
    write_tree(folder / "docs", {f"{number}.txt": f"word{number} " * 200 for number in range(100)})
    assert server.start(folder, "sync", "docs", "--store", "small.db").wait_here() == 0
    before = paths_in(store)
    write_tree(folder / "docs", {f"more{number}.txt": f"other{number} " * 400 for number in range(100)})
    sync = server.start(folder, "sync", "docs", "--json", "--store", "small.db")
    limit = store.stat().st_size // 4
    resource.prlimit(sync.pid, resource.RLIMIT_FSIZE, (limit, limit))
    assert sync.wait_here() == 1
    assert "Traceback" not in sync.err
    assert "small.db" in sync.out_file.read_text()
    assert set(before) <= set(paths_in(store))
    assert server.start(folder, "sync", "docs", "--store", "small.db").wait_here() == 0
    assert len(paths_in(store)) == 200


def test_a_real_command_on_the_real_model(tmp_path: Path) -> None:
    if importlib.util.find_spec("wordllama") is None:
        pytest.skip("the embedded model is not installed")
    write_tree(tmp_path / "docs", {"calendar.txt": "parse a date\n", "kitchen.txt": "boil an egg\n"})
    assert in_a_process(tmp_path, "sync", "docs").code == 0
    found = in_a_process(tmp_path, "search", "cook breakfast", "--mode", "vector", "-k", "1", "--json")
    assert (found.code, found.err) == (0, "")
    assert found.json["hits"][0]["path"] == "kitchen.txt"
