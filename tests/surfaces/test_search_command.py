from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command_line import Shell
from fakes import numbered, write_tree
from processes import ForkServer

from embedkit import database_opening

SETTINGS = """
version = 1
[[tenants]]
name = "acme"
repositories = [{ name = "api", path = "acme" }, { name = "site", path = "site" }]
[[tenants]]
name = "other"
repositories = [{ name = "api", path = "other" }]
"""


@pytest.fixture
def two_tenants(shell: Shell) -> Shell:
    texts = {"embedkit.toml": SETTINGS, "site/same.txt": "apple of site\n"}
    texts |= {f"{name}/same.txt": f"apple of {name}\n" for name in ("acme", "other")}
    write_tree(shell.folder, texts)
    assert shell("sync").code == 0
    return shell


def test_hits_in_json(shell: Shell) -> None:
    write_tree(shell.folder / "docs", {"fruit.txt": "apple\npear\n", "trees/oak.txt": "oak\n"})
    shell("sync", "docs")
    for mode in ("hybrid", "vector", "text"):
        ended = shell("search", "apple pear", "--json", "--mode", mode)
        assert (ended.code, ended.err) == (0, "")
        document = ended.json
        assert list(document) == ["version", "query", "mode", "hits"]
        jsonschema.validate(document, shell("search", "--schema").json)
        assert (document["query"], document["mode"]) == ("apple pear", mode)
        hit = document["hits"][0]
        assert hit["root"] == str(shell.folder / "docs")
        assert (hit["tenant"], hit["repository"], hit["path"]) == ("default", "docs", "fruit.txt")
        assert hit["lines"] == [1, 2]
        assert hit["text"].split() == ["apple", "pear"]


def test_hits_for_people(shell: Shell) -> None:
    write_tree(
        shell.folder / "docs", {"long.txt": "".join(f"apple\x1b[2J \t{number} {'x' * 300}\n" for number in range(9))}
    )
    shell("sync", "docs")
    ended = shell("search", "apple")
    (line, *_) = ended.out.splitlines()
    assert line.startswith("docs/long.txt:1  apple")
    assert line.endswith("xxx...")
    assert len(line) == 200
    assert "\x1b" not in ended.out


