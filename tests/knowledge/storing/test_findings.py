"""What an engine has taught about inputs, and stores from before there was a place for it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import attrs
import pytest
from knowledge_base import bought, open_store

from embedkit.database import open_database
from embedkit.knowledge.chunking import CHUNKING_GENERATION
from embedkit.knowledge.model import Finding, Space, input_hash
from embedkit.knowledge.storing import schema
from embedkit.knowledge.storing.leases import Lease, Leased
from embedkit.knowledge.storing.store import SqliteStore

ONE, TWO = input_hash("one"), input_hash("two")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite3"


async def marks_of(store: SqliteStore, tenant_id: int) -> dict[bytes, Finding]:
    standing = await store.known_inputs(tenant_id, [ONE, TWO])
    suspected: dict[bytes, Finding] = dict.fromkeys(standing.suspected, "timed-out")
    return {**suspected, **dict.fromkeys(standing.over_window, "over-window")}


async def test_a_mark_is_its_tenants_and_an_input_has_the_latest(path: Path) -> None:
    async with open_store(path) as store:
        mine, other = await store.repository("a", "api"), await store.repository("b", "api")
        lease = await store.lease(mine)
        await store.record_finding(mine, lease, ONE, "timed-out")
        await store.record_finding(mine, lease, TWO, "over-window")
        assert await marks_of(store, mine.tenant_id) == {ONE: "timed-out", TWO: "over-window"}
        assert await marks_of(store, other.tenant_id) == {}
        await store.record_finding(mine, lease, ONE, "over-window")
        assert await marks_of(store, mine.tenant_id) == {ONE: "over-window", TWO: "over-window"}


async def test_what_is_embedded_or_fenced_has_none(path: Path) -> None:
    async with open_store(path) as store:
        record = await store.repository("a", "api")
        lease = await store.lease(record)
        await store.record_finding(record, lease, ONE, "timed-out")
        await store.record_finding(record, lease, TWO, "timed-out")
        await store.commit(record, lease, bought(["one"]), [])
        assert await marks_of(store, record.tenant_id) == {TWO: "timed-out"}
        await store.fence(record, lease, {TWO: "KB_X"}, [])
        assert await marks_of(store, record.tenant_id) == {}
        assert (await store.known_inputs(record.tenant_id, [ONE, TWO])).fenced == {TWO}


async def test_a_mark_needs_the_lease(path: Path) -> None:
    async with open_store(path) as store:
        record = await store.repository("a", "api")
        with pytest.raises(Leased):
            await store.record_finding(record, Lease(record.id, "another"), ONE, "timed-out")
        assert await marks_of(store, record.tenant_id) == {}


async def test_a_mark_is_void_in_another_generation_and_goes_with_the_next(path: Path) -> None:
    async with open_store(path) as store:
        record = await store.repository("a", "api")
        lease = await store.lease(record)
        await store.record_finding(record, lease, ONE, "timed-out")
        await store.claim_space(Space("fake", "hash", 8))
        assert await marks_of(store, record.tenant_id) == {}
        await store.record_finding(record, lease, TWO, "over-window")
        assert await marks_of(store, record.tenant_id) == {TWO: "over-window"}
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM marks").fetchone() == (1,)


async def test_a_store_of_version_2_goes_on_and_what_it_fenced_for_its_length_is_due_again(path: Path) -> None:
    async with open_database(path) as database:
        await database.migrate(schema.COMPONENT, schema.STEPS[:2])

        now = f"chunking {CHUNKING_GENERATION}"

        def fill(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT INTO tenants (id, name) VALUES (1, 'a')")
            connection.execute(
                "INSERT INTO repositories (tenant_id, name, revision, streak, outcome, queue_wait, provider_time,"
                " retry_wait, at) VALUES (1, 'api', 'r1', 3, 'complete', 1.0, 2.0, 3.0, 4.0)"
            )
            connection.executemany(
                "INSERT INTO fences (tenant_id, hash, generation, code, at) VALUES (1, ?, ?, ?, 0.0)",
                [(ONE, now, "KB_VECTOR_EMBED_INPUT_TRUNCATED"), (TWO, now, "KB_VECTOR_EMBED_INPUT_REFUSED")],
            )
            connection.executemany(
                "INSERT INTO documents (repository_id, path, content_hash, generation, fenced)"
                " VALUES (1, ?, 'h', 1, ?)",
                [("whole.txt", 0), ("long.txt", 1)],
            )

        await database.write(fill)
    async with open_store(path) as store:
        (record,) = await store.repositories()
        assert (record.revision, record.streak, record.batch_ceiling) == ("r1", 3, None)
        assert record.last is not None
        assert (record.last.outcome, record.last.clocks.retry_wait, record.last.at) == ("complete", 3.0, 4.0)
        assert (await store.known_inputs(record.tenant_id, [ONE, TWO])).fenced == {TWO}
        assert await store.stored(record) == {"whole.txt": ("h", 1), "long.txt": ("h", 0)}
        await store.record_finding(record, await store.lease(record), ONE, "over-window")
    async with open_store(path) as store:
        assert await store.repositories() == [record]
        assert await marks_of(store, record.tenant_id) == {ONE: "over-window"}


async def test_the_ceiling_is_kept_with_the_record(path: Path) -> None:
    for ceiling in (4, 1, None):
        async with open_store(path) as store:
            record = await store.repository("a", "api")
            await store.finish(attrs.evolve(record, batch_ceiling=ceiling), await store.lease(record), None)
        async with open_store(path) as store:
            assert (await store.repository("a", "api")).batch_ceiling == ceiling
