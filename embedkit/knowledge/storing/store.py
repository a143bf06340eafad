"""The knowledge base: what is known of every tenant's repositories, kept in one SQLite file.

``SqliteStore`` is the default ``Store`` (see ``protocol``). Everything that a sweep writes goes through its lease, in
transactions that are each whole: a batch of vectors with the documents it completes; a removal; a checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import trio

from embedkit.activity.process import this_process
from embedkit.errors import StoreError
from embedkit.knowledge.searching import matrix, search
from embedkit.knowledge.searching.matrices import Matrices
from embedkit.knowledge.storing import documents, fences, findings, forgetting, leases, repositories, schema, spaces
from embedkit.knowledge.storing.known_inputs import known_inputs
from embedkit.knowledge.storing.leases import Leased
from embedkit.knowledge.storing.parameters import in_batches
from embedkit.knowledge.storing.protocol import KnownInputs

if TYPE_CHECKING:
    import sqlite3

    import numpy as np
    from numpy.typing import NDArray

    from embedkit.database import Database
    from embedkit.knowledge.model import Finding, Space
    from embedkit.knowledge.searching.search import Hit, Query
    from embedkit.knowledge.sources.source import Sighting
    from embedkit.knowledge.storing.leases import Lease
    from embedkit.knowledge.storing.prepared import PreparedDocument
    from embedkit.knowledge.storing.repositories import RepositoryRecord

T = TypeVar("T")

_RELEASE_SECONDS = 1.0


class SqliteStore:
    """The default store: one SQLite file in write-ahead mode."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._matrices = Matrices()

    @property
    def path(self) -> str:
        """The file."""
        return str(self._database.path)

    async def open(self) -> None:
        """Bring the tables to this version.

        Cancellation:
            Each step is whole or not done.
        """
        await self._database.migrate(schema.COMPONENT, schema.STEPS, schema.RULES)

    async def space(self) -> Space | None:
        """See ``Store``.

        Cancellation:
            Nothing was changed.
        """
        return await self._database.read(spaces.held)

    async def claim_space(self, space: Space) -> None:
        """See ``Store``.

        Cancellation:
            Not claimed, unless it returned.
        """
        await self._database.write(partial(spaces.claim, self.path, space))

    async def repository(self, tenant: str, name: str, root: str | None = None) -> RepositoryRecord:
        """See ``Store``.

        Cancellation:
            Nothing was changed, unless it returned.
        """
        return await self._database.write(lambda connection: repositories.ensure(connection, tenant, name, root))

    async def repositories(self) -> list[RepositoryRecord]:
        """See ``Store``.

        Cancellation:
            Nothing was changed.
        """
        return await self._database.read(repositories.all_records)

    async def tenants(self) -> list[str]:
        """See ``Store``.

        Cancellation:
            Nothing was changed.
        """
        return await self._database.read(repositories.tenant_names)

    async def lease(self, record: RepositoryRecord) -> Lease:
        """See ``Store``.

        Cancellation:
            The lease was not taken, unless it returned.
        """
        lease = await self._database.write(
            lambda connection: leases.take(connection, record.id, this_process(), time.time())
        )
        if isinstance(lease, Leased):
            raise lease
        return lease

    async def renew(self, lease: Lease) -> None:
        """See ``Store``.

        Cancellation:
            The lease is as it was, unless it returned.
        """
        await self._database.write(lambda connection: leases.hold(connection, lease, time.time()))

    async def release(self, lease: Lease) -> None:
        """See ``Store``.

        Cancellation:
            The lease is as it was, unless it returned.
        """
        await self._database.write(lambda connection: leases.release(connection, lease))

    async def stored(self, record: RepositoryRecord) -> dict[str, tuple[str, int]]:
        """See ``Store``.

        Cancellation:
            Nothing was changed.
        """
        return await self._database.read(lambda connection: documents.stored(connection, record.id))

    async def sightings(self, record: RepositoryRecord) -> dict[str, Sighting]:
        """See ``Store``.

        Cancellation:
            Nothing was changed.
        """
        return await self._database.read(lambda connection: documents.sightings(connection, record.id))

    async def known_inputs(self, tenant_id: int, hashes: Collection[bytes]) -> KnownInputs:
        """See ``Store``.

        Cancellation:
            Nothing was changed.
        """
        return await self._database.read(lambda connection: known_inputs(connection, tenant_id, hashes))

    async def fence(
        self,
        record: RepositoryRecord,
        lease: Lease,
        refused: Mapping[bytes, str],
        ready: Sequence[PreparedDocument],
        *,
        engine: str | None = None,
    ) -> tuple[int, list[PreparedDocument]]:
        """See ``Store``.

        Cancellation:
            Nothing was written, unless it returned.
        """

        def work(connection: sqlite3.Connection) -> tuple[int, list[PreparedDocument]]:
            fences.add(connection, record.tenant_id, refused, engine)
            findings.clear(connection, record.tenant_id, refused)
            return documents.switch(connection, record.tenant_id, record.id, ready) if ready else (0, [])

        return await self._write_under(lease, work)

    async def commit(
        self, record: RepositoryRecord, lease: Lease, vectors: Mapping[bytes, bytes], ready: Sequence[PreparedDocument]
    ) -> tuple[int, list[PreparedDocument]]:
        """See ``Store``.

        Cancellation:
            Nothing was written, unless it returned.
        """

        def work(connection: sqlite3.Connection) -> tuple[int, list[PreparedDocument]]:
            documents.stage(connection, record.tenant_id, record.id, vectors)
            findings.clear(connection, record.tenant_id, vectors)
            return documents.switch(connection, record.tenant_id, record.id, ready) if ready else (0, [])

        return await self._write_under(lease, work)

    async def record_finding(self, record: RepositoryRecord, lease: Lease, hash_: bytes, finding: Finding) -> None:
        """See ``Store``.

        Cancellation:
            Nothing was written, unless it returned.
        """
        await self._write_under(lease, lambda connection: findings.record(connection, record.tenant_id, hash_, finding))

    async def remove(self, record: RepositoryRecord, lease: Lease, paths: Sequence[str]) -> int:
        """See ``Store``.

        Cancellation:
            Nothing was removed, unless it returned.
        """
        return await self._write_under(
            lease, lambda connection: documents.remove(connection, record.tenant_id, record.id, paths)
        )

    async def finish(self, record: RepositoryRecord, lease: Lease, seen: Mapping[str, Sighting] | None) -> None:
        """See ``Store``.

        Cancellation:
            Nothing was written, unless it returned.
        """

        def work(connection: sqlite3.Connection) -> None:
            repositories.save(connection, record)
            if seen is not None and documents.save_sightings(connection, record.id, seen):
                documents.drop_staged(connection, record.tenant_id, record.id)
            leases.release(connection, lease)

        await self._write_under(lease, work)

    async def forget(self, record: RepositoryRecord) -> tuple[int, int]:
        """See ``Store``. In portions, so that others get their turn; the record goes last.

        Cancellation:
            Part of the documents may be gone; the record is still there, and the next call goes on.
        """
        lease = await self.lease(record)
        try:
            paths = sorted(await self.stored(record))
            chunks = 0
            for some in in_batches(paths, forgetting.DOCUMENTS_AT_ONCE):
                chunks += await self.remove(record, lease, some)
        except BaseException:
            with trio.move_on_after(_RELEASE_SECONDS, shield=True), suppress(StoreError):
                await self.release(lease)
            raise
        await self._write_under(lease, lambda connection: forgetting.drop_repository(connection, record))
        self._matrices.drop(record.tenant_id)
        return len(paths), chunks

    async def count(self, record: RepositoryRecord) -> tuple[int, int]:
        """See ``Store``.

        Cancellation:
            Nothing was changed.
        """
        return await self._database.read(lambda connection: documents.count(connection, record.id))

    async def fenced(self, record: RepositoryRecord) -> dict[str, int]:
        """See ``Store``.

        Cancellation:
            Nothing was changed.
        """
        return await self._database.read(lambda connection: fences.left_out(connection, record.id))

    async def lift_fences(self, record: RepositoryRecord, *, engine: str | None = None) -> bool:
        """See ``Store``.

        Cancellation:
            Nothing was changed, unless it returned.
        """
        return await self._database.write(lambda connection: fences.lift(connection, record.tenant_id, engine=engine))

    async def nearest(
        self, tenant: str, query: NDArray[np.float32], count: int, repository: str | None = None
    ) -> list[tuple[int, float]]:
        """The ``count`` chunks of ``tenant`` nearest to ``query``: ``(dimension,) float32`` of unit length.

        Cancellation:
            Nothing was changed; a matrix that was read is kept for the next search.
        """

        def work(connection: sqlite3.Connection) -> list[tuple[int, float]]:
            place = _place(connection, tenant, repository)
            if place is None:
                return []
            tenant_id, repository_id = place
            held = matrix.load(connection, tenant_id, len(query), self._matrices.get(tenant_id))
            self._matrices.put(tenant_id, held)
            return held.nearest(query, count, repository_id)

        return await self._database.read(work)

    async def search(self, query: Query) -> list[Hit]:
        """See ``Store``.

        Cancellation:
            Nothing was changed; a matrix that was read is kept for the next search.
        """

        def work(connection: sqlite3.Connection) -> list[Hit]:
            def load(tenant_id: int, dimension: int) -> matrix.TenantMatrix:
                held = matrix.load(connection, tenant_id, dimension, self._matrices.get(tenant_id))
                self._matrices.put(tenant_id, held)
                return held

            return search.search(connection, query, load)

        return await self._database.read(work)

    async def _write_under(self, lease: Lease, work: Callable[[sqlite3.Connection], T]) -> T:
        def held(connection: sqlite3.Connection) -> T:
            leases.hold(connection, lease, time.time())
            return work(connection)

        return await self._database.write(held)


def _place(connection: sqlite3.Connection, tenant: str, repository: str | None) -> tuple[int, int | None] | None:
    """Numbers of the tenant and, where one is named, the repository; ``None`` if the store has no such thing."""
    tenant_id = repositories.tenant_id(connection, tenant)
    if tenant_id is None:
        return None
    if repository is None:
        return tenant_id, None
    row = connection.execute(
        "SELECT id FROM repositories WHERE tenant_id = ? AND name = ?", (tenant_id, repository)
    ).fetchone()
    return None if row is None else (tenant_id, row[0])
