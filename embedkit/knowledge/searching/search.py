"""Search in one tenant: cosine over its matrix, words over the full-text index, joined by rank.

The tenant stands inside every query: the matrix holds nothing else, the full-text expression begins with the tenant's
own word, and the rows that are shown are selected by tenant once more. No tenant sees another's text.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import attrs

from embedkit.knowledge.searching.ranking import COLUMN_WEIGHTS
from embedkit.knowledge.searching.words import match_expression, tenant_word

if TYPE_CHECKING:
    import sqlite3

Mode = Literal["vector", "text", "hybrid"]
Ranked = Sequence[tuple[int, float]]


@attrs.frozen
class Hit:
    """A chunk that a search found.

    Attributes:
        score: Reciprocal rank fusion's score; higher is nearer.
        tenant: Whose.
        repository: In which repository.
        path: In which document.
        lines: First and last line, 1-based, inclusive.
        text: The lines.
    """

    score: float
    tenant: str
    repository: str
    path: str
    lines: tuple[int, int]
    text: str = attrs.field(repr=False)


def by_words(
    connection: sqlite3.Connection, tenant_id: int, query: str, count: int, repository_id: int | None
) -> Ranked:
    """The ``count`` best chunks by BM25 and their scores, best first."""
    words = match_expression(query)
    if words is None:
        return []
    expression = f'tenant : "{tenant_word(tenant_id)}" AND ({{path symbol body}} : ({words}))'
    weights = ", ".join(str(weight) for weight in (0.0, *COLUMN_WEIGHTS))  # the tenant's word tells nothing
    rows = connection.execute(
        f"""
        SELECT words.rowid, -bm25(words, {weights}) AS score FROM words JOIN chunks c ON c.id = words.rowid
        WHERE words MATCH ? AND c.tenant_id = ? AND (? IS NULL OR c.repository_id = ?)
        ORDER BY score DESC, words.rowid LIMIT ?
        """,  # noqa: S608  # only our own numbers
        (expression, tenant_id, repository_id, repository_id, min(count, sys.maxsize)),  # SQLite's integers end there
    )
    return rows.fetchall()


def hits(connection: sqlite3.Connection, tenant_id: int, ranked: Ranked) -> list[Hit]:
    """The chunks of ``ranked``, in its order; one that is gone meanwhile is left out."""
    found = []
    for chunk_id, score in ranked:
        row = connection.execute(
            """
            SELECT t.name, r.name, d.path, c.start_line, c.end_line, c.text
            FROM chunks c JOIN documents d ON d.id = c.document_id JOIN repositories r ON r.id = d.repository_id
            JOIN tenants t ON t.id = c.tenant_id
            WHERE c.id = ? AND c.tenant_id = ?
            """,
            (chunk_id, tenant_id),
        ).fetchone()
        if row is not None:
            tenant, repository, path, first, last, text = row
            found.append(Hit(score, tenant, repository, path, (first, last), text))
    return found
