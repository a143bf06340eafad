"""Search: cosine over each tenant's matrix, words over the full-text index, joined by rank; all in one transaction.

The tenant stands inside every query: a matrix holds nothing else, the full-text expression begins with the tenant's
own word, and the rows that are shown are selected by tenant once more. No tenant sees another's text.

What a score means is the mode's: ``vector`` the cosine, ``text`` BM25, ``hybrid`` the fused score, with the cosine
beside it. Over several tenants the lists are joined before they are ranked, so scores can be compared across tenants.
Chunks with the same input are one hit, which says where else it stands.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Literal

import attrs

from embedkit.database_rows import checked_row
from embedkit.errors import UsageError
from embedkit.knowledge import metadata
from embedkit.knowledge.searching.languages import is_secondary, suffixes_of
from embedkit.knowledge.searching.narrowing import exact, narrowed
from embedkit.knowledge.searching.ranking import CANDIDATES, COLUMN_WEIGHTS, fuse
from embedkit.knowledge.searching.words import match_terms, owned_terms, tenant_word
from embedkit.knowledge.sources.ignore import Rules

if TYPE_CHECKING:
    import sqlite3

    import numpy as np
    from numpy.typing import NDArray

    from embedkit.knowledge.searching.matrix import TenantMatrix

Mode = Literal["vector", "text", "hybrid"]
LoadMatrix = Callable[[int, int], "TenantMatrix"]

_COPIES_SHOWN = 20


@attrs.frozen
class Place:
    """Where else the text of a hit stands.

    Attributes:
        repository: In which repository of the tenant.
        path: In which document.
        lines: First and last line, 1-based, inclusive.
    """

    repository: str
    path: str
    lines: tuple[int, int]


@attrs.frozen
class Hit:
    """A chunk that a search found.

    Attributes:
        score: Higher is nearer: the cosine (``vector``), BM25 (``text``), or reciprocal rank fusion's (``hybrid``).
        tenant: Whose.
        repository: In which repository.
        path: In which document.
        lines: First and last line, 1-based, inclusive.
        text: The lines.
        cosine: Of the chunk's vector and the query's; ``None`` in mode ``text``.
        also: Where else the tenant has the same chunk; at most twenty places.
        metadata: Of the document, as it was given.
    """

    score: float
    tenant: str
    repository: str
    path: str
    lines: tuple[int, int]
    text: str = attrs.field(repr=False)
    cosine: float | None = None
    also: tuple[Place, ...] = ()
    metadata: Mapping[str, object] = attrs.field(factory=dict, hash=False)


@attrs.frozen(kw_only=True)
class Query:
    """What is looked for, and where.

    Attributes:
        tenants: Whose chunks.
        text: Words, for modes ``text`` and ``hybrid``.
        vector: ``(dimension,) float32`` of unit length, for modes ``vector`` and ``hybrid``.
        like: ``(path, line)`` of a stored chunk whose neighbours are looked for, in place of ``vector``.
        mode: By what.
        k: How many hits at most.
        repository: Only in this one.
        paths: Only in documents that one of these patterns names, as in a ``.gitignore``.
        languages: Only in documents of these languages.
        min_score: Only hits with at least this cosine; in mode ``text``, this BM25.
        metadata: Only in documents that have all of these values.
    """

    tenants: Sequence[str]
    text: str = ""
    vector: NDArray[np.float32] | None = attrs.field(default=None, eq=False, repr=False)
    like: tuple[str, int] | None = None
    mode: Mode = "hybrid"
    k: int = 10
    repository: str | None = None
    paths: Sequence[str] = ()
    languages: Sequence[str] = ()
    min_score: float | None = None
    metadata: Mapping[str, object] = attrs.field(factory=dict, hash=False)


@attrs.frozen
class _Scope:
    """One tenant's part of a search: its number and, where they matter, those of repository and documents."""

    tenant: str
    tenant_id: int
    repository_id: int | None
    documents: Sequence[int] | None


@attrs.frozen
class _Found:
    """A chunk of a list, known by its vector: chunks with the same input share one."""

    scope: _Scope
    chunk_id: int
    score: float


