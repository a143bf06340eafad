"""``StoreContract`` passes the default store, and catches stores that break one duty each."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

from embedkit import Hit, Lease, PreparedDocument, Query, RepositoryRecord, Store
from embedkit.database import open_database
from embedkit.knowledge.storing.store import SqliteStore
from embedkit.testing import StoreContract


@asynccontextmanager
async def opened(folder: Path, make: type[SqliteStore]) -> AsyncGenerator[Store]:
    async with open_database(folder / "store.sqlite3") as database:
        store = make(database)
        await store.open()
        yield store


class TestSqliteStore(StoreContract):
    def open_store(self, folder: Path) -> AbstractAsyncContextManager[Store]:
        return opened(folder, SqliteStore)


class ShowsEverybody(SqliteStore):
    """Searches all tenants, whoever is named."""

    async def search(self, query: Query) -> list[Hit]:
        return await super().search(attrs.evolve(query, tenants=await self.tenants()))


class CommitsInTwo(SqliteStore):
    """Takes the old version away, and then stores the new one."""

    async def commit(
        self, record: RepositoryRecord, lease: Lease, vectors: Mapping[bytes, bytes], ready: Sequence[PreparedDocument]
    ) -> tuple[int, list[PreparedDocument]]:
        _, waiting = await super().commit(record, lease, vectors, [])
        removed = await self.remove(record, lease, [document.path for document in ready])
        await trio.lowlevel.checkpoint()
        _, waiting = await super().commit(record, lease, vectors, ready)
        return removed, waiting


class RemovesWithoutALease(SqliteStore):
    """Takes whatever lease there is."""

    async def remove(self, record: RepositoryRecord, lease: Lease, paths: Sequence[str]) -> int:
        async with trio.open_nursery():
            own = await self.lease(record) if not await self._holds(lease) else lease
        return await super().remove(record, own, paths)

    async def _holds(self, lease: Lease) -> bool:
        try:
            await self.renew(lease)
        except Exception:
            return False
        return True


class CountsCopies(SqliteStore):
    """A hit for each place of an input."""

    async def search(self, query: Query) -> list[Hit]:
        hits = await super().search(query)
        return [attrs.evolve(hit, also=()) for hit in hits for _ in (None, *hit.also)]


class FindsInAnyOrder(SqliteStore):
    """Worst first."""

    async def search(self, query: Query) -> list[Hit]:
        return (await super().search(query))[::-1]


def duties() -> list[str]:
    return [name for name in dir(StoreContract) if name.startswith("test_")]


def broken_duties(make: type[SqliteStore]) -> set[str]:
    class Held(StoreContract):
        def open_store(self, folder: Path) -> AbstractAsyncContextManager[Store]:
            return opened(folder, make)

    failed = set()
    for name in duties():
        duty: Callable[[], None] = getattr(Held(), name)
        try:
            duty()
        except AssertionError:
            failed.add(name)
    return failed


@pytest.mark.parametrize(
    ("make", "duty"),
    [
        (ShowsEverybody, "test_search_stays_where_it_is_told_to"),
        (CommitsInTwo, "test_cancelled_at_each_await_a_commit_is_whole_or_not_at_all"),
        (CommitsInTwo, "test_a_document_switches_whole"),
        (RemovesWithoutALease, "test_without_its_lease_nothing_is_written"),
        (CountsCopies, "test_copies_are_one_hit"),
        (FindsInAnyOrder, "test_nearest_vectors_in_order"),
    ],
)
def test_a_broken_store_is_caught(make: type[SqliteStore], duty: str) -> None:
    assert duty in broken_duties(make)