def test_a_hit_is_a_line_that_opens_from_where_one_stands(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    code = '"""Fruit."""\n\n\ndef peel(apple):\n    """Peel an apple."""\n    return apple\n'
    write_tree(shell.folder / "docs", {"sub/fruit.py": code, "pear.md": "# Pears\n\nA pear is green.\n"})
    shell("sync", "docs")
    monkeypatch.chdir(shell.folder / "docs" / "sub")
    assert shell("search", "peel", "an", "apple", "-k", "1").out == "fruit.py:4  def peel(apple):\n"
    assert shell("search", "green", "pear", "-k", "1").out == "../pear.md:3  A pear is green.\n"
    assert shell("search", "green pear", "-l").out.splitlines() == ["../pear.md", "fruit.py"]
    around = shell("search", "peel an apple", "-k", "1", "--context", "1").out.splitlines()
    assert around[1:] == ["       3", "       4  def peel(apple):", '       5      """Peel an apple."""']
    assert "default/docs  lines 1-6" in shell("search", "peel an apple", "-k", "1", "-v").out


def test_the_store_of_a_parent_is_found_and_variables_name_another(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(shell.folder, {"docs/one.txt": "one\n", "other/two.txt": "two\n", "far.toml": "version = 1\n"})
    shell("sync", "docs")
    monkeypatch.chdir(shell.folder / "docs")
    assert shell("search", "one", "-l").out == "one.txt\n"
    assert shell("status").out.startswith(f"store: {shell.store}; settings: no file\n")
    monkeypatch.setenv("EMBEDKIT_STORE", str(shell.folder / "own.db"))
    monkeypatch.setenv("EMBEDKIT_CONFIG", str(shell.folder / "far.toml"))
    assert shell("sync", "../other").code == 0
    assert shell("search", "two", "-l").out == "../other/two.txt\n"
    status = shell("status", "--json").json
    assert (status["store"], status["settings"]) == (str(shell.folder / "own.db"), str(shell.folder / "far.toml"))
    assert "# EMBEDKIT_STORE" in shell("settings").out
    assert shell("status", "--store", str(shell.store), "--json").json["store"] == str(shell.store)
    monkeypatch.setenv("EMBEDKIT_STORE", " ")
    monkeypatch.setenv("EMBEDKIT_CONFIG", "")
    assert shell("search", "one", "-l").out == "one.txt\n"


def test_nothing_to_look_for_is_refused(shell: Shell) -> None:
    write_tree(shell.folder / "docs", numbered(2))
    shell("sync", "docs")
    for query in ("", "  "):
        ended = shell("search", query)
        assert ended.code == 2
        ended.check_one_line("search for what?")


def test_no_hits_are_no_failure(shell: Shell) -> None:
    write_tree(shell.folder / "docs", numbered(2))
    shell("sync", "docs")
    ended = shell("search", "zebra", "--mode", "text")
    assert (ended.code, ended.out) == (0, "nothing found\n")
    assert shell("search", "zebra", "--mode", "text", "--json").json["hits"] == []


def test_several_tenants_must_be_told_apart(two_tenants: Shell) -> None:
    ended = two_tenants("search", "apple")
    assert (ended.code, ended.out) == (2, "")
    ended.check_one_line("acme, other", "--tenant", "--all-tenants")
    for tenant, found in (("acme", ["apple of acme", "apple of site"]), ("other", ["apple of other"])):
        hits = two_tenants("search", "apple", "--tenant", tenant, "--json").json["hits"]
        assert sorted(hit["text"].strip() for hit in hits) == found
    every = two_tenants("search", "apple", "--all-tenants", "--json").json["hits"]
    assert sorted(hit["tenant"] for hit in every) == ["acme", "acme", "other"]
    assert [hit["score"] for hit in every] == sorted((hit["score"] for hit in every), reverse=True)
    assert len(two_tenants("search", "apple", "--all-tenants", "-k", "2", "--json").json["hits"]) == 2


def test_one_repository(two_tenants: Shell) -> None:
    hits = two_tenants("search", "apple", "--tenant", "acme", "--repository", "site", "--json").json["hits"]
    assert [hit["text"].strip() for hit in hits] == ["apple of site"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tenant", "nobody"], "acme, other"),
        (["--tenant", "other", "--repository", "site"], "api"),
        (["--all-tenants", "--repository", "nothing"], "api, site"),
        (["--all-tenants", "--tenant", "acme"], "--tenant"),
    ],
)
def test_what_the_store_does_not_have_is_named(two_tenants: Shell, arguments: list[str], said: str) -> None:
    ended = two_tenants("search", "apple", *arguments)
    assert ended.code == 2
    ended.check_one_line(said)


@pytest.mark.parametrize(
    "query",
    ['"', "AND", "NEAR(a b)", "a* OR -b", "tenant:t1", "\x00", "'; DROP TABLE chunks", "\udcff", "ß" * 5000],
    ids=lambda query: repr(query[:10]),
)
def test_any_query_is_a_query(shell: Shell, query: str) -> None:
    write_tree(shell.folder / "docs", numbered(2))
    shell("sync", "docs")
    for arguments in ([], ["--json"]):
        ended = shell("search", *arguments, "--", query)
        assert (ended.code, ended.err) == (0, "")
    assert shell("search", "--json", "-k", "9" * 40, "--", query).json["query"] == query


def test_what_the_terminal_cannot_spell_is_escaped(tmp_path: Path, server: ForkServer) -> None:
    folder = tmp_path / "here"
    write_tree(folder / "docs", {"one.txt": "Ärger\n"})
    assert server.start(folder, "sync", "docs").wait_here() == 0
    for encoding, shown in (("utf-8", "Ärger"), ("ascii", r"\xc4rger")):
        search = server.start(folder, "search", "Ärger \udcff", "--mode", "text", encoding=encoding)
        assert (search.wait_here(), search.err) == (0, "")
        assert shown in search.out_file.read_text(encoding="utf-8")
        search = server.start(folder, "search", "Ärger \udcff", "--mode", "text", "--json", encoding=encoding)
        assert (search.wait_here(), search.err) == (0, "")
        assert search.json["query"] == "Ärger \udcff"
        assert search.json["hits"][0]["text"].strip() == "Ärger"


def test_no_store_is_a_usage_error_and_makes_none(shell: Shell) -> None:
    ended = shell("search", "apple")
    assert ended.code == 2
    ended.check_one_line(str(shell.store), "embedkit sync")
    assert not shell.store.parent.exists()


@pytest.mark.parametrize("unseen", [False, True])
def test_a_store_in_a_folder_that_cannot_be_written_is_searched(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, unseen: bool
) -> None:
    """ox#873, codegraph#1863: refused."""
    write_tree(shell.folder / "docs", {"fruit.txt": "apple\n"})
    shell("sync", "docs")
    store = shell.folder / ".embedkit" / "knowledge.sqlite3"
    before = store.read_bytes()
    if unseen:
        store.with_name(store.name + "-wal").write_bytes(b"x")
    access, connect = os.access, database_opening.connect

    def without_writing(place: Any, mode: int, **options: Any) -> bool:
        return mode != os.W_OK and access(place, mode, **options)

    def connecting(path: Path, mode: str, busy_timeout: float) -> sqlite3.Connection:
        assert mode in ("ro", "ro&immutable=1")
        if mode == "ro":
            raise sqlite3.OperationalError("unable to open database file")
        return connect(path, mode, busy_timeout)

    monkeypatch.setattr(os, "access", without_writing)
    monkeypatch.setattr(database_opening, "connect", connecting)
    for mode in ("hybrid", "vector", "text"):
        ended = shell("search", "apple", "--json", "--mode", mode)
        assert (ended.code, len(ended.json["hits"])) == (0, 1)
    assert ("its newest changes lie in knowledge.sqlite3-wal" in caplog.text) is unseen
    assert store.read_bytes() == before
    ended = shell("sync", "docs")
    assert ended.code == 1
    assert "no write access" in ended.err


def test_what_is_looked_for_by_path_language_score_and_likeness(shell: Shell) -> None:
    write_tree(shell.folder / "docs", {"a.py": "apple = 1\n", "b.md": "apple\n", "sub/c.py": "pear = 2\n"})
    shell("sync", "docs")

    def found(*arguments: str) -> list[str]:
        return sorted(hit["path"] for hit in shell("search", *arguments, "--json").json["hits"])

    assert found("apple", "--path", "sub/") == ["sub/c.py"]
    assert found("apple", "--lang", "python") == ["a.py", "sub/c.py"]
    assert found("apple", "--min-score", "2") == []
    assert found("--like", "a.py:1") == ["b.md", "sub/c.py"]
    for arguments in (("--like", "a.py"), (), ("apple", "--like", "a.py:1"), ("apple", "--min-score", "x")):
        ended = shell("search", *arguments)
        assert ended.code == 2
        ended.check_one_line()
