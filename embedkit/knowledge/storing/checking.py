"""What is wrong in a store: SQLite's own checks of its pages, the full-text index's of its words, and ours of the rows.

Functions of a connection, in a transaction; ``examine_store`` is for a file.

Tests: tests/knowledge/storing/test_checking.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import attrs
import trio

from embedkit.database_opening import connect, insist, named_errors, open_reader
from embedkit.database_rows import BadRow, RowRule, bad_rows
from embedkit.knowledge.storing import deferring, schema
from embedkit.knowledge.storing.components import COMPONENTS, versions

if TYPE_CHECKING:
    import sqlite3

BUSY_SECONDS: Final = 30.0
RULES: Final[Sequence[RowRule]] = (*schema.RULES, *deferring.RULES)

Kind = Literal["pages", "versions", "rows", "owners", "words"]

# Chunks that are not where their document is, or whose vector is another tenant's: the wall between tenants.
STRAYS: Final = """
    SELECT c.id, c.document_id FROM chunks c LEFT JOIN documents d ON d.id = c.document_id
    LEFT JOIN repositories r ON r.id = d.repository_id LEFT JOIN vectors v ON v.id = c.vector_id
    WHERE d.id IS NULL OR r.id IS NULL OR v.id IS NULL
    OR c.repository_id IS NOT r.id OR c.tenant_id IS NOT r.tenant_id OR v.tenant_id IS NOT c.tenant_id
"""


@attrs.frozen
class Damage:
    """One kind of damage.

    Attributes:
        kind: Found by which check.
        trouble: One line: where, and what is wrong. No text, path or name that is stored is in it.
        count: How many times.
    """

    kind: Kind
    trouble: str
    count: int = 1


@attrs.frozen
class StoreReport:
    """What was found in a store, and what was done.

    Attributes:
        path: Its file.
        damages: What is wrong with it now.
        mended: What was wrong before and is not now.
        dropped: Documents that were let go for it; the next sweep buys them again.
    """

    path: Path
    damages: tuple[Damage, ...] = ()
    mended: tuple[Damage, ...] = ()
    dropped: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether nothing is wrong with it now."""
        return not self.damages


async def examine_store(path: Path | str, *, busy_timeout: float = BUSY_SECONDS) -> StoreReport:
    """Read all of a store, and say what is wrong. Nothing is changed.

    The full-text index is checked under the writer's lock, for about a second per 100,000 chunks; where that cannot be
    had since the file may only be read, that one check is left out.

    Raises:
        UsageError: There is no store.
        StoreError: It cannot be opened at all, or somebody has written for longer than ``busy_timeout``.

    Cancellation:
        Nothing was changed; the thread ends by itself.
    """
    return await trio.to_thread.run_sync(partial(_examine, Path(path), busy_timeout), abandon_on_cancel=True)


def _examine(path: Path, busy_timeout: float) -> StoreReport:
    reader, mode = open_reader(path, busy_timeout)
    with closing(reader), named_errors(path):
        reader.execute("BEGIN")
        found = damages(reader)
    if mode == "rw" and not any(each.kind == "pages" for each in found):
        with closing(connect(path, "rw", busy_timeout)) as writer, named_errors(path):
            insist(busy_timeout, lambda: writer.execute("BEGIN IMMEDIATE"))
            found += words_damages(writer)
            writer.execute("ROLLBACK")
    return StoreReport(path, tuple(found))


def damages(connection: sqlite3.Connection) -> list[Damage]:
    """What is wrong with pages, versions, rows and owners."""
    pages = [Damage("pages", line) for line in page_troubles(connection)]
    # Rows on a damaged page cannot be asked for.
    return pages or [*_version_damages(connection), *_row_damages(connection), *_owner_damages(connection)]


def page_troubles(connection: sqlite3.Connection) -> list[str]:
    """SQLite's own words, a line each."""
    import sqlite3

    try:
        rows = connection.execute("PRAGMA integrity_check(20)").fetchall()
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF not in (11, 26):  # CORRUPT, NOTADB
            raise
        rows = [(str(error),)]
    return [" ".join(str(line).split()) for (line,) in rows if line != "ok"]


def words_damages(connection: sqlite3.Connection) -> list[Damage]:
    """What is wrong with the full-text index. In a write transaction, which may be rolled back."""
    import sqlite3

    if not has_table(connection, "words") or not has_table(connection, "chunks"):
        return []
    try:
        connection.execute("INSERT INTO words (words) VALUES ('integrity-check')")
        astray = connection.execute(
            """
            SELECT (SELECT count(*) FROM chunks WHERE id NOT IN (SELECT id FROM words_docsize))
                + (SELECT count(*) FROM words_docsize WHERE id NOT IN (SELECT id FROM chunks))
            """
        ).fetchone()[0]
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF not in (1, 11):  # ERROR: one of its tables is not there
            raise
        return [Damage("words", "the full-text index is damaged")]
    return [Damage("words", "the full-text index has other chunks than the store", astray)] if astray else []


def _version_damages(connection: sqlite3.Connection) -> Iterator[Damage]:
    found = versions(connection)
    for component, steps in COMPONENTS.items():
        version = found.get(component, 0)
        if not isinstance(version, int) or version < 0:
            yield Damage("versions", f"the version of the {component} tables is no number")
        elif version > len(steps):
            yield Damage("versions", f"the {component} tables have version {version}, of a newer embedkit")


def _row_damages(connection: sqlite3.Connection) -> Iterator[Damage]:
    counted = Counter(str(row) for row in bad_rows(connection, RULES) if _is_told(row))
    for trouble, count in counted.items():
        yield Damage("rows", trouble, count)


def _is_told(row: BadRow) -> bool:
    return (row.table, row.column) != ("schema_versions", "version")  # that is told with the versions


def _owner_damages(connection: sqlite3.Connection) -> Iterator[Damage]:
    if has_table(connection, "chunks"):
        (strays,) = connection.execute(f"SELECT count(*) FROM ({STRAYS})").fetchone()  # noqa: S608  # our own
        if strays:
            yield Damage("owners", "chunks without their document or vector, or of another tenant than these", strays)
    rows = connection.execute("PRAGMA foreign_key_check").fetchall()
    lost = Counter((table, owners) for table, _, owners, _ in rows if table != "chunks")
    for (table, owners), count in sorted(lost.items()):
        yield Damage("owners", f"rows in table {table} that belong to nothing in {owners}", count)


def has_table(connection: sqlite3.Connection, table: str) -> bool:
    """Whether the store has it: tables of a component come with its first use."""
    return connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (table,)).fetchone() is not None
