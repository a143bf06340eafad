"""A store with a row in every table, and a wrong value in any column of it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from embedkit.database import open_database
from embedkit.knowledge.storing.components import COMPONENTS

TABLES = (
    "schema_versions", "space", "tenants", "repositories", "leases", "documents", "sightings", "vectors", "chunks",
    "fences", "marks", "deferred", "roles", "activity_writers", "activity_tickets", "activity_attempts",
    "activity_lanes", "probe_results", "probe_flights", "probe_calls", "probe_work", "probe_dispatches",
)  # fmt: skip

_MISSING = {
    "sightings": "INSERT INTO sightings SELECT id, 'p', 's', NULL, NULL, NULL FROM repositories LIMIT 1",
    "leases": "INSERT INTO leases SELECT id, 'x', '{}', 0 FROM repositories LIMIT 1",
    "fences": "INSERT INTO fences SELECT id, x'00', 'g', 'c', 0, NULL FROM tenants LIMIT 1",
    "marks": "INSERT INTO marks SELECT id, x'00', 'g', 'timed-out', 0 FROM tenants LIMIT 1",
    "deferred": "INSERT INTO deferred (tenant, repository, path, text, deferred_at) VALUES ('a', 'm', 'p', 't', 0)",
    "roles": "INSERT INTO roles VALUES ('drain', 'x', '{}', 0)",
    "probe_results": "INSERT INTO probe_results VALUES ('e', 1, NULL, 0, 0)",
    "probe_flights": "INSERT INTO probe_flights VALUES ('e', 'h', '{}', 0, 0)",
    "probe_calls": "INSERT INTO probe_calls VALUES ('e', 0)",
    "probe_work": "INSERT INTO probe_work VALUES ('e', 'w', '{}', 0, 0, 0, 0)",
    "probe_dispatches": "INSERT INTO probe_dispatches VALUES ('e', 0, 'w', 0)",
    "activity_writers": "INSERT INTO activity_writers VALUES (1, 'h', 'b', 1, 's', 0, 0, NULL)",
    "activity_lanes": "INSERT INTO activity_lanes SELECT id, 'l', 0, '{}' FROM activity_writers LIMIT 1",
    "activity_tickets": """
        INSERT INTO activity_tickets (writer, ticket, lane, service, stage, role, provider, model, class, weight,
            inputs, disposition, enqueued_at, outcome, detached, attempts)
        SELECT id, 1, 'l', 's', 's', 'r', 'p', 'm', 'batch', 1, 1, 'd', 0, 'success', 0, 0 FROM activity_writers LIMIT 1
    """,
    "activity_attempts": """
        INSERT INTO activity_attempts SELECT writer, ticket, 1, 0, NULL, NULL, NULL, NULL FROM activity_tickets LIMIT 1
    """,
}


async def make_all_tables(path: Path) -> None:
    """Bring the tables of every component to this version."""
    async with open_database(path) as database:
        for component, steps in COMPONENTS.items():
            await database.migrate(component, steps)


def fill(path: Path) -> None:
    """Put a row into each table that has none."""
    with closing(sqlite3.connect(path)) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        for table in TABLES:
            if table in tables and connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,):
                connection.execute(_MISSING[table])
        connection.commit()


def columns(path: Path) -> list[tuple[str, str, str]]:
    """Table, column and declared type, but for those that say which row it is (``INTEGER PRIMARY KEY``)."""
    with closing(sqlite3.connect(path)) as connection:
        return [
            (table, name, kind)
            for table in TABLES
            for _, name, kind, _, _, key in connection.execute(f"PRAGMA table_info({table})")
            if not (key and kind == "INTEGER") and not name.endswith("_id") and name != "writer"
        ]


def damage(path: Path, table: str, column: str, kind: str) -> None:
    """Put a value there that no program of ours writes."""
    wrong = {"TEXT": "CAST(x'66ff66' AS TEXT)", "BLOB": "'text'"}.get(kind, "'x'")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(
            f"UPDATE {table} SET {column} = {wrong} WHERE {column} IS (SELECT {column} FROM {table} LIMIT 1)"
        )
        assert connection.total_changes
        connection.commit()
