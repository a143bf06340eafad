"""Documents, chunks and vectors in a store. Functions of a connection, run inside a transaction.

The full-text index is contentless: to delete a row it must be given the words it was made of, which are made again
from the chunk. So ``words`` must not change for stored chunks without a step in ``schema`` that builds the index anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import TYPE_CHECKING

from embedkit.database_rows import checked_row
from embedkit.knowledge.metadata import checked
from embedkit.knowledge.searching.words import index_words, owned, tenant_word
from embedkit.knowledge.sources.source import Sighting
from embedkit.knowledge.storing import fences
from embedkit.knowledge.storing.parameters import in_batches, placeholders

if TYPE_CHECKING:
    import sqlite3

    from embedkit.knowledge.storing.prepared import PreparedDocument

_TEXT = (str, NoneType)
_SIGHTING = (str, str, _TEXT, _TEXT, _TEXT)


def stored(connection: sqlite3.Connection, repository_id: int) -> dict[str, tuple[str, int]]:
    """Content hash and chunking generation of every stored document, by path."""
    rows = connection.execute(
        "SELECT path, content_hash, generation FROM documents WHERE repository_id = ?", (repository_id,)
    )
    return {path: (hash_, number) for path, hash_, number in (checked_row(row, str, str, int) for row in rows)}


def known(connection: sqlite3.Connection, tenant_id: int, hashes: Iterable[bytes]) -> dict[bytes, int]:
    """Which of ``hashes`` the tenant has vectors for, and the vectors' numbers."""
    found: dict[bytes, int] = {}
    for some in in_batches(hashes):
        statement = "SELECT hash, id FROM vectors WHERE tenant_id = ? AND hash IN " + placeholders(some)  # noqa: S608  # only question marks
        found.update(connection.execute(statement, (tenant_id, *some)).fetchall())
    return found


def stage(connection: sqlite3.Connection, tenant_id: int, repository_id: int, vectors: Mapping[bytes, bytes]) -> None:
    """Keep bought vectors; search does not see them until a document's chunks point at them."""
    connection.executemany(
        "INSERT OR IGNORE INTO vectors (tenant_id, hash, vector, bought_for) VALUES (?, ?, ?, ?)",
        ((tenant_id, hash_, vector, repository_id) for hash_, vector in vectors.items()),
    )


def switch(
    connection: sqlite3.Connection, tenant_id: int, repository_id: int, documents: Sequence[PreparedDocument]
) -> tuple[int, list[PreparedDocument]]:
    """Serve the new chunks of ``documents`` instead of the old ones. A chunk that is fenced is left out, and counted.

    Returns:
        How many old chunks were removed, and the documents that could not switch since a vector has vanished meanwhile
        (another sweep removed the last chunk that pointed at it): those must get it again.
    """
    hashes = {part.hash for document in documents for part in document.chunks}
    ids = known(connection, tenant_id, hashes)
    settled = ids.keys() | fences.fenced(connection, tenant_id, hashes - ids.keys())
    ready = [document for document in documents if all(part.hash in settled for part in document.chunks)]
    # The new chunks are in place before old vectors are let go, so that what both hold is kept.
    old = _document_ids(connection, repository_id, [document.path for document in ready])
    freed, removed = _remove_chunks(connection, tenant_id, old)
    connection.executemany("DELETE FROM documents WHERE id = ?", [(number,) for number in old])
    for document in ready:
        _insert(connection, tenant_id, repository_id, document, ids)
    _drop_unused(connection, freed)
    _note_change(connection, tenant_id)
    return removed, [document for document in documents if document not in ready]


def remove(connection: sqlite3.Connection, tenant_id: int, repository_id: int, paths: Sequence[str]) -> int:
    """Remove documents with their chunks, words and vectors; return how many chunks went."""
    old = _document_ids(connection, repository_id, paths)
    freed, removed = _remove_chunks(connection, tenant_id, old)
    connection.executemany("DELETE FROM documents WHERE id = ?", [(number,) for number in old])
    _drop_unused(connection, freed)
    _note_change(connection, tenant_id)
    return removed


def count(connection: sqlite3.Connection, repository_id: int) -> tuple[int, int]:
    """How many documents and chunks the repository has."""
    (documents,) = connection.execute(
        "SELECT count(*) FROM documents WHERE repository_id = ?", (repository_id,)
    ).fetchone()
    (chunks,) = connection.execute(
        "SELECT count(*) FROM documents d JOIN chunks c ON c.document_id = d.id WHERE d.repository_id = ?",
        (repository_id,),
    ).fetchone()
    return documents, chunks


def sightings(connection: sqlite3.Connection, repository_id: int) -> dict[str, Sighting]:
    """What the source saw of each file at the checkpoint, by path."""
    rows = connection.execute(
        "SELECT path, stamp, content_hash, skipped, encoding FROM sightings WHERE repository_id = ?", (repository_id,)
    )
    return {path: Sighting(*seen) for path, *seen in (checked_row(row, *_SIGHTING) for row in rows)}


