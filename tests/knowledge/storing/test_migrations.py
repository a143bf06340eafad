"""Stores of every earlier schema version: opened, brought to this one, and then equal to a store made today."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trio
from fakes import vectors_of
from knowledge_base import open_store, prepared, put
from store_content import content_of

from embedkit.database import open_database
from embedkit.knowledge.chunking import ChunkLimits
from embedkit.knowledge.indexing.purchases import unit_rows
from embedkit.knowledge.model import input_hash
from embedkit.knowledge.searching.search import Query
from embedkit.knowledge.searching.words import index_words, owned, tenant_word
from embedkit.knowledge.storing import schema
from embedkit.knowledge.storing.checking import examine_store
from embedkit.knowledge.storing.components import COMPONENTS
from embedkit.knowledge.storing.store import SqliteStore

# What has landed is never edited: stores of that version are out there. New steps are appended, and their sums here.
LANDED = {
    "knowledge": (
        "c996ff5e1e69b735", "d62d3ee9006a887d", "379e07c5b00ff75d", "4137940420666069", "new_words", "ed423a8231a6c818",
        "8b5fd05e43980a5e", "3a354915445f2732", "new_words", "ca7551375acf4bfc",
    ),
    "deferred": ("330098cd32952330",),
    "roles": ("36ef4d026b8dcd06",),
    "activity": ("943c843b18ba0a09", "321f868e42cb83e6"),
    "probes": ("d9b6653e65cbb50c",),
}  # fmt: skip
OWN_WORDS = 9  # since this version; each that rebuilds the index may give it others
VERSIONS = range(1, len(schema.STEPS))
# Tenant, path, and the chunks' texts.
CONTENT = (
    ("acme", "one.txt", ("apples", "parseDate of the ferry")),
    ("acme", "two.txt", ("pears",)),
    ("other", "one.txt", ("apples",)),
)


@pytest.mark.parametrize("component", list(COMPONENTS))
def test_no_step_that_has_landed_is_edited(component: str) -> None:
    sums = [
        hashlib.sha256(step.encode()).hexdigest()[:16] if isinstance(step, str) else step.__name__
        for step in COMPONENTS[component]
    ]
    assert tuple(sums) == LANDED[component]


def made(path: Path, version: int) -> Path:
    """A store as an embedkit of that version left it, written with nothing but SQL."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA application_id = 1701667435")
        connection.execute("CREATE TABLE schema_versions (component TEXT PRIMARY KEY, version INTEGER NOT NULL)")
        connection.execute("INSERT INTO schema_versions VALUES ('knowledge', ?)", (version,))
        for step in schema.STEPS[:version]:
            connection.executescript(step) if isinstance(step, str) else step(connection)
        for tenant, name, texts in CONTENT:
            connection.execute("INSERT OR IGNORE INTO tenants (name, version) VALUES (?, 3)", (tenant,))
            (owner,) = connection.execute("SELECT id FROM tenants WHERE name = ?", (tenant,)).fetchone()
            connection.execute(
                "INSERT OR IGNORE INTO repositories (tenant_id, name, revision, streak) VALUES (?, 'docs', 'r1', 2)",
                (owner,),
            )
            (repository,) = connection.execute("SELECT id FROM repositories WHERE tenant_id = ?", (owner,)).fetchone()
            content = hashlib.sha256("\n".join(texts).encode()).hexdigest()
            document = connection.execute(
                "INSERT INTO documents (repository_id, path, content_hash, generation) VALUES (?, ?, ?, ?)",
                (repository, name, content, ChunkLimits().generation),
            ).lastrowid
            for ordinal, text in enumerate(texts):
                bytes_ = unit_rows(vectors_of([text], 8))[0]
                connection.execute(
                    "INSERT OR IGNORE INTO vectors (tenant_id, hash, vector) VALUES (?, ?, ?)",
                    (owner, input_hash(text), bytes_),
                )
                chunk = connection.execute(
                    "INSERT INTO chunks (tenant_id, repository_id, document_id, ordinal, start_line, end_line,"
                    " scope, text, vector_id)"
                    " SELECT ?, ?, ?, ?, ?, ?, '', ?, id FROM vectors WHERE tenant_id = ? AND hash = ?",
                    (owner, repository, document, ordinal, ordinal + 1, ordinal + 1, text, owner, input_hash(text)),
                ).lastrowid
                words = [index_words(name), index_words(text)]
                if version >= OWN_WORDS:
                    words = [owned(owner, each) for each in words]
                connection.execute(
                    "INSERT INTO words (rowid, tenant, path, symbol, body) VALUES (?, ?, ?, '', ?)",
                    (chunk, tenant_word(owner), *words),
                )
        # Bought and not yet in any document: it is not bought again.
        connection.execute(
            "INSERT INTO vectors (tenant_id, hash, vector) VALUES (1, ?, ?)",
            (input_hash("plums"), unit_rows(vectors_of(["plums"], 8))[0]),
        )
    return path


