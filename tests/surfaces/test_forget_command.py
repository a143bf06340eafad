"""``embedkit forget`` (nibdex#2, kodit#242: a repository that was deleted stayed searchable and "ready" for ever)."""

from __future__ import annotations

import shutil

from command_line import Shell
from fakes import write_tree
from store_content import content_of


def test_a_repository_is_forgotten_and_the_other_stays(shell: Shell) -> None:
    write_tree(shell.folder, {"docs/one.txt": "apples\n", "docs/both.txt": "pears\n", "site/both.txt": "pears\n"})
    assert shell("sync", "docs", "site").code == 0
    asked = shell("forget", "--repository", "docs")
    assert asked.code == 2
    assert "say --yes" in asked.err
    ended = shell("forget", "--repository", "docs", "--yes", "--json")
    assert ended.code == 0
    assert ended.json == {"forgotten": [{"tenant": "default", "name": "docs"}], "documents": 2, "chunks": 2}
    assert shell("search", "apples", "--mode", "text", "--json").json["hits"] == []
    assert [hit["repository"] for hit in shell("search", "pears", "--json").json["hits"]] == ["site"]
    content = content_of(shell.folder / ".embedkit" / "knowledge.sqlite3")
    assert ([row[1] for row in content.documents], content.unused) == (["site"], 0)


def test_a_tenant_is_forgotten_with_all_that_is_kept_for_it(shell: Shell) -> None:
    write_tree(shell.folder, {"docs/one.txt": "apples\n"})
    shell("sync", "docs")
    assert shell("forget", "--tenant", "default", "--yes").out == "forgotten: default/docs; 1 document, 1 chunk\n"
    assert shell("status", "--json").json["repositories"] == []
    ended = shell("search", "apples", "--tenant", "default")
    assert (ended.code, ended.out) == (2, "")
    assert shell("sync", "docs").code == 0
    assert len(shell("search", "apples", "--json").json["hits"]) == 1


def test_what_cannot_be_forgotten_is_one_line(shell: Shell) -> None:
    write_tree(shell.folder, {"docs/one.txt": "apples\n"})
    assert shell("forget", "--tenant", "x", "--yes").code == 2  # there is no store
    shell("sync", "docs")
    for arguments, said in (
        ((), "forget what?"),
        (("--tenant", "x"), "the store has no tenant 'x'; it has default"),
        (("--repository", "x"), "tenant default has no repository 'x'; it has docs"),
    ):
        ended = shell("forget", *arguments, "--yes")
        assert ended.code == 2
        ended.check_one_line(said)


def test_status_and_search_say_what_nothing_names_any_more(shell: Shell) -> None:
    write_tree(shell.folder, {"docs/one.txt": "apples\n", "api/one.txt": "pears\n"})
    head = "version = 1\n[[tenants]]\nname = 'acme'\nrepositories = [{ name = 'api', path = 'api' }]\n"
    (shell.folder / "embedkit.toml").write_text(head)
    shell("sync")
    shell("sync", "docs")
    assert [item["named"] for item in shell("status", "--json").json["repositories"]] == [True, True]
    shutil.rmtree(shell.folder / "docs")
    (shell.folder / "embedkit.toml").write_text(head.replace("acme", "other"))
    assert [item["named"] for item in shell("status", "--json").json["repositories"]] == [False, False]
    shown = shell("status").out
    assert "no settings name it: `embedkit forget --tenant acme --repository api` removes it" in shown
    assert "its folder is gone: `embedkit forget --tenant default --repository docs` removes it" in shown
    ended = shell("search", "pears", "--tenant", "acme")
    assert ended.code == 0
    assert "no settings name tenant acme any more" in ended.err
