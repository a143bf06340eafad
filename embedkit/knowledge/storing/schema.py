"""The knowledge base's tables, as steps that each take a store from one version to the next.

A *vector* is kept once for each tenant and input hash. Until a chunk points at it, it is *staged*: bought, safe, and
invisible to search. A document *switches* to its new chunks in one transaction, when its last vector is in; until
then the old ones serve.

The full-text index is contentless: it holds words, not texts, so a row is deleted by giving it the same words again.
Its first column is the tenant, so that a query is confined to one tenant inside the index itself, and the words of the
others are the tenant's own (see ``owned``), so that what they weigh does not depend on anybody else's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from embedkit.database_rows import RowRule
from embedkit.knowledge.searching.words import TOKENIZE, index_words, owned, tenant_word

if TYPE_CHECKING:
    import sqlite3

COMPONENT = "knowledge"


def new_words(connection: sqlite3.Connection) -> None:
    """Make the full-text index anew: ``words`` gives other words than before."""
    connection.execute("DROP TABLE words")
    connection.execute(
        f"""
        CREATE VIRTUAL TABLE words USING fts5 (
            tenant, path, symbol, body, content = '', tokenize = "{TOKENIZE}"
        )
        """
    )
    rows = connection.execute(
        "SELECT c.id, c.tenant_id, d.path, c.scope, c.text FROM chunks c JOIN documents d ON d.id = c.document_id"
    )
    connection.executemany(
        "INSERT INTO words (rowid, tenant, path, symbol, body) VALUES (?, ?, ?, ?, ?)",
        (
            (number, tenant_word(tenant_id), *(owned(tenant_id, index_words(each)) for each in (path, scope, text)))
            for number, tenant_id, path, scope, text in rows
        ),
    )


STEPS: tuple[str | Callable[[sqlite3.Connection], None], ...] = (
    """
    CREATE TABLE space (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        kind TEXT NOT NULL, model TEXT NOT NULL, dimension INTEGER NOT NULL, options TEXT NOT NULL
    );
    CREATE TABLE tenants (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,
        version INTEGER NOT NULL DEFAULT 0  -- counts changes of what search can see
    );
    CREATE TABLE repositories (
        id INTEGER PRIMARY KEY,
        tenant_id INTEGER NOT NULL REFERENCES tenants (id),
        name TEXT NOT NULL,
        revision TEXT,
        generation INTEGER NOT NULL DEFAULT 0,
        streak INTEGER NOT NULL DEFAULT 0,
        succeeded INTEGER NOT NULL DEFAULT 0,
        outstanding INTEGER NOT NULL DEFAULT 0,
        next_due_at REAL,
        outcome TEXT, code TEXT, attribution TEXT, reason TEXT,
        queue_wait REAL, provider_time REAL, retry_wait REAL, at REAL,
        UNIQUE (tenant_id, name)
    );
    CREATE TABLE leases (
        repository_id INTEGER PRIMARY KEY REFERENCES repositories (id) ON DELETE CASCADE,
        holder TEXT NOT NULL, process TEXT NOT NULL, expires_at REAL NOT NULL
    );
    CREATE TABLE documents (
        id INTEGER PRIMARY KEY,
        repository_id INTEGER NOT NULL REFERENCES repositories (id) ON DELETE CASCADE,
        path TEXT NOT NULL,
        content_hash TEXT NOT NULL,
        generation INTEGER NOT NULL,
        UNIQUE (repository_id, path)
    );
    CREATE TABLE sightings (
        repository_id INTEGER NOT NULL REFERENCES repositories (id) ON DELETE CASCADE,
        path TEXT NOT NULL, stamp TEXT NOT NULL, content_hash TEXT, skipped TEXT,
        PRIMARY KEY (repository_id, path)
    ) WITHOUT ROWID;
    CREATE TABLE vectors (
        id INTEGER PRIMARY KEY,
        tenant_id INTEGER NOT NULL REFERENCES tenants (id),
        hash BLOB NOT NULL,
        vector BLOB NOT NULL,
        UNIQUE (tenant_id, hash)
    );
    CREATE TABLE chunks (
        id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given twice: what is in memory is known by it
        tenant_id INTEGER NOT NULL,
        repository_id INTEGER NOT NULL,
        document_id INTEGER NOT NULL REFERENCES documents (id),
        ordinal INTEGER NOT NULL,
        start_line INTEGER NOT NULL, end_line INTEGER NOT NULL,
        scope TEXT NOT NULL, text TEXT NOT NULL,
        vector_id INTEGER NOT NULL REFERENCES vectors (id)
    );
    CREATE INDEX chunks_by_document ON chunks (document_id);
    CREATE INDEX chunks_by_vector ON chunks (vector_id);
    CREATE VIRTUAL TABLE words USING fts5 (
        tenant, path, symbol, body, content = '', tokenize = 'porter unicode61 remove_diacritics 2'
    );
    """,
    """
    CREATE TABLE fences (
        tenant_id INTEGER NOT NULL REFERENCES tenants (id),
        hash BLOB NOT NULL,
        generation TEXT NOT NULL,  -- of the embedding: its space, and the chunking
        code TEXT NOT NULL, at REAL NOT NULL,
        PRIMARY KEY (tenant_id, hash)
    ) WITHOUT ROWID;
    ALTER TABLE documents ADD COLUMN fenced INTEGER NOT NULL DEFAULT 0;  -- chunks that are left out by fences
    """,
    """
    CREATE TABLE marks (
        tenant_id INTEGER NOT NULL REFERENCES tenants (id),
        hash BLOB NOT NULL,
        generation TEXT NOT NULL,  -- as of a fence
        mark TEXT NOT NULL, at REAL NOT NULL,
        PRIMARY KEY (tenant_id, hash)
    ) WITHOUT ROWID;
    ALTER TABLE repositories ADD COLUMN batch_ceiling INTEGER;  -- inputs a ticket; NULL: as settings say
    ALTER TABLE vectors ADD COLUMN bought_for INTEGER;  -- the repository
    -- What is too long for an engine is halved now, and not fenced: documents that lack such chunks are due again.
    DELETE FROM fences WHERE code = 'KB_VECTOR_EMBED_INPUT_TRUNCATED';
    UPDATE documents SET generation = 0 WHERE fenced > 0;
    """,
    """
    ALTER TABLE sightings ADD COLUMN encoding TEXT;  -- NULL: UTF-8
    ALTER TABLE fences ADD COLUMN engine TEXT;  -- which engine refused; another one is asked again
    ALTER TABLE repositories ADD COLUMN root TEXT;  -- where it lay when it was swept last; NULL: not known yet
    """,
    new_words,
    """
    ALTER TABLE documents ADD COLUMN metadata TEXT;  -- JSON in one form (see ``metadata``); NULL: none
    """,
    """
    ALTER TABLE repositories ADD COLUMN tripped_at REAL;  -- opened a run's circuit; NULL: did not, or is cleared of it
    """,
    # In it a tenant's chunks stand by number: its first search reads its own, and nobody else's.
    "CREATE INDEX chunks_by_tenant ON chunks (tenant_id)",
    # Words are each tenant's own.
    new_words,
)

RULES = (
    RowRule("space", "options", "typeof(options) != 'text' OR json_valid(options)", "is no JSON"),
    RowRule("space", "dimension", "dimension > 0", "is not positive"),
    RowRule(
        "vectors",
        "vector",
        "typeof(vector) != 'blob'"
        " OR length(vector) = 4 * (SELECT dimension FROM space WHERE dimension BETWEEN 1 AND 1000000)",
        "has another length than the store's vectors",
    ),
    RowRule("documents", "metadata", "typeof(metadata) != 'text' OR json_valid(metadata)", "is no JSON"),
    RowRule("repositories", "streak", "streak BETWEEN 0 AND 1000000", "is out of range"),
    RowRule("repositories", "next_due_at", "abs(next_due_at) < 1e12", "is out of range"),
    RowRule("repositories", "batch_ceiling", "batch_ceiling > 0", "is not positive"),
)
"""What rows must fulfil besides their columns' types."""