async def opened_once(path: Path) -> None:
    async with open_database(path) as database:
        await SqliteStore(database).open()


async def check(path: Path) -> None:
    """It holds what was put in, is whole, is searched, and goes on."""
    held = content_of(path)
    assert [(tenant, name) for tenant, _, name, *_ in held.documents] == [(tenant, name) for tenant, name, _ in CONTENT]
    assert (len(held.chunks), held.unused) == (4, 1)
    assert (await examine_store(path)).damages == ()
    async with open_store(path) as store:
        hits = await store.search(Query(tenants=["acme"], text="parse date", mode="text"))
        assert [hit.text for hit in hits] == ["parseDate of the ferry"]
        assert [(each.revision, each.streak) for each in await store.repositories()] == [("r1", 2), ("r1", 2)]
        known = await store.known_inputs(1, [input_hash("plums")])
        assert known.known == {input_hash("plums")}


def tables(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(
            "SELECT name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' AND sql IS NOT NULL ORDER BY name"
        ).fetchall()


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_store_of_an_earlier_version_becomes_one_of_today(version: int, tmp_path: Path) -> None:
    path = made(tmp_path / "old.sqlite3", version)
    await opened_once(path)
    await check(path)
    today = tmp_path / "today.sqlite3"
    async with open_store(today) as store:
        for tenant, name, texts in CONTENT:
            await put(store, tenant, "docs", prepared(name, *texts))
    assert content_of(path).chunks == content_of(today).chunks
    assert [each for each in tables(path) if each[0] != "schema_versions"] == [
        each for each in tables(today) if each[0] != "schema_versions"
    ]


def images(path: Path, into: Path) -> Iterator[Path]:
    """What a kill at each statement of the migration leaves on the disk."""
    taken: list[Path] = []

    def take(_: str) -> None:
        image = into / f"{len(taken)}.sqlite3"
        for side in ("", "-wal"):
            place = path.with_name(path.name + side)
            if place.exists():
                shutil.copyfile(place, image.with_name(image.name + side))
        taken.append(image)

    async def migrate() -> None:
        async with open_database(path) as database:
            assert database._writer is not None
            database._writer.set_trace_callback(take)
            await SqliteStore(database).open()
            database._writer.set_trace_callback(None)

    trio.run(migrate)
    yield from taken


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.soak)])
def test_a_migration_that_is_killed_at_any_statement_goes_on(every: int, tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    taken = list(images(made(tmp_path / "old.sqlite3", 1), tmp_path / "images"))
    assert len(taken) > 40
    for image in taken[::every]:
        trio.run(opened_once, image)
        trio.run(check, image)


@pytest.mark.parametrize("version", [1, 4, 8])
async def test_a_migration_that_is_cancelled_goes_on(version: int, tmp_path: Path) -> None:
    path = made(tmp_path / "old.sqlite3", version)
    async with open_database(path) as database:
        with trio.CancelScope() as scope:
            await database.migrate(schema.COMPONENT, schema.STEPS[: version + 1])
            scope.cancel()
            await SqliteStore(database).open()
    await opened_once(path)
    await check(path)
