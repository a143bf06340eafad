"""Fences: inputs that an engine cannot embed for what they are, so that nobody offers them again.

Functions of a connection.

A fence belongs to an embedding generation: the space (provider, model, dimension, options) and the chunking. In another
generation it is void, and the input is offered again. It is lifted when another engine serves the same space, and when
somebody says so.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from embedkit.database_rows import checked_row
from embedkit.knowledge.chunking import CHUNKING_GENERATION

if TYPE_CHECKING:
    import sqlite3


def fenced(connection: sqlite3.Connection, tenant_id: int, hashes: Iterable[bytes]) -> set[bytes]:
    """Which of ``hashes`` are fenced for the tenant in this generation."""
    # A tenant has few fences, and often none: all are read, whatever is asked about.
    rows = connection.execute(
        "SELECT hash FROM fences WHERE tenant_id = ? AND generation = ?", (tenant_id, generation(connection))
    )
    return {hash_ for (hash_,) in rows}.intersection(hashes)


def add(connection: sqlite3.Connection, tenant_id: int, refused: Mapping[bytes, str], engine: str | None) -> None:
    """Fence inputs that ``engine`` refuses, each with its durable code; fences of other generations are forgotten."""
    now = generation(connection)
    connection.execute("DELETE FROM fences WHERE generation != ?", (now,))
    connection.executemany(
        "INSERT OR REPLACE INTO fences (tenant_id, hash, generation, code, at, engine) VALUES (?, ?, ?, ?, ?, ?)",
        ((tenant_id, hash_, now, code, time.time(), engine) for hash_, code in refused.items()),
    )


def lift(connection: sqlite3.Connection, tenant_id: int, *, engine: str | None) -> bool:
    """Lift the tenant's fences, but for those of ``engine``; documents that they left something out of are due again.

    Returns:
        Whether there were any.
    """
    lifted = connection.execute("DELETE FROM fences WHERE tenant_id = ? AND engine IS NOT ?", (tenant_id, engine))
    if not lifted.rowcount:
        return False
    connection.execute(
        """
        UPDATE documents SET generation = 0
        WHERE fenced > 0 AND repository_id IN (SELECT id FROM repositories WHERE tenant_id = ?)
        """,
        (tenant_id,),
    )
    return True


def left_out(connection: sqlite3.Connection, repository_id: int) -> dict[str, int]:
    """How many chunks fences leave out, by the document's path."""
    rows = connection.execute(
        "SELECT path, fenced FROM documents WHERE repository_id = ? AND fenced > 0 ORDER BY path", (repository_id,)
    )
    return {row[0]: row[1] for row in rows.fetchall() if checked_row(row, str, int)}


def generation(connection: sqlite3.Connection) -> str:
    """What fences and marks belong to: the embedding space of the store, and the chunking."""
    row = connection.execute("SELECT kind, model, dimension, options FROM space").fetchone() or ()
    return "; ".join(map(str, (*row, f"chunking {CHUNKING_GENERATION}")))
