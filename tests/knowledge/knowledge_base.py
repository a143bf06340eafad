"""Small documents, ready to be stored, and a store to put them in."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from fakes import vectors_of

from embedkit.database import open_database
from embedkit.knowledge.chunking import ChunkLimits
from embedkit.knowledge.indexing.purchases import unit_rows
from embedkit.knowledge.model import Chunk, input_hash
from embedkit.knowledge.searching.words import index_words
from embedkit.knowledge.storing.prepared import PreparedChunk, PreparedDocument
from embedkit.knowledge.storing.protocol import Store
from embedkit.knowledge.storing.store import SqliteStore


@asynccontextmanager
async def open_store(path: Path) -> AsyncGenerator[SqliteStore]:
    async with open_database(path) as database:
        store = SqliteStore(database)
        await store.open()
        yield store


def prepared(path: str, *texts: str, scope: str = "") -> PreparedDocument:
    """A document with a chunk of one line for each text."""
    parts = [
        PreparedChunk(Chunk(i, i + 1, i + 1, text, scope, 1), input_hash(text), index_words(scope), index_words(text))
        for i, text in enumerate(texts)
    ]
    content = hashlib.sha256("\n".join(texts).encode()).hexdigest()
    return PreparedDocument(path, content, ChunkLimits().generation, parts, index_words(path))


def bought(texts: Iterable[str], dimension: int = 8) -> dict[bytes, bytes]:
    """Vectors of ``texts`` as indexing hands them to the store."""
    texts = list(texts)
    if not texts:
        return {}
    return dict(zip(map(input_hash, texts), unit_rows(vectors_of(texts, dimension)), strict=True))


async def put(store: Store, tenant: str, name: str, *documents: PreparedDocument) -> None:
    """Store ``documents`` with all their vectors."""
    record = await store.repository(tenant, name)
    lease = await store.lease(record)
    texts = [part.chunk.text for document in documents for part in document.chunks]
    _, vanished = await store.commit(record, lease, bought(texts), documents)
    assert not vanished
    await store.release(lease)
