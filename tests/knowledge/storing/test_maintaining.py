from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import trio
from knowledge_base import open_store, prepared, put
from store_content import content_of

from embedkit.database import open_database
from embedkit.knowledge.searching.search import Query
from embedkit.knowledge.storing import maintaining
from embedkit.knowledge.storing.maintaining import Compacted, compact, portion, rebuild


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintaining, "_PAGES_FREED", 100)


async def loosened(path: Path) -> int:
    """A store of which most was removed; its size before."""
    async with open_store(path) as store:
        for number in range(20):
            texts = [f"word{number * 30 + index} " * 60 for index in range(30)]
            await put(store, "acme", "docs", prepared(f"{number}.txt", *texts))
        await put(store, "acme", "docs", prepared("kept.txt", "apples"))
        record = await store.repository("acme", "docs")
        lease = await store.lease(record)
        await store.remove(record, lease, [f"{number}.txt" for number in range(20)])
        await store.release(lease)
    return size(path)


def size(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA page_count").fetchone()[0]) * 4096


async def test_room_is_given_back_in_portions_while_others_write(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    before = await loosened(path)
    async with open_store(path) as store, open_database(path) as database:
        done: list[Compacted] = []

        async def work() -> None:
            done.append(await compact(database))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            await put(store, "acme", "docs", prepared("new.txt", "pears"))
        assert done[0].portions > 1
        assert (done[0].left, done[0].freed > before // 2) == (0, True)
        hits = await store.search(Query(tenants=["acme"], text="apples", mode="text"))
        assert [hit.text for hit in hits] == ["apples"]
        assert await compact(database) == Compacted()
    assert size(path) < before // 2
    assert len(content_of(path).documents) == 2


async def test_a_few_free_pages_are_left_to_what_is_stored_next(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    async with open_store(path) as store:
        await put(store, "acme", "docs", prepared("kept.txt", *(f"word{number} " * 200 for number in range(40))))
    async with open_database(path) as database:
        while await database.write(portion):
            pass
        assert await database.write(portion) is False


async def test_a_store_of_an_earlier_version_is_rebuilt_once(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    before = await loosened(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA auto_vacuum = NONE")
        connection.execute("VACUUM")
        connection.execute("CREATE TABLE filler AS SELECT randomblob(100000)")
        connection.execute("DROP TABLE filler")
    held = content_of(path)
    async with open_database(path) as database:
        assert (await compact(database)).left > 90_000
    assert await rebuild(path) > 90_000
    async with open_database(path) as database:
        assert (await compact(database)).left == 0
    assert content_of(path) == held
    assert size(path) < before
