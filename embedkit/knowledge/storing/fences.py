"""Fences: inputs that an engine cannot embed for what they are, so that nobody offers them again.

Functions of a connection.

A fence belongs to an embedding generation: the space (provider, model, dimension, options) and the chunking. In another
generation it is void, and the input is offered again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

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


def add(connection: sqlite3.Connection, tenant_id: int, refused: Mapping[bytes, str]) -> None:
    """Fence inputs, each with the durable code of its refusal; fences of other generations are forgotten."""
    now = generation(connection)
    connection.execute("DELETE FROM fences WHERE generation != ?", (now,))
    connection.executemany(
        "INSERT OR REPLACE INTO fences (tenant_id, hash, generation, code, at) VALUES (?, ?, ?, ?, ?)",
        ((tenant_id, hash_, now, code, time.time()) for hash_, code in refused.items()),
    )


def count(connection: sqlite3.Connection, repository_id: int) -> int:
    """How many chunks of the repository's stored documents are left out by fences."""
    (found,) = connection.execute(
        "SELECT coalesce(sum(fenced), 0) FROM documents WHERE repository_id = ?", (repository_id,)
    ).fetchone()
    return int(found)


def generation(connection: sqlite3.Connection) -> str:
    """What fences and marks belong to: the embedding space of the store, and the chunking."""
    row = connection.execute("SELECT kind, model, dimension, options FROM space").fetchone() or ()
    return "; ".join(map(str, (*row, f"chunking {CHUNKING_GENERATION}")))
