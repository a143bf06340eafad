# ruff: noqa: E501  # lists of nasties read best as they are
"""Any tree ends as complete, or as failed in one line, and never as another tenant's trouble."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from fakes import numbered, opened, tenant, write_tree

from embedkit.settings import RepositorySettings, TenantSettings
from embedkit.sweep.sweep import open_sweep

NAMES = [
    *(b"a", b"b.py", b"c.md", b"d.json", b"e.ipynb", b"f.csv", b"g.c", b"h.ts", b"i.sql", b"j.txt", b"K.java", b"l.rs"),
    *(
        b".gitignore",
        b".ignore",
        b".env",
        b"node_modules",
        b"\xff\xfe",
        b"new\nline",
        b"back\\slash",
        b" ",
        b"~",
        b"-rf",
    ),
    *(b"\xe6\xbc\xa2\xe5\xad\x97", b"e\xcc\x81", b"x" * 200, b"[z-a]", b"*", b"..."),
]
SNIPPETS = [
    *(b"*a" * 14 + b"b\n", b"[z-a]\n", b"[[:bad:]]\n", b"!*\n", b"\\\n", b"**/**/**\n", b"*.py\n", b"a/\n"),
    *(b"\0", b"\xef\xbb\xbf", b"\xff\xfe", b"\r", b"\r\n", b"def f(:\n", b'"""', b"```\n", b"| a | b |\n|---|---|\n"),
    *(b"{[(", b'{"cells": [{"cell_type": "code", "source": ["x"]}]}', b"---\na: b\n---\n", b"@Override\n", b"#[derive(\n"),
    *(b"*" * 48 + b"[t]" + b"*" * 20 + b"\n", b"# x" + b" " * 230 + b"x\n", b"plain words\n", b"class A {\n  b() {\n  }\n}\n"),
    *("中文字\n".encode("gb18030"), "Привет\n".encode("cp1251"), "日本語\n".encode("shift_jis"), b"-----BEGIN PRIVATE KEY-----\n"),
    *(b"version https://git-lfs.github.com/spec/v1\n", b"// @generated\n", b"INSERT INTO t VALUES (1);\n", b"1,2,3\n"),
]  # fmt: skip


def some_bytes(chance: random.Random) -> bytes:
    kind = chance.random()
    if kind < 0.15:
        return chance.randbytes(chance.randint(0, 4000))
    if kind < 0.3:
        return bytes(chance.choices(b"ab*#[](){}<>/\\\"'`|=-_:;,.&~ \t\r\n0A\xe9", k=chance.randint(1, 3000)))
    return b"".join(chance.choices(SNIPPETS, k=chance.randint(0, 12))) * chance.choice([1, 1, 1, 30])


def make_tree(root: Path, chance: random.Random, *, pipes: bool = True) -> None:
    """A small tree of whatever a file system may hold."""
    raw = os.fsencode(root)
    folders = [raw]
    for _ in range(chance.randint(1, 14)):
        place = os.path.join(chance.choice(folders), chance.choice(NAMES))
        try:
            kind = chance.random()
            if kind < 0.25:
                os.mkdir(place)
                folders.append(place)
            elif kind < 0.35:
                os.symlink(chance.choice([b"..", b".", b"nowhere", b"/", b"a"]), place)
            elif kind < 0.4 and pipes:
                os.mkfifo(place)
            else:
                with open(place, "xb") as file:
                    file.write(some_bytes(chance))
        except OSError:
            continue  # it is there already


def damage(folder: Path, chance: random.Random) -> None:
    """Spoil a few of the files that git keeps."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in chance.sample(files, min(len(files), chance.randint(1, 3))):
        kind = chance.random()
        path.chmod(0o644)
        if kind < 0.3:
            path.unlink()
        elif kind < 0.5:
            path.unlink()
            path.mkdir()
        elif kind < 0.75:
            path.write_bytes(some_bytes(chance))
        else:
            path.write_bytes(path.read_bytes()[: chance.randint(0, 40)])


def make_repository(root: Path, chance: random.Random) -> None:
    from dulwich import porcelain

    make_tree(root, chance, pipes=False)  # porcelain would read an ignore file that is a pipe, for ever
    with porcelain.init(str(root)) as repository:
        try:
            porcelain.add(repository)
            porcelain.commit(repository, message=b"m", author=b"A <a@b>", committer=b"A <a@b>")
        except Exception:  # names that git itself does not take: what has come so far is a repository too
            return


async def fuzz(tmp_path: Path, seed: int, rounds: int) -> None:
    chance = random.Random(seed)
    good = write_tree(tmp_path / "good", numbered(2))
    for number in range(rounds):
        root = tmp_path / f"tree{number}"
        root.mkdir()
        tenants = [tenant("fuzzed", api=root), tenant("good", api=good)]
        if chance.random() < 0.3:
            pytest.importorskip("dulwich", reason="the git extra is not installed")
            make_repository(root, chance)
            damage(root / ".git", chance)
            address = chance.choice([str(root), f"file://{root}"])
            described = RepositorySettings(name="api", git=address)
            tenants[0] = TenantSettings(name="fuzzed", repositories=(described,))
        else:
            make_tree(root, chance)
        async with opened(tmp_path / f"store{number}.sqlite3", batch=16) as engine:
            for _ in range(2):
                async with open_sweep(engine, tenants, all=True) as sweep:
                    fuzzed, other = (await sweep.run()).repositories
                assert other.outcome == "complete", (seed, number)
                assert fuzzed.outcome in ("complete", "failed"), (seed, number, fuzzed)
                assert fuzzed.code != "KB_SOURCE_DEFECT", (seed, number, fuzzed)
                assert fuzzed.code != "KB_CHUNKING_FAILED", (seed, number, fuzzed)
                assert "\n" not in (fuzzed.reason or ""), (seed, number)
                if chance.random() < 0.5 and root.is_dir():
                    make_tree(root, chance)


@pytest.mark.parametrize("seed", range(2))
async def test_any_tree_ends_as_complete_or_failed_in_one_line(tmp_path: Path, seed: int) -> None:
    await fuzz(tmp_path, seed, 25)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 200))
async def test_ten_thousand_trees_end_as_complete_or_failed_in_one_line(tmp_path: Path, seed: int) -> None:
    await fuzz(tmp_path, seed, 100)
