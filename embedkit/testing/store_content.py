"""Small documents with vectors that everybody can compute, and a repository to put them in."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs

from embedkit import Chunk, Lease, PreparedDocument, Query, RepositoryRecord, Store

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from embedkit import Hit

DIMENSION = 8
GENERATION = 7  # of a chunking: any number but 0


def unit(text: str) -> NDArray[np.float32]:
    """The vector of a text: ``(DIMENSION,) float32`` of unit length, from its hash."""
    import numpy as np

    numbers = np.frombuffer(hashlib.sha256(text.encode()).digest()[:DIMENSION], np.uint8).astype(np.float32) - 127.5
    return (numbers / np.linalg.norm(numbers)).astype(np.float32)


def hash_of(text: str) -> bytes:
    """What the vector of a chunk without a scope is known by."""
    return hashlib.sha256(text.encode()).digest()


def document(path: str, *texts: str, metadata: dict[str, object] | None = None) -> PreparedDocument:
    """A document with a chunk of one line for each text."""
    chunks = [Chunk(i, i + 1, i + 1, text, "", len(text)) for i, text in enumerate(texts)]
    return PreparedDocument.of(path, "hash of " + "|".join(texts), GENERATION, chunks, metadata)


def vectors_for(*documents: PreparedDocument) -> dict[bytes, bytes]:
    """The vectors of their chunks, as indexing hands them to a store."""
    parts = [part for item in documents for part in item.chunks]
    return {part.hash: unit(part.chunk.text).astype("<f4").tobytes() for part in parts}


async def found(
    store: Store, vector: NDArray[np.float32], *, tenants: Sequence[str] = ("acme",), **more: Any
) -> list[Hit]:
    """What mode ``vector`` finds.

    Cancellation:
        Changes nothing.
    """
    return await store.search(Query(tenants=list(tenants), vector=vector, mode="vector", **more))


@attrs.frozen
class Shelf:
    """A repository, with the right to change it."""

    store: Store
    record: RepositoryRecord
    lease: Lease

    @classmethod
    async def of(cls, store: Store, tenant: str = "acme", name: str = "api") -> Shelf:
        """Made, and leased.

        Cancellation:
            The lease was not taken, unless it returned.
        """
        record = await store.repository(tenant, name)
        return cls(store, record, await store.lease(record))

    async def put(self, *documents: PreparedDocument) -> None:
        """Store documents with all their vectors.

        Cancellation:
            Stored, or not.
        """
        _, waiting = await self.store.commit(self.record, self.lease, vectors_for(*documents), documents)
        assert not waiting, f"{waiting[0].path} was not stored, though its vectors came with it"

    async def texts(self) -> set[str]:
        """The text of every chunk of the tenant that search finds.

        Cancellation:
            Changes nothing.
        """
        return {hit.text for hit in await found(self.store, unit("anything"), tenants=[self.record.tenant], k=100)}

    async def hits(self, text: str, *, tenants: Sequence[str] | None = None, **more: Any) -> list[Hit]:
        """What a search for a text finds, in the tenant if no other is named.

        Cancellation:
            Changes nothing.
        """
        whose = [self.record.tenant] if tenants is None else list(tenants)
        return await self.store.search(Query(tenants=whose, text=text, vector=unit(text), k=100, **more))