def save_sightings(connection: sqlite3.Connection, repository_id: int, seen: Mapping[str, Sighting]) -> bool:
    """Remember what the source saw, and nothing else; only what has changed is written. Returns whether any has."""
    held = sightings(connection, repository_id)
    connection.executemany(
        "INSERT OR REPLACE INTO sightings VALUES (?, ?, ?, ?, ?, ?)",
        (
            (repository_id, path, sighting.stamp, sighting.content_hash, sighting.skipped, sighting.encoding)
            for path, sighting in seen.items()
            if held.get(path) != sighting
        ),
    )
    connection.executemany(
        "DELETE FROM sightings WHERE repository_id = ? AND path = ?",
        ((repository_id, path) for path in held.keys() - seen.keys()),
    )
    return held != seen


def drop_staged(connection: sqlite3.Connection, tenant_id: int, repository_id: int) -> None:
    """Let go of vectors that were bought for the repository and that nothing will point at.

    Sweeps that were cut off bought them, for texts that then changed. Those bought for another repository are its own
    affair: it may be waiting for its next sweep with half a document in hand. And none goes while another repository
    of the tenant is being swept, which may count on it.
    """
    connection.execute(
        """
        DELETE FROM vectors WHERE tenant_id = :tenant AND coalesce(bought_for, :repository) = :repository
        AND NOT EXISTS (SELECT 1 FROM chunks WHERE vector_id = vectors.id)
        AND NOT EXISTS (
            SELECT 1 FROM leases l JOIN repositories r ON r.id = l.repository_id
            WHERE r.tenant_id = :tenant AND r.id != :repository
        )
        """,
        {"tenant": tenant_id, "repository": repository_id},
    )


def _insert(
    connection: sqlite3.Connection,
    tenant_id: int,
    repository_id: int,
    document: PreparedDocument,
    ids: Mapping[bytes, int],
) -> None:
    parts = [part for part in document.chunks if part.hash in ids]
    document_id = connection.execute(
        """
        INSERT INTO documents (repository_id, path, content_hash, generation, fenced, metadata)
        VALUES (?, ?, ?, ?, ?, ?)
        """,
        (
            repository_id,
            document.path,
            document.content_hash,
            document.generation,
            len(document.chunks) - len(parts),
            checked(document.metadata) if document.metadata else None,
        ),
    ).lastrowid
    # Numbers are given here, by the only writer, so that both tables take all rows in one statement each.
    numbered = list(enumerate(parts, start=_last_chunk_id(connection) + 1))
    connection.executemany(
        """
        INSERT INTO chunks (id, tenant_id, repository_id, document_id, ordinal, start_line, end_line, scope, text,
            vector_id)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        """,
        (
            (
                number,
                tenant_id,
                repository_id,
                document_id,
                part.chunk.ordinal,
                part.chunk.start_line,
                part.chunk.end_line,
                part.chunk.scope,
                part.chunk.text,
                ids[part.hash],
            )
            for number, part in numbered
        ),
    )
    tenant, path = tenant_word(tenant_id), owned(tenant_id, document.path_words)
    connection.executemany(
        "INSERT INTO words (rowid, tenant, path, symbol, body) VALUES (?, ?, ?, ?, ?)",
        (
            (number, tenant, path, owned(tenant_id, part.symbol_words), owned(tenant_id, part.body_words))
            for number, part in numbered
        ),
    )


def _last_chunk_id(connection: sqlite3.Connection) -> int:
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'chunks'").fetchone()
    return 0 if row is None else int(row[0])


def _document_ids(connection: sqlite3.Connection, repository_id: int, paths: Iterable[str]) -> list[int]:
    found: list[int] = []
    for some in in_batches(paths):
        statement = "SELECT id FROM documents WHERE repository_id = ? AND path IN " + placeholders(some)  # noqa: S608  # only question marks
        rows = connection.execute(statement, (repository_id, *some))
        found += [number for (number,) in rows]
    return found


def _remove_chunks(connection: sqlite3.Connection, tenant_id: int, document_ids: Sequence[int]) -> tuple[set[int], int]:
    """Remove the documents' chunks and words; return the vectors they pointed at, and how many chunks went."""
    freed: set[int] = set()
    removed = 0
    for document_id in document_ids:
        rows = connection.execute(
            """
            SELECT c.id, d.path, c.scope, c.text, c.vector_id
            FROM chunks c JOIN documents d ON d.id = c.document_id WHERE c.document_id = ?
            """,
            (document_id,),
        ).fetchall()
        connection.executemany(
            "INSERT INTO words (words, rowid, tenant, path, symbol, body) VALUES ('delete', ?, ?, ?, ?, ?)",
            (
                (number, tenant_word(tenant_id), *(owned(tenant_id, index_words(each)) for each in (path, scope, text)))
                for number, path, scope, text, _ in rows
            ),
        )
        connection.execute("DELETE FROM chunks WHERE document_id = ?", (document_id,))
        freed.update(row[4] for row in rows)
        removed += len(rows)
    return freed, removed


def _drop_unused(connection: sqlite3.Connection, vector_ids: Iterable[int]) -> None:
    connection.executemany(
        "DELETE FROM vectors WHERE id = ? AND NOT EXISTS (SELECT 1 FROM chunks WHERE vector_id = vectors.id)",
        ((number,) for number in vector_ids),
    )


def _note_change(connection: sqlite3.Connection, tenant_id: int) -> None:
    connection.execute("UPDATE tenants SET version = version + 1 WHERE id = ?", (tenant_id,))
