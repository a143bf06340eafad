from __future__ import annotations

from command_line import Shell
from fakes import write_tree


def test_a_store_is_backed_up_and_put_back(shell: Shell) -> None:
    write_tree(shell.folder, {"docs/one.txt": "apples\n"})
    shell("sync", "docs")
    ended = shell("backup", "copy.sqlite3")
    assert ended.code == 0
    assert "1 repository, 1 chunk" in ended.out
    shell("forget", "--tenant", "default", "--yes")
    ended = shell("restore", "copy.sqlite3", "--json")
    assert ended.code == 0
    assert (ended.json["repositories"], ended.json["chunks"], ended.json["aside"]) == (1, 1, None)
    assert len(shell("search", "apples", "--json").json["hits"]) == 1
    assert shell("backup", "copy.sqlite3", "--json").json["chunks"] == 1
    again = shell("sync", "docs", "--json").json["repositories"][0]
    assert (again["outcome"], again["embedded"]) == ("complete", 0)


def test_what_cannot_be_is_one_line(shell: Shell) -> None:
    write_tree(shell.folder, {"docs/one.txt": "apples\n"})
    ended = shell("backup", "copy.sqlite3")
    assert ended.code == 2
    ended.check_one_line("no store at")
    shell("sync", "docs")
    for arguments, code, said in (
        (("backup", "docs"), 2, "is a folder"),
        (("backup", "docs/one.txt"), 2, "is no backup"),
        (("restore", "nothing"), 2, "is no file"),
        (("restore", "docs/one.txt"), 1, "it is no store of embedkit"),
    ):
        ended = shell(*arguments)
        assert ended.code == code
        ended.check_one_line(said)
    assert (shell.folder / "docs/one.txt").read_text() == "apples\n"
