"""What a store holds, by content: without numbers and times, so that two stores can be compared."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs

_CHUNKS = """
    SELECT t.name, r.name, d.path, d.content_hash, c.ordinal, c.start_line, c.end_line, c.scope, c.text, v.hash,
           v.vector
    FROM chunks c JOIN documents d ON d.id = c.document_id JOIN repositories r ON r.id = d.repository_id
    JOIN tenants t ON t.id = r.tenant_id JOIN vectors v ON v.id = c.vector_id AND v.tenant_id = c.tenant_id
    WHERE c.repository_id = r.id AND c.tenant_id = t.id
    ORDER BY 1, 2, 3, 5
"""
_DOCUMENTS = """
    SELECT t.name, r.name, d.path, d.content_hash, d.generation
    FROM documents d JOIN repositories r ON r.id = d.repository_id JOIN tenants t ON t.id = r.tenant_id ORDER BY 1, 2, 3
"""
_VECTORS = "SELECT t.name, v.hash, v.vector FROM vectors v JOIN tenants t ON t.id = v.tenant_id ORDER BY 1, 2"
_UNUSED = "SELECT count(*) FROM vectors v WHERE NOT EXISTS (SELECT 1 FROM chunks c WHERE c.vector_id = v.id)"


def _count(rows: Sequence[object]) -> str:
    return f"<{len(rows)}>"


@attrs.frozen
class Content:
    """Rows by content; ``unused`` counts vectors that no chunk points at."""

    documents: list[tuple[Any, ...]] = attrs.field(repr=_count)
    chunks: list[tuple[Any, ...]] = attrs.field(repr=_count)
    vectors: list[tuple[Any, ...]] = attrs.field(repr=_count)
    unused: int


def content_of(path: Path) -> Content:
    """What the store at ``path`` holds; asserts that it holds together."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        ids = connection.execute("SELECT id FROM chunks ORDER BY id").fetchall()
        assert connection.execute("SELECT rowid FROM words ORDER BY rowid").fetchall() == ids
        chunks = connection.execute(_CHUNKS).fetchall()
        assert len(chunks) == len(ids), "a chunk whose owners do not agree"
        return Content(
            connection.execute(_DOCUMENTS).fetchall(),
            chunks,
            connection.execute(_VECTORS).fetchall(),
            connection.execute(_UNUSED).fetchone()[0],
        )


def paths_in(path: Path) -> list[str]:
    """The paths of the stored documents."""
    return [row[2] for row in content_of(path).documents]
