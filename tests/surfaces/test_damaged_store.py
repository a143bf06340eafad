"""Whatever value a store holds, a command ends with one line and no traceback, and ``doctor`` says the way out."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
import trio
from command_line import Ended, Shell
from damage import columns, damage, fill, make_all_tables
from fakes import write_tree

COMMANDS = (
    ("status",),
    ("search", "apples", "--all-tenants"),
    ("drain", "--once"),
    ("probe",),
    ("sync", "docs"),
    ("backup", "copy"),
)


def check(shell: Shell, base: Path, table: str, column: str, kind: str) -> None:
    store = base.with_name(f"{table}-{column}.sqlite3")
    shutil.copyfile(base, store)
    damage(store, table, column, kind)

    def run(*arguments: str) -> Ended:
        return shell(*arguments, "--store", store)

    for command in COMMANDS:
        ended = run(*command)  # a traceback comes out of it
        assert ended.code in (0, 1, 2, 3), (table, column, command)
        assert "Traceback" not in ended.err
        if ended.code == 1 and ended.err:
            assert str(store) in ended.err.splitlines()[-1], (table, column, command, ended.err)
    repaired = run("doctor", "--repair")
    if table in ("space", "schema_versions"):
        assert repaired.code == 1
        assert "embedkit restore FILE" in repaired.out
    else:
        assert repaired.code == 0, (table, column, repaired.out)
        again = run("sync", "docs", "--json")
        assert again.code == 0
        assert len(run("search", "apples", "--tenant", "default", "--json").json["hits"]) == 2


@pytest.fixture
def base(shell: Shell, tmp_path: Path) -> Path:
    write_tree(shell.folder, {"docs/one.txt": "apples\n", "docs/two.md": "# pears\n"})
    shell("sync", "docs")
    trio.run(make_all_tables, shell.store)
    fill(shell.store)
    path = tmp_path / "base"
    shutil.copyfile(shell.store, path)
    return path


def test_some_columns(shell: Shell, base: Path) -> None:
    chosen = random.Random(7).sample(columns(base), 2)
    for table, column, kind in (*chosen, ("chunks", "start_line", "INTEGER")):
        check(shell, base, table, column, kind)


@pytest.mark.soak
def test_every_column(shell: Shell, base: Path) -> None:
    for table, column, kind in columns(base):
        check(shell, base, table, column, kind)


def test_doctor_reads_the_store_where_it_is_asked_to(shell: Shell, base: Path) -> None:
    assert "is whole" not in shell("doctor").out
    assert "is whole" in shell("doctor", "--store").out
    assert "is whole" in shell("doctor", "--store", base).out
    damage(shell.store, "chunks", "text", "TEXT")
    ended = shell("doctor", "--store")
    assert ended.code == 1
    assert "in table chunks, text is no UTF-8" in ended.out
    assert "embedkit doctor --store --repair" in ended.out
    ended = shell("doctor", "--store", "--repair", "--json")
    assert [each["state"] for each in ended.json["findings"] if each["check"] == "damage"] == ["note", "warning"]
    assert shell("sync", "docs", "--json").json["repositories"][0]["embedded"] == 0
