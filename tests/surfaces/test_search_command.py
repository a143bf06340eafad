from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Shell
from fakes import numbered, write_tree
from processes import ForkServer

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
        assert list(document) == ["query", "mode", "hits"]
        assert (document["query"], document["mode"]) == ("apple pear", mode)
        hit = document["hits"][0]
        assert list(hit) == ["score", "tenant", "repository", "path", "lines", "text"]
        assert (hit["tenant"], hit["repository"], hit["path"]) == ("default", "docs", "fruit.txt")
        assert hit["lines"] == [1, 2]
        assert hit["text"].split() == ["apple", "pear"]


def test_hits_for_people(shell: Shell) -> None:
    write_tree(
        shell.folder / "docs", {"long.txt": "".join(f"apple\x1b[2J \t{number} {'x' * 300}\n" for number in range(9))}
    )
    shell("sync", "docs")
    ended = shell("search", "apple")
    head, *lines = ended.out.splitlines()
    assert head.endswith("default/docs  long.txt:1-9") or "long.txt:" in head
    assert "\x1b" not in ended.out
    assert max(map(len, lines)) <= 114


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
    ["", " ", '"', "AND", "NEAR(a b)", "a* OR -b", "tenant:t1", "\x00", "'; DROP TABLE chunks", "\udcff", "ß" * 5000],
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
