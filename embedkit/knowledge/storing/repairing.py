"""Repair of a store: what can be bought, read or found out again is dropped, and the next sweep brings it back.

What nobody can bring back stays as it is and is told: texts that were given and not read from a folder, texts that wait
for their vectors, the embedding space, and pages that SQLite cannot read.

Tests: tests/knowledge/storing/test_repairing.py.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

from embedkit.database_opening import begin_immediate, named_errors, open_writer, transaction
from embedkit.database_rows import BadRow, bad_rows, key_columns
from embedkit.knowledge.searching.matrix import EPOCH_BITS
from embedkit.knowledge.storing import schema
from embedkit.knowledge.storing.checking import (
    BUSY_SECONDS,
    RULES,
    STRAYS,
    Damage,
    StoreReport,
    damages,
    has_table,
    page_troubles,
    words_damages,
)
from embedkit.knowledge.storing.parameters import in_batches, placeholders
from embedkit.knowledge.storing.repositories import GIVEN_ROOT

if TYPE_CHECKING:
    import sqlite3

# What a row of these says is written anew by whoever needs it.
_FOUND_OUT_AGAIN: Final = ("leases", "roles", "sightings", "fences", "marks")
_PREFIXES_FOUND_OUT_AGAIN: Final = ("activity_", "probe_")
# What a column holds when nothing is known yet.
_FRESH: Final[Mapping[tuple[str, str], object]] = {
    **dict.fromkeys(
        (
            ("repositories", column)
            for column in (
                "revision", "next_due_at", "outcome", "code", "attribution", "reason", "queue_wait", "provider_time",
                "retry_wait", "at", "batch_ceiling", "root", "tripped_at",
            )
        ),
        None,
    ),
    **dict.fromkeys((("repositories", each) for each in ("generation", "streak", "succeeded", "outstanding")), 0),
    ("documents", "generation"): 0,
    ("documents", "fenced"): 0,
    ("documents", "content_hash"): "",
    ("vectors", "bought_for"): None,
    ("deferred", "attempts"): 0,
    ("deferred", "not_before"): 0,
    ("deferred", "deferred_at"): 0,
    ("deferred", "width"): None,
    ("deferred", "code"): None,
    ("deferred", "metadata"): None,
    ("documents", "metadata"): None,
}  # fmt: skip
# Rows that belong to another row, from the owners down.
_OWNED: Final = (
    ("repositories", "tenant_id IN (SELECT id FROM tenants)"),
    ("documents", "repository_id IN (SELECT id FROM repositories)"),
    ("vectors", "tenant_id IN (SELECT id FROM tenants)"),
    ("sightings", "repository_id IN (SELECT id FROM repositories)"),
    ("leases", "repository_id IN (SELECT id FROM repositories)"),
    ("fences", "tenant_id IN (SELECT id FROM tenants)"),
    ("marks", "tenant_id IN (SELECT id FROM tenants)"),
    ("chunks", "document_id IN (SELECT id FROM documents)"),
    ("activity_tickets", "writer IN (SELECT id FROM activity_writers)"),
    ("activity_lanes", "writer IN (SELECT id FROM activity_writers)"),
    ("activity_attempts", "(writer, ticket) IN (SELECT writer, ticket FROM activity_tickets)"),
)
# Texts of which a damaged sign is less than the whole: it is replaced, as in a file that is no UTF-8.
_READ_ANYHOW: Final = tuple(("deferred", column) for column in ("tenant", "repository", "path", "text"))


async def repair_store(path: Path | str, *, busy_timeout: float = BUSY_SECONDS) -> StoreReport:
    """Drop what is damaged and can be had again, in one transaction.

    Raises:
        UsageError: There is no store.
        StoreError: It cannot be opened or written.

    Cancellation:
        Not repaired, unless it returned.
    """
    return await trio.to_thread.run_sync(partial(_repair, Path(path), busy_timeout))


def _repair(path: Path, busy_timeout: float) -> StoreReport:
    import sqlite3

    with closing(open_writer(path, create=False, busy_timeout=busy_timeout)) as connection, named_errors(path):
        before = damages(connection)
        if any(each.kind == "pages" for each in before):
            # Of pages only those of indexes can be made again.
            begin = partial(begin_immediate, busy_timeout)
            if all("index" in line for line in page_troubles(connection)):
                with suppress(sqlite3.IntegrityError):  # two rows of one name, which the index had lost one of
                    transaction(connection, begin, lambda each: each.execute("REINDEX"))
            if page_troubles(connection):
                return StoreReport(path, tuple(before))
        else:
            begin = partial(begin_immediate, busy_timeout)
        return transaction(connection, begin, partial(_mend, path, before))


def _mend(path: Path, before: list[Damage], connection: sqlite3.Connection) -> StoreReport:
    before = [*before, *words_damages(connection)]
    if not before:
        return StoreReport(path)
    # Rows are deleted in an order of our own.
    connection.execute("PRAGMA defer_foreign_keys = ON")
    texts = any("table chunks" in each.trouble for each in before)  # whose words may be others now
    documents = set(_mend_rows(connection))
    documents.update(number for _, number in connection.execute(STRAYS))
    dropped = _drop_documents(connection, documents)
    for table, is_owned in _OWNED:
        if has_table(connection, table):
            connection.execute(f"DELETE FROM {table} WHERE NOT ({is_owned})")  # noqa: S608  # our own words
    connection.execute(
        """
        DELETE FROM repositories WHERE root IS NOT ?
        AND NOT EXISTS (SELECT 1 FROM documents WHERE repository_id = repositories.id)
        AND (name = 'recovered-' || id OR tenant_id IN (SELECT id FROM tenants WHERE name = 'recovered-' || id))
        """,
        (GIVEN_ROOT,),
    )
    if dropped or texts or words_damages(connection):
        schema.new_words(connection)
    after = [*damages(connection), *words_damages(connection)]
    # What is in memory of anybody who has the store open is not to be used on.
    epoch = (1 + secrets.randbelow((1 << 22) - 1)) << EPOCH_BITS
    connection.execute("UPDATE tenants SET version = ?", (epoch,))
    left = {each.trouble for each in after}
    return StoreReport(path, tuple(after), tuple(each for each in before if each.trouble not in left), dropped)


def _mend_rows(connection: sqlite3.Connection) -> Iterable[int]:
    """Mend each bad row by itself; the documents that have to go for it."""
    for row in list(bad_rows(connection, RULES)):
        if row.table in _FOUND_OUT_AGAIN or row.table.startswith(_PREFIXES_FOUND_OUT_AGAIN):
            _delete(connection, row)
        elif (row.table, row.column) in _FRESH:
            _set(connection, row, _FRESH[row.table, row.column])
        elif (row.table, row.column) == ("tenants", "version"):
            _set(connection, row, 0)
        elif (row.table, row.column) in _READ_ANYHOW:
            _read_anyhow(connection, row)
        elif (row.table, row.column) == ("tenants", "name"):
            _set(connection, row, f"recovered-{row.key[0]}")
            yield from _numbers(
                connection,
                "SELECT d.id FROM documents d JOIN repositories r ON r.id = d.repository_id WHERE r.tenant_id = ?",
                row.key,
            )
        elif row.table == "documents":
            yield row.key[0]
        elif row.table == "chunks":
            if row.column in ("text", "scope") and _is_given(connection, row):
                _read_anyhow(connection, row)
            yield from _numbers(connection, "SELECT document_id FROM chunks WHERE id = ?", row.key)
        elif row.table == "vectors":
            yield from _numbers(connection, "SELECT DISTINCT document_id FROM chunks WHERE vector_id = ?", row.key)
        elif row.table == "repositories":
            _set(connection, row, f"recovered-{row.key[0]}")
            yield from _numbers(connection, "SELECT id FROM documents WHERE repository_id = ?", row.key)


def _drop_documents(connection: sqlite3.Connection, numbers: Iterable[object]) -> int:
    """Let documents go that a sweep reads again, with vectors of theirs that nothing else points at."""
    dropped = 0
    for some in in_batches([number for number in numbers if isinstance(number, int)]):
        marks = placeholders(some)
        chosen = connection.execute(
            f"""
            SELECT d.id FROM documents d LEFT JOIN repositories r ON r.id = d.repository_id
            WHERE d.id IN {marks} AND r.root IS NOT ?
            """,  # noqa: S608  # only question marks
            (*some, GIVEN_ROOT),
        ).fetchall()
        ids = [number for (number,) in chosen]
        marks = placeholders(ids)
        connection.execute(
            f"""
            UPDATE repositories SET revision = NULL, next_due_at = NULL
            WHERE id IN (SELECT repository_id FROM documents WHERE id IN {marks})
            """,  # noqa: S608  # only question marks
            ids,
        )
        connection.execute(
            f"DELETE FROM sightings WHERE repository_id IN (SELECT repository_id FROM documents WHERE id IN {marks})",  # noqa: S608  # only question marks
            ids,
        )
        connection.execute(f"DELETE FROM chunks WHERE document_id IN {marks}", ids)  # noqa: S608  # only question marks
        connection.execute(f"DELETE FROM documents WHERE id IN {marks}", ids)  # noqa: S608  # only question marks
        dropped += len(ids)
    for row in list(bad_rows(connection, RULES)):
        if row.table == "vectors":
            connection.execute(
                "DELETE FROM vectors WHERE id = ? AND NOT EXISTS (SELECT 1 FROM chunks WHERE vector_id = vectors.id)",
                row.key,
            )
    return dropped


def _is_given(connection: sqlite3.Connection, chunk: BadRow) -> bool:
    return bool(
        _numbers(
            connection,
            """
            SELECT 1 FROM chunks c JOIN documents d ON d.id = c.document_id
            JOIN repositories r ON r.id = d.repository_id WHERE c.id = ? AND r.root IS ?
            """,
            (*chunk.key, GIVEN_ROOT),
        )
    )


def _read_anyhow(connection: sqlite3.Connection, row: BadRow) -> None:
    statement = f"SELECT CAST({row.column} AS BLOB) FROM {row.table} WHERE {_matching(connection, row.table)}"  # noqa: S608  # names of our own tables
    (value,) = connection.execute(statement, _as_stored(row.key)).fetchone()
    _set(connection, row, bytes(value or b"").decode(errors="replace"))


def _numbers(connection: sqlite3.Connection, statement: str, key: tuple[Any, ...]) -> list[int]:
    return [number for (number,) in connection.execute(statement, key)]


def _delete(connection: sqlite3.Connection, row: BadRow) -> None:
    connection.execute(f"DELETE FROM {row.table} WHERE {_matching(connection, row.table)}", _as_stored(row.key))  # noqa: S608  # names of our own tables


def _set(connection: sqlite3.Connection, row: BadRow, value: object) -> None:
    statement = f"UPDATE {row.table} SET {row.column} = ? WHERE {_matching(connection, row.table)}"  # noqa: S608  # names of our own tables
    connection.execute(statement, (value, *_as_stored(row.key)))


def _matching(connection: sqlite3.Connection, table: str) -> str:
    # A text is compared by its bytes: it may be one that cannot be written down as text.
    keys = key_columns(connection, table)
    return " AND ".join(f"CAST({key} AS BLOB) IS ?" if key != "rowid" else "rowid = ?" for key in keys)


def _as_stored(key: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(key) == 1 and isinstance(key[0], int):
        return key
    return tuple(None if each is None else each if isinstance(each, bytes) else str(each).encode() for each in key)
