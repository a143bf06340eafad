"""Rows that no program of ours wrote: a number that is text, a text that is no UTF-8, a vector cut short.

SQLite checks its pages and not what stands in them, and takes any value in any column. What a column holds is read off
its declaration; what more a row must fulfil, each component says in ``RowRule``.

Tests: tests/knowledge/storing/test_checking.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import attrs

if TYPE_CHECKING:
    import sqlite3

# By a column's declared type: what ``typeof`` may say.
_TYPES: Final = {
    "INTEGER": ("integer",),
    "REAL": ("real", "integer"),
    "TEXT": ("text",),
    "BLOB": ("blob",),
}
_SAID: Final = {"INTEGER": "is no number", "REAL": "is no number", "TEXT": "is no text", "BLOB": "is no bytes"}


@attrs.frozen
class RowRule:
    """What a row must fulfil besides its columns' types.

    Attributes:
        table: Of which table.
        column: Which column is at fault where it does not.
        holds: An SQL expression over the row: true for a good one.
        trouble: What is said of another.
    """

    table: str
    column: str
    holds: str
    trouble: str


@attrs.frozen
class BadRow:
    """A row that cannot be used.

    Attributes:
        table: Where it stands.
        key: The values of the columns that ``key_columns`` gives for the table.
        column: Which of its values is at fault.
        trouble: What is wrong with that; nothing of the value itself.
    """

    table: str
    key: tuple[Any, ...] = attrs.field(repr=False)
    column: str
    trouble: str

    def __str__(self) -> str:
        return f"in table {self.table}, {self.column} {self.trouble}"


@attrs.frozen
class _Column:
    name: str
    kind: str
    may_be_null: bool
    key: int


def bad_rows(connection: sqlite3.Connection, rules: Iterable[RowRule] = ()) -> Iterator[BadRow]:
    """Every value that is not what its column is for; a row may come several times.

    Args:
        connection: In a transaction.
        rules: Of the components; one for a table that is not there is passed over.
    """
    by_table: dict[str, list[RowRule]] = {}
    for rule in rules:
        by_table.setdefault(rule.table, []).append(rule)
    for table in _tables(connection):
        columns = _columns(connection, table)
        key = ", ".join(key_columns(connection, table))
        for column in columns:
            yield from _of_wrong_type(connection, table, key, column)
        texts = [column for column in columns if column.kind == "TEXT"]
        if texts:
            yield from _undecodable(connection, table, key, texts)
        known = {column.name for column in columns}
        for rule in by_table.get(table, []):
            if rule.column in known:
                yield from _against(connection, key, rule)


def key_columns(connection: sqlite3.Connection, table: str) -> Sequence[str]:
    """What tells a table's rows apart: ``rowid``, or the primary key of a table that has none."""
    columns = _columns(connection, table)
    keys = [column.name for column in sorted(columns, key=lambda each: each.key) if column.key]
    (without_rowid,) = connection.execute("SELECT wr FROM pragma_table_list(?) LIMIT 1", (table,)).fetchone()
    return keys if without_rowid else ("rowid",)


def _tables(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute(
        "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite_%'"
    )
    return sorted(name for (name,) in rows)


def _columns(connection: sqlite3.Connection, table: str) -> list[_Column]:
    rows = connection.execute('SELECT name, type, "notnull", pk FROM pragma_table_info(?)', (table,)).fetchall()
    return [_Column(name, kind.upper(), not (required or key), key) for name, kind, required, key in rows]


def _of_wrong_type(connection: sqlite3.Connection, table: str, key: str, column: _Column) -> Iterator[BadRow]:
    if column.kind not in _TYPES:
        return
    types = [*_TYPES[column.kind], *(["null"] if column.may_be_null else [])]
    listed = ", ".join(f"'{each}'" for each in types)
    with _texts_as_bytes(connection):
        rows = connection.execute(
            f'SELECT {key} FROM {table} WHERE typeof("{column.name}") NOT IN ({listed})'  # noqa: S608  # names of our own tables
        ).fetchall()
    for row in rows:
        yield BadRow(table, row, column.name, _SAID[column.kind])


def _undecodable(connection: sqlite3.Connection, table: str, key: str, texts: Sequence[_Column]) -> Iterator[BadRow]:
    names = ", ".join(f'"{column.name}"' for column in texts)
    found: list[BadRow] = []
    with _texts_as_bytes(connection):
        for row in connection.execute(f"SELECT {names}, {key} FROM {table}"):  # noqa: S608  # names of our own tables
            for column, value in zip(texts, row, strict=False):
                if isinstance(value, bytes) and not _is_utf8(value):
                    found.append(BadRow(table, row[len(texts) :], column.name, "is no UTF-8"))
    yield from (row for row in found)


def _against(connection: sqlite3.Connection, key: str, rule: RowRule) -> Iterator[BadRow]:
    with _texts_as_bytes(connection):
        # NULL is for a value that is of the wrong type, which is said elsewhere, or that may be missing.
        rows = connection.execute(
            f"SELECT {key} FROM {rule.table} WHERE NOT ({rule.holds})"  # noqa: S608  # our own words
        ).fetchall()
    for row in rows:
        yield BadRow(rule.table, row, rule.column, rule.trouble)


@contextmanager
def _texts_as_bytes(connection: sqlite3.Connection) -> Iterator[None]:
    before = connection.text_factory
    connection.text_factory = bytes
    try:
        yield
    finally:
        connection.text_factory = before


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def checked_row(row: tuple[Any, ...], *kinds: type | tuple[type, ...]) -> tuple[Any, ...]:
    """The row, if each value is of its kind; for rows that are used outside the transaction that reads them.

    Raises:
        ValueError: It is not; the database says which row of which table that is.
    """
    for value, kind in zip(row, kinds, strict=True):
        if not isinstance(value, kind):
            raise ValueError("a stored value is of another type")
    return row
