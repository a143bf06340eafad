"""Backups are of one instant, and are put back whole or not at all."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import trio
from fakes import vectors_of
from knowledge_base import open_store, prepared, put
from store_content import content_of

from embedkit import database_copying
from embedkit.database import open_database
from embedkit.errors import StoreError, StoreFull, StoreLocked, StoreUnreadable, UsageError
from embedkit.knowledge.searching.search import Query
from embedkit.knowledge.storing.backup import back_up, restore
from embedkit.knowledge.storing.leases import Leased


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite3"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "backup.sqlite3"


async def filled(path: Path, *texts: str, name: str = "docs") -> None:
    async with open_store(path) as opened:
        await put(opened, "acme", name, *(prepared(f"{text}.txt", text) for text in texts))


def content(path: Path) -> bytes:
    return path.read_bytes()


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_a_backup_is_the_store_in_one_file_and_comes_back(store: Path, file: Path) -> None:
    await filled(store, "apples", "pears")
    before = content_of(store)
    made = await back_up(store, file)
    assert (made.file, made.bytes, made.repositories, made.chunks) == (file, len(content(file)), 1, 2)
    assert left_in(file.parent) == ["backup.sqlite3", "store.sqlite3"]
    assert content_of(file) == before
    await filled(store, "plums", name="site")
    assert content_of(store) != before
    done = await restore(file, store)
    assert (done.repositories, done.chunks, done.aside) == (1, 2, None)
    assert content_of(store) == before


async def test_nobody_who_writes_or_reads_waits_for_a_backup(
    store: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_copying, "_PAGES_AT_ONCE", 1)
    await filled(store, "apples")
    before = content_of(store)
    begun, go_on = threading.Event(), threading.Event()
    check = trio.from_thread.check_cancelled

    def pause() -> None:
        begun.set()
        assert go_on.wait(20)
        check()

    monkeypatch.setattr(trio.from_thread, "check_cancelled", pause)
    async with open_store(store) as opened, trio.open_nursery() as nursery:
        nursery.start_soon(back_up, store, file)
        await trio.to_thread.run_sync(begun.wait)
        with trio.fail_after(10):
            await put(opened, "acme", "site", prepared("plums.txt", "plums"))
            assert len(await opened.search(Query(tenants=["acme"], text="plums", mode="text"))) == 1
        go_on.set()
    assert content_of(file) == before
    assert len(content_of(store).documents) == 2


async def test_a_restore_is_seen_by_who_has_the_store_open(store: Path, file: Path) -> None:
    """Numbers of chunks mean others afterwards: neither the matrix in memory nor a lease is used on."""
    await filled(store, "apples")
    await back_up(store, file)
    async with open_store(store) as opened:
        await put(opened, "acme", "docs", prepared("other.txt", "plums"))
        await put(opened, "acme", "site", prepared("pears.txt", "pears"))
        vectors = dict(zip(("apples", "plums", "pears"), vectors_of(["apples", "plums", "pears"], 8), strict=True))

        async def nearest(word: str) -> tuple[str, float]:
            query = vectors[word] / (vectors[word] @ vectors[word]) ** 0.5
            hit = (await opened.search(Query(tenants=["acme"], vector=query, mode="vector", k=1)))[0]
            return hit.text, round(hit.score, 5)

        assert await nearest("plums") == ("plums", 1.0)
        record = await opened.repository("acme", "docs")
        lease = await opened.lease(record)
        await restore(file, store)
        with pytest.raises(Leased):
            await opened.remove(record, lease, ["apples.txt"])
        await put(opened, "acme", "docs", prepared("new.txt", "pears"))  # has a number that `plums` had
        assert await nearest("pears") == ("pears", 1.0)
        assert await nearest("apples") == ("apples", 1.0)


async def test_a_store_is_made_where_there_is_none(store: Path, file: Path, tmp_path: Path) -> None:
    await filled(store, "apples")
    await back_up(store, file)
    elsewhere = tmp_path / "new" / ".embedkit" / "knowledge.sqlite3"
    await restore(file, elsewhere)
    assert content_of(elsewhere) == content_of(store)
    assert left_in(elsewhere.parent) == [".gitignore", "knowledge.sqlite3"]


async def test_a_store_that_is_open_can_be_restored_from(store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite3"
    async with open_store(store) as opened:
        await put(opened, "acme", "docs", prepared("apples.txt", "apples"))  # still in the write-ahead file
        await restore(store, copy)
    assert content_of(copy) == content_of(store)


def cut_short(path: Path) -> None:
    with path.open("rb+") as stream:
        stream.truncate(path.stat().st_size // 2)


def overwritten(path: Path) -> None:
    with path.open("rb+") as stream:
        stream.seek(8192)
        stream.write(b"\xff" * 4096)


def text(path: Path) -> None:
    path.write_text("these are my notes\n" * 100)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def others(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (a)")
        connection.commit()


def changed(statement: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(statement)
            connection.commit()

    return change


newer = changed("UPDATE schema_versions SET version = 99 WHERE component = 'knowledge'")
no_number = changed("UPDATE schema_versions SET version = 'x' WHERE component = 'knowledge'")
no_base = changed("DELETE FROM schema_versions WHERE component = 'knowledge'")


@pytest.mark.parametrize("damage", [cut_short, overwritten, text, empty, others, newer, no_number, no_base])
async def test_what_is_no_backup_is_refused_and_changes_nothing(
    damage: Callable[[Path], None], store: Path, file: Path
) -> None:
    await filled(store, *(f"text {number} " * 40 for number in range(40)))
    await back_up(store, file)
    damage(file)
    before = content_of(store)
    with pytest.raises(StoreUnreadable) as caught:
        await restore(file, store)
    assert "\n" not in str(caught.value)
    assert str(file) in str(caught.value)
    assert content_of(store) == before
    assert left_in(store.parent) == ["backup.sqlite3", "store.sqlite3"]


@pytest.mark.parametrize("damage", [cut_short, overwritten])
async def test_a_damaged_store_does_not_replace_a_backup(
    damage: Callable[[Path], None], store: Path, file: Path
) -> None:
    await filled(store, *(f"text {number} " * 40 for number in range(40)))
    await back_up(store, file)
    before = content(file)
    damage(store)
    with pytest.raises(StoreUnreadable, match=r"store\.sqlite3: it is damaged"):
        await back_up(store, file)
    assert content(file) == before
    assert ".partial" not in str(left_in(file.parent))


@pytest.mark.parametrize("damage", [cut_short, overwritten, text])
async def test_a_damaged_store_is_restored_and_what_cannot_be_opened_is_kept(
    damage: Callable[[Path], None], store: Path, file: Path
) -> None:
    await filled(store, *(f"text {number} " * 40 for number in range(40)))
    await back_up(store, file)
    before = content_of(store)
    damage(store)
    shutil.copyfile(store, store.with_name("kept"))
    done = await restore(file, store)
    assert content_of(store) == before
    assert (done.aside is not None) == (damage is not overwritten)  # that one opens: only some of its pages are lost
    if done.aside is not None:
        assert content(done.aside) == content(store.with_name("kept"))


async def test_another_programs_database_is_not_overwritten(store: Path, file: Path) -> None:
    await filled(store, "apples")
    await back_up(store, file)
    others(store)
    before = content(store)
    with pytest.raises(StoreUnreadable, match="another program's"):
        await restore(file, store)
    with pytest.raises(UsageError, match="no backup"):
        await back_up(file, store)
    assert content(store) == before


async def test_names_that_cannot_be_meant(store: Path, file: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no store at"):
        await back_up(store, file)
    with pytest.raises(UsageError, match="is no file"):
        await restore(file, store)
    await filled(store, "apples")
    for copy in (store, tmp_path, tmp_path / "nowhere" / "file"):
        with pytest.raises(UsageError):
            await back_up(store, copy)
    for given in (store, tmp_path):
        with pytest.raises(UsageError):
            await restore(given, store)
    assert left_in(tmp_path) == ["store.sqlite3"]


async def test_a_restore_waits_for_who_writes_and_gives_up_with_a_name(store: Path, file: Path) -> None:
    await filled(store, "apples")
    await back_up(store, file)
    await filled(store, "plums")
    before = content_of(store)
    with closing(sqlite3.connect(store, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreLocked):
            await restore(file, store, busy_timeout=0.1)
        other.execute("ROLLBACK")
    assert content_of(store) == before
    await restore(file, store)
    assert content_of(store) == content_of(file)


@pytest.mark.parametrize("at", range(12))
async def test_a_restore_that_ends_at_any_step_leaves_the_old_or_the_new(
    at: int, store: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a full disk would end it; the steps are those of the three copies and the end."""
    monkeypatch.setattr(database_copying, "_PAGES_AT_ONCE", 20)
    await filled(store, "apples")
    await back_up(store, file)
    await filled(store, "plums")
    old, new = content_of(store), content_of(file)
    left = at

    def fail() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise StoreFull("full")

    monkeypatch.setattr(trio.from_thread, "check_cancelled", fail)
    try:
        await restore(file, store)
    except StoreError:
        assert content_of(store) == old
    else:
        assert content_of(store) == new
    assert left_in(store.parent) == ["backup.sqlite3", "store.sqlite3"]


async def test_a_cancelled_copy_leaves_nothing(store: Path, file: Path) -> None:
    await filled(store, "apples")
    with trio.CancelScope() as scope:
        scope.cancel()
        await back_up(store, file)
    assert left_in(store.parent) == ["store.sqlite3"]


async def test_what_a_kill_left_is_swept_up_when_it_is_old(store: Path, file: Path) -> None:
    await filled(store, "apples")
    old, young = (file.with_name(f".backup.sqlite3.{name}.partial") for name in ("old", "young"))
    for left in (old, young):
        left.touch()
    os.utime(old, (0, 0))
    await back_up(store, file)
    assert (old.exists(), young.exists()) == (False, True)


async def test_a_restored_store_of_another_page_size(store: Path, file: Path) -> None:
    await filled(store, "apples")
    await back_up(store, file)
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA page_size = 8192")
        connection.execute("VACUUM")
    await restore(file, store)
    assert content_of(store) == content_of(file)
    async with open_database(store) as database:
        assert await database.read(lambda each: each.execute("PRAGMA page_size").fetchone()) == (4096,)
