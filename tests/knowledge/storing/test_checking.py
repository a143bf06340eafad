"""Whatever stands in a store that no program of ours wrote is found, and mended where it can be had again."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import trio
from damage import columns, damage, fill, make_all_tables
from knowledge_base import bought, open_store, prepared, put
from store_content import content_of

from embedkit.database import open_database
from embedkit.errors import StoreUnreadable
from embedkit.knowledge.model import Space
from embedkit.knowledge.searching.search import Query
from embedkit.knowledge.storing.checking import examine_store
from embedkit.knowledge.storing.repairing import repair_store
from embedkit.knowledge.storing.repositories import GIVEN_ROOT

UNMENDABLE = {"space", "schema_versions"}


async def made(path: Path) -> None:
    async with open_store(path) as store:
        await store.claim_space(Space("local", "model", 8, {}))
        await put(store, "acme", "docs", prepared("one.txt", "apples", "pears"), prepared("two.txt", "plums"))
        await put(store, "other", "docs", prepared("one.txt", "apples"))
    await make_all_tables(path)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("base") / "store.sqlite3"
    trio.run(made, path)
    fill(path)
    return path


@pytest.fixture
def store(base: Path, tmp_path: Path) -> Path:
    path = tmp_path / "store.sqlite3"
    shutil.copyfile(base, path)
    return path


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


async def test_a_store_that_is_whole(store: Path) -> None:
    before = content_of(store)
    found = await examine_store(store)
    assert (found.is_whole, found.damages) == (True, ())
    repaired = await repair_store(store)
    assert (repaired.is_whole, repaired.mended, repaired.dropped) == (True, (), 0)
    assert content_of(store) == before


@pytest.mark.parametrize("every", [19, pytest.param(1, marks=pytest.mark.soak)])
async def test_every_column_of_every_table(every: int, base: Path, tmp_path: Path) -> None:
    store = tmp_path / "store.sqlite3"
    looked_at = columns(base)
    assert len(looked_at) > 120
    for table, column, kind in looked_at[::every]:
        shutil.copyfile(base, store)
        damage(store, table, column, kind)
        found = await examine_store(store)
        is_version = table == "schema_versions" and found.damages[0].kind == "versions"
        assert f"table {table}, {column} " in str(found.damages) or is_version, (table, column)
        repaired = await repair_store(store)
        assert repaired.is_whole is (table not in UNMENDABLE), (table, column, repaired)
        if repaired.is_whole:
            assert repaired.mended
            content_of(store)  # it holds together


@pytest.mark.parametrize(
    ("statement", "trouble", "dropped"),
    [
        ("UPDATE vectors SET vector = substr(vector, 1, 5) WHERE id = 1", "another length than", 1),
        ("UPDATE vectors SET tenant_id = 2 WHERE id = 2", "of another tenant", 1),
        ("DELETE FROM vectors WHERE id = 1", "chunks without their document or vector", 1),
        ("DELETE FROM documents WHERE id = 1", "chunks without their document or vector", 0),
        ("UPDATE chunks SET tenant_id = 2 WHERE id = 1", "of another tenant", 1),
        ("DELETE FROM repositories WHERE id = 1", "belong to nothing in repositories", 2),
        ("DELETE FROM words_docsize WHERE id = 1", "full-text index", 0),
        ("DELETE FROM words_data WHERE id > 10", "full-text index", 0),
        ("UPDATE repositories SET streak = -1", "streak is out of range", 0),
        ("UPDATE documents SET metadata = '{' WHERE id = 1", "metadata is no JSON", 0),
    ],
)
async def test_rows_that_do_not_hold_together(statement: str, trouble: str, dropped: int, store: Path) -> None:
    change(store, statement)
    found = await examine_store(store)
    assert trouble in str(found.damages)
    repaired = await repair_store(store)
    assert (repaired.is_whole, repaired.dropped) == (True, dropped), repaired
    content_of(store)
    async with open_store(store) as opened:  # and goes on
        record = await opened.repository("acme", "docs")
        assert record.revision is None
        await put(opened, "acme", "docs", prepared("one.txt", "apples", "pears"), prepared("two.txt", "plums"))
        hits = await opened.search(Query(tenants=["acme"], text="pears", mode="text"))
        assert [hit.text for hit in hits] == ["pears"]


async def test_given_texts_are_never_dropped(store: Path) -> None:
    async with open_store(store) as opened:
        record = await opened.repository("acme", "mail", GIVEN_ROOT)
        lease = await opened.lease(record)
        await opened.commit(record, lease, bought(["letter"]), [prepared("mail/1", "letter")])
        await opened.release(lease)
    change(store, "UPDATE vectors SET vector = x'00' WHERE id = (SELECT max(id) FROM vectors)")
    repaired = await repair_store(store)
    assert (repaired.is_whole, repaired.dropped) == (False, 0)
    assert "another length" in str(repaired.damages)
    with closing(sqlite3.connect(store)) as connection:
        assert connection.execute("SELECT count(*) FROM chunks WHERE text = 'letter'").fetchone() == (1,)


async def test_an_index_that_lacks_rows_is_made_anew(store: Path) -> None:
    change(
        store,
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_schema SET sql = 'CREATE INDEX chunks_by_vector ON chunks (vector_id) WHERE id > 2' "
        "WHERE name = 'chunks_by_vector'",
    )
    change(store, "REINDEX chunks_by_vector")
    change(
        store,
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_schema SET sql = 'CREATE INDEX chunks_by_vector ON chunks (vector_id)' "
        "WHERE name = 'chunks_by_vector'",
    )
    found = await examine_store(store)
    assert [each.kind for each in found.damages] == ["pages"] * len(found.damages)
    assert found.damages
    assert (await repair_store(store)).is_whole
    assert (await examine_store(store)).is_whole


async def test_pages_that_cannot_be_read_are_told_and_left(store: Path) -> None:
    with store.open("rb+") as stream:  # a test's own file
        stream.seek(4096 * 3)
        stream.write(b"\xff" * 4096 * 4)
    before = content_bytes(store)
    for report in (await examine_store(store), await repair_store(store)):
        assert {each.kind for each in report.damages} == {"pages"}
    assert content_bytes(store) == before


def content_bytes(path: Path) -> bytes:
    return path.read_bytes()


async def test_a_bad_row_is_named_and_a_defect_stays_a_defect(store: Path) -> None:
    change(store, "UPDATE repositories SET streak = 'x' WHERE id = 1")
    async with open_store(store) as opened:
        with pytest.raises(StoreUnreadable, match=r"in table repositories, streak is no number; `embedkit doctor"):
            await opened.repositories()
    change(store, "UPDATE repositories SET streak = 0")
    async with open_database(store) as database:
        with pytest.raises(ValueError, match="of the work's own"):
            await database.read(lambda _: int("of the work's own"))