def search(connection: sqlite3.Connection, query: Query, load: LoadMatrix) -> list[Hit]:
    """The best hits, best first.

    Args:
        connection: In a read transaction.
        query: What is looked for.
        load: The matrix of a tenant, by its number and the dimension, as this transaction sees it.

    Raises:
        UsageError: A language that is not known, or nothing stands at ``like``.
    """
    scopes = [scope for name in query.tenants if (scope := _scope_of(connection, query, name)) is not None]
    vector, excluded = query.vector, None
    if query.like is not None:
        excluded, vector = _stored_vector(connection, scopes, query.like)
    wanted = max(query.k, CANDIDATES)
    matrices: dict[int, TenantMatrix] = {}
    near: dict[int, _Found] = {}
    if query.mode != "text" and vector is not None:
        matrices = {scope.tenant_id: load(scope.tenant_id, len(vector)) for scope in scopes}
        near = _nearest(scopes, matrices, vector, wanted + 1, excluded)
    words = _by_words(connection, scopes, query.text, wanted) if query.mode != "vector" and query.like is None else {}
    found = {**words, **near}
    scores = {vector_id: item.score for vector_id, item in near.items()}
    if query.mode == "hybrid":
        ranked = fuse(_list(near), _list(words), k=len(found))
        scores |= {
            vector_id: matrices[item.scope.tenant_id].cosine(vector_id, vector)
            for vector_id, item in words.items()
            if vector_id not in near and vector is not None
        }
    else:
        ranked = fuse_alone(near or words)
    least = -sys.float_info.max if query.min_score is None else query.min_score
    if query.mode == "text":
        scores = {}
        ranked = [(vector_id, score) for vector_id, score in ranked if score >= least]
    else:
        ranked = [(vector_id, score) for vector_id, score in ranked if scores.get(vector_id, 0.0) >= least]
    hits = [
        _hit(connection, found[vector_id].scope, vector_id, score, scores.get(vector_id))
        for vector_id, score in ranked[: query.k + CANDIDATES]
    ]
    return _sources_first([hit for hit in hits if hit is not None])[: query.k]


def fuse_alone(found: Mapping[int, _Found]) -> list[tuple[int, float]]:
    """One list, by its own scores."""
    return sorted(_list(found), key=lambda item: (-item[1], item[0]))


def _list(found: Mapping[int, _Found]) -> list[tuple[int, float]]:
    return [(vector_id, item.score) for vector_id, item in found.items()]


def _sources_first(hits: list[Hit]) -> list[Hit]:
    """At equal score, tests and built copies stand behind sources; else the order stays."""
    return sorted(hits, key=lambda hit: (-hit.score, is_secondary(hit.path)))


def _scope_of(connection: sqlite3.Connection, query: Query, tenant: str) -> _Scope | None:
    row = connection.execute("SELECT id FROM tenants WHERE name = ?", (tenant,)).fetchone()
    if row is None:
        return None
    tenant_id = int(row[0])
    repository_id = None
    if query.repository is not None:
        row = connection.execute(
            "SELECT id FROM repositories WHERE tenant_id = ? AND name = ?", (tenant_id, query.repository)
        ).fetchone()
        if row is None:
            return None
        repository_id = int(row[0])
    documents = _documents(connection, query, tenant_id) if query.paths or query.languages or query.metadata else None
    return _Scope(tenant, tenant_id, repository_id, documents)


def _documents(connection: sqlite3.Connection, query: Query, tenant_id: int) -> list[int]:
    """The documents that the query's patterns, languages and metadata name."""
    rules = Rules(["\n".join(query.paths).encode("utf-8", "surrogatepass")])
    suffixes: list[str] = []
    for language in query.languages:
        known = suffixes_of(language)
        if known is None:
            raise UsageError(f"{language!r} is no language that is known; name a suffix, for example py")
        suffixes += [f".{suffix}" for suffix in known]
    # The text of the metadata says quickly which documents may have a value; what is read of them says which do.
    pieces = metadata.pieces(query.metadata)
    rows = connection.execute(
        f"""
        SELECT d.id, d.path, d.metadata FROM documents d JOIN repositories r ON r.id = d.repository_id
        WHERE r.tenant_id = ? {"AND instr(d.metadata, ?) " * len(pieces)}
        """,  # noqa: S608  # only question marks
        (tenant_id, *pieces),
    )
    ends = tuple(suffixes)
    return [
        number
        for number, path, held in rows
        if (not ends or path.lower().endswith(ends))
        and (not query.paths or _is_named(rules, path))
        and (not pieces or metadata.has(json.loads(held), query.metadata))
    ]


def _is_named(rules: Rules, path: str) -> bool:
    """Whether the patterns name the path, or a folder above it."""
    parts = path.split("/")
    above = ("/".join(parts[:count]) + "/" for count in range(1, len(parts)))
    return rules.verdict(path) is True or any(rules.verdict(folder) is True for folder in above)


def _stored_vector(
    connection: sqlite3.Connection, scopes: Sequence[_Scope], like: tuple[str, int]
) -> tuple[int, NDArray[np.float32]]:
    import numpy as np

    path, line = like
    for scope in scopes:
        row = connection.execute(
            """
            SELECT v.id, v.vector FROM chunks c
            JOIN documents d ON d.id = c.document_id JOIN vectors v ON v.id = c.vector_id
            WHERE c.tenant_id = ? AND d.path = ? AND c.start_line <= ? AND c.end_line >= ?
            AND (? IS NULL OR c.repository_id = ?) ORDER BY c.ordinal LIMIT 1
            """,
            (scope.tenant_id, path, line, line, scope.repository_id, scope.repository_id),
        ).fetchone()
        if row is not None:
            return int(row[0]), np.frombuffer(row[1], dtype="<f4")
    raise UsageError(f"nothing is stored at {path}:{line}; name a document and a line of it, as a search prints them")


