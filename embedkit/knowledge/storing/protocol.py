"""What a knowledge base has to do, of whatever kind it is: for indexing, for sweeps, and for search."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from embedkit.knowledge.model import Space
    from embedkit.knowledge.searching.search import Hit, Query
    from embedkit.knowledge.sources.source import Sighting
    from embedkit.knowledge.storing.documents import PreparedDocument
    from embedkit.knowledge.storing.findings import Finding
    from embedkit.knowledge.storing.known_inputs import KnownInputs
    from embedkit.knowledge.storing.leases import Lease
    from embedkit.knowledge.storing.repositories import RepositoryRecord


class Store(Protocol):
    """What indexing, sweeps and search need of a knowledge base.

    Cancellation: of every method, Cancelled comes out before anything was done, or what was done is committed.
    """

    async def space(self) -> Space | None:
        """The embedding space of the vectors in it, or ``None``: it has none yet."""
        ...

    async def claim_space(self, space: Space) -> None:
        """Fix the space at the first good reply; SpaceMismatch if it is another already."""
        ...

    async def repository(self, tenant: str, name: str, root: str | None = None) -> RepositoryRecord:
        """The repository's record, made if there is none; it lies at ``root`` now, if that is known."""
        ...

    async def repositories(self) -> list[RepositoryRecord]:
        """Every record, by tenant and name."""
        ...

    async def tenants(self) -> list[str]:
        """The names of all tenants, sorted."""
        ...

    async def lease(self, record: RepositoryRecord) -> Lease:
        """The right to change the repository; Leased if another sweep has it."""
        ...

    async def renew(self, lease: Lease) -> None:
        """Keep the lease; Leased if it was lost."""
        ...

    async def release(self, lease: Lease) -> None:
        """Give the lease back."""
        ...

    async def stored(self, record: RepositoryRecord) -> dict[str, tuple[str, int]]:
        """Content hash and chunking generation of every stored document, by path."""
        ...

    async def sightings(self, record: RepositoryRecord) -> dict[str, Sighting]:
        """What the source saw of each file at the checkpoint, by path."""
        ...

    async def known_inputs(self, tenant_id: int, hashes: Collection[bytes]) -> KnownInputs:
        """How inputs stand with the tenant, in this embedding generation."""
        ...

    async def commit(
        self, record: RepositoryRecord, lease: Lease, vectors: Mapping[bytes, bytes], ready: Sequence[PreparedDocument]
    ) -> tuple[int, list[PreparedDocument]]:
        """Keep vectors and switch documents, in one transaction; see ``documents.switch`` for what it returns."""
        ...

    async def fence(
        self,
        record: RepositoryRecord,
        lease: Lease,
        refused: Mapping[bytes, str],
        ready: Sequence[PreparedDocument],
        *,
        engine: str | None = None,
    ) -> tuple[int, list[PreparedDocument]]:
        """Fence inputs, each with its durable code, and switch documents, in one transaction; as ``commit``."""
        ...

    async def record_finding(self, record: RepositoryRecord, lease: Lease, hash_: bytes, finding: Finding) -> None:
        """Record what an engine has taught about an input of the repository's tenant."""
        ...

    async def remove(self, record: RepositoryRecord, lease: Lease, paths: Sequence[str]) -> int:
        """Remove documents; return how many chunks went."""
        ...

    async def finish(self, record: RepositoryRecord, lease: Lease, seen: Mapping[str, Sighting] | None) -> None:
        """Write the record, what the source saw (if given), and give the lease back, in one transaction."""
        ...

    async def forget(self, record: RepositoryRecord) -> tuple[int, int]:
        """Remove the repository with all that is kept for it; documents and chunks that went. Leased if it is busy."""
        ...

    async def count(self, record: RepositoryRecord) -> tuple[int, int]:
        """Documents and chunks of the repository."""
        ...

    async def fenced(self, record: RepositoryRecord) -> dict[str, int]:
        """How many chunks fences leave out, by the path of the repository's document."""
        ...

    async def lift_fences(self, record: RepositoryRecord, *, engine: str | None = None) -> bool:
        """Lift the fences of the repository's tenant, but for those of ``engine``; whether there were any."""
        ...

    async def search(self, query: Query) -> list[Hit]:
        """The best hits, best first, as the store has them at one instant; of no tenant that is not named."""
        ...