def _nearest(
    scopes: Sequence[_Scope],
    matrices: Mapping[int, TenantMatrix],
    vector: NDArray[np.float32],
    count: int,
    excluded: int | None,
) -> dict[int, _Found]:
    found = [
        (vector_id, _Found(scope, chunk_id, cosine))
        for scope in scopes
        for vector_id, chunk_id, cosine in matrices[scope.tenant_id].distinct(
            vector, count, repository_id=scope.repository_id, document_ids=scope.documents
        )
        if vector_id != excluded
    ]
    return _best(found, count)


def _by_words(connection: sqlite3.Connection, scopes: Sequence[_Scope], text: str, count: int) -> dict[int, _Found]:
    terms = match_terms(text)
    if not terms:
        return {}
    found: list[tuple[int, _Found]] = []
    for scope in scopes:
        seen: set[int] = set()
        for chunk_id, vector_id, score in _distinct_rows(connection, scope, terms, count):
            if vector_id not in seen:
                seen.add(vector_id)
                found.append((vector_id, _Found(scope, chunk_id, score)))
    return _best(found, count)


def _best(found: Iterable[tuple[int, _Found]], count: int) -> dict[int, _Found]:
    return dict(sorted(found, key=lambda item: (-item[1].score, item[1].chunk_id))[:count])


def _distinct_rows(
    connection: sqlite3.Connection, scope: _Scope, terms: Sequence[str], count: int
) -> list[tuple[int, int, float]]:
    """Chunk, vector and BM25 of the best rows: enough of them for ``count`` different vectors, or all."""
    tenant, terms = tenant_word(scope.tenant_id), owned_terms(scope.tenant_id, terms)
    fewer = narrowed(connection, tenant, terms, count)
    if fewer is not None:
        rows = _rows(connection, scope, fewer, count * 2)
        if len({vector_id for _, vector_id, _ in rows}) >= count:
            return rows
    words = exact(tenant, terms)
    limit = min(count * 2, sys.maxsize)  # SQLite's integers end there
    while True:
        rows = _rows(connection, scope, words, limit)
        if len(rows) < limit or len({vector_id for _, vector_id, _ in rows}) >= count:
            return rows
        limit = min(limit * 8, sys.maxsize)


def _rows(connection: sqlite3.Connection, scope: _Scope, expression: str, limit: int) -> list[tuple[int, int, float]]:
    weights = ", ".join(str(weight) for weight in (0.0, *COLUMN_WEIGHTS))  # the tenant's word tells nothing
    if scope.repository_id is None and scope.documents is None:
        # The index alone ranks, and says whose a row is: chunks are looked up for the best, not for all that match.
        return connection.execute(
            f"""
            SELECT c.id, c.vector_id, found.score
            FROM (
                SELECT rowid AS id, -bm25(words, {weights}) AS score FROM words WHERE words MATCH ?
                ORDER BY score DESC, id LIMIT ?
            ) AS found JOIN chunks c ON c.id = found.id
            WHERE +c.tenant_id = ? ORDER BY found.score DESC, c.id
            """,  # noqa: S608  # only our own numbers
            (expression, limit, scope.tenant_id),
        ).fetchall()
    chosen = "" if scope.documents is None else "AND c.document_id IN (SELECT value FROM json_each(:documents))"
    return connection.execute(
        f"""
        SELECT words.rowid, c.vector_id, -bm25(words, {weights}) AS score
        FROM words JOIN chunks c ON c.id = words.rowid
        WHERE words MATCH :expression AND +c.tenant_id = :tenant
        AND (:repository IS NULL OR c.repository_id = :repository) {chosen}
        ORDER BY score DESC, words.rowid LIMIT :limit
        """,  # noqa: S608  # only our own numbers
        {
            "expression": expression,
            "tenant": scope.tenant_id,
            "repository": scope.repository_id,
            "documents": json.dumps(scope.documents),
            "limit": limit,
        },
    ).fetchall()


def _hit(
    connection: sqlite3.Connection, scope: _Scope, vector_id: int, score: float, cosine: float | None
) -> Hit | None:
    """The chunk with this vector, and where else the tenant has it."""
    # The plus, here and above, keeps the index on tenants out of it: by that one, each hit would read all of a
    # tenant's chunks.
    rows = connection.execute(
        """
        SELECT r.name, d.path, c.start_line, c.end_line, c.text, d.id, r.id, d.metadata
        FROM chunks c JOIN documents d ON d.id = c.document_id JOIN repositories r ON r.id = d.repository_id
        WHERE c.vector_id = ? AND +c.tenant_id = ? ORDER BY c.id
        """,
        (vector_id, scope.tenant_id),
    ).fetchall()
    for row in rows:
        checked_row(row, str, str, int, int, str, int, int, (str, NoneType))
    meant = None if scope.documents is None else set(scope.documents)
    inside = [
        row
        for row in rows
        if (scope.repository_id is None or row[6] == scope.repository_id) and (meant is None or row[5] in meant)
    ]
    if not inside:
        return None
    first, *others = sorted(inside, key=lambda row: is_secondary(row[1]))
    also = tuple(Place(row[0], row[1], (row[2], row[3])) for row in others[:_COPIES_SHOWN])
    repository, path, start, end, text, _, _, held = first
    known = {} if held is None else json.loads(held)
    return Hit(score, scope.tenant, repository, path, (start, end), text, cosine, also, known)
