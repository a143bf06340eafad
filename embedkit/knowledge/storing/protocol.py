"""What a knowledge base has to do, of whatever kind it is: for indexing, for sweeps, and for search.

``embedkit.testing.StoreContract`` holds a store to what is said here. Five things hold throughout:

- **Whole or not at all.** What a method does is one transaction. Cancelled, or any error, comes out before anything was
  done; only ``forget`` goes in portions.
- **Under a lease.** What changes a repository's documents names a lease, which is looked at inside the transaction:
  without it, ``Leased`` comes out and nothing is written. A lease that is not renewed for a minute is free.
- **Old chunks serve until new ones are there.** A vector that no stored document points at is not found by search. A
  document's chunks change all at once.
- **Tenants share nothing.** Not a vector, not a word, not a count: what one tenant has bought another buys anew.
- **A hash names an input.** A vector belongs to the SHA-256 of what the engine was given, and is kept once a tenant.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Protocol

import attrs

if TYPE_CHECKING:
    from embedkit.knowledge.model import Finding, Space
    from embedkit.knowledge.searching.search import Hit, Query
    from embedkit.knowledge.sources.source import Sighting
    from embedkit.knowledge.storing.leases import Lease
    from embedkit.knowledge.storing.prepared import PreparedDocument
    from embedkit.knowledge.storing.repositories import RepositoryRecord


@attrs.frozen
class KnownInputs:
    """Inputs, by hash. Those that it does not name are to be bought.

    Attributes:
        known: There is a vector.
        fenced: Never to be offered in this embedding generation.
        over_window: Too long for the engine: the halves are to be offered.
        suspected: Timed out alone once: to be offered last, alone, after a control.
    """

    known: Set[bytes]
    fenced: Set[bytes]
    over_window: Set[bytes]
    suspected: Set[bytes]


class Store(Protocol):
    """A knowledge base, as indexing, sweeps and search need it.

    Any method may raise ``StoreError``; ``StoreLocked`` says that trying again may help.

    Cancellation: of every method, Cancelled comes out before anything was done, or what was done is committed.
    """

    async def space(self) -> Space | None:
        """The embedding space of the vectors in it, or ``None``: it has none yet."""
        ...

    async def claim_space(self, space: Space) -> None:
        """Fix the space at the first good reply; SpaceMismatch if it is another already, which then stays."""
        ...

    async def repository(self, tenant: str, name: str, root: str | None = None) -> RepositoryRecord:
        """The repository's record, made if there is none; it lies at ``root`` from now on, if that is given.

        UsageError, and nothing is changed, where one of the two places is ``given:`` and the other is not: texts
        that were given are not those of a folder, and neither may replace the other.
        """
        ...

    async def repositories(self) -> list[RepositoryRecord]:
        """Every record, by tenant and name."""
        ...

    async def tenants(self) -> list[str]:
        """The names of all tenants that have repositories, sorted."""
        ...

    async def lease(self, record: RepositoryRecord) -> Lease:
        """The right to change the repository; Leased if another sweep has it."""
        ...

    async def renew(self, lease: Lease) -> None:
        """Keep the lease; Leased if it was lost."""
        ...

    async def release(self, lease: Lease) -> None:
        """Give the lease back; nothing happens if it is no longer held."""
        ...

    async def stored(self, record: RepositoryRecord) -> dict[str, tuple[str, int]]:
        """Content hash and chunking generation of every stored document, by path."""
        ...

    async def sightings(self, record: RepositoryRecord) -> dict[str, Sighting]:
        """What the source saw of each file when it was last handed to ``finish``, by path."""
        ...

    async def known_inputs(self, tenant_id: int, hashes: Collection[bytes]) -> KnownInputs:
        """How inputs stand with the tenant, in this embedding generation."""
        ...

    async def commit(
        self, record: RepositoryRecord, lease: Lease, vectors: Mapping[bytes, bytes], ready: Sequence[PreparedDocument]
    ) -> tuple[int, list[PreparedDocument]]:
        """Keep vectors, and switch documents to their new chunks.

        Args:
            record: Whose.
            lease: The right to.
            vectors: By the hash of the input: little-endian float32 of unit length. One that is there already stays.
                What was found about these inputs is forgotten.
            ready: Each takes the place of the document of its path. A chunk whose input is fenced is left out, and
                counted; one whose input has neither vector nor fence keeps its document from switching.

        Returns:
            How many chunks of earlier versions went, and the documents that could not switch, whose earlier versions
            serve on.
        """
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
        """Fence inputs that ``engine`` refused, each with its durable code, and switch documents as ``commit``."""
        ...

    async def record_finding(self, record: RepositoryRecord, lease: Lease, hash_: bytes, finding: Finding) -> None:
        """Record what an engine has taught about an input of the tenant: ``known_inputs`` gives it back."""
        ...

    async def remove(self, record: RepositoryRecord, lease: Lease, paths: Sequence[str]) -> int:
        """Remove documents, and vectors that nothing points at any more; return how many chunks went."""
        ...

    async def finish(self, record: RepositoryRecord, lease: Lease, seen: Mapping[str, Sighting] | None) -> None:
        """Write the record, what the source saw (``None``: as it was), and give the lease back, in one transaction."""
        ...

    async def forget(self, record: RepositoryRecord) -> tuple[int, int]:
        """Remove the repository with all that is kept for it; documents and chunks that went. Leased if it is busy.

        In portions: cancelled, part of the documents may be gone; the record goes last, and the next call goes on.
        """
        ...

    async def count(self, record: RepositoryRecord) -> tuple[int, int]:
        """Documents and chunks of the repository."""
        ...

    async def fenced(self, record: RepositoryRecord) -> dict[str, int]:
        """How many chunks fences leave out, by the path of the repository's document; only of those that lack any."""
        ...

    async def lift_fences(self, record: RepositoryRecord, *, engine: str | None = None) -> bool:
        """Lift the fences of the repository's tenant, but for those of ``engine``; whether there were any.

        Documents that they left something out of are due again: ``stored`` gives them another generation.
        """
        ...

    async def search(self, query: Query) -> list[Hit]:
        """The best hits, best first, as the store has them at one instant; of no tenant that is not named.

        A tenant or repository that is not there has none. UsageError: a language that is not known, or nothing stands
        at ``query.like``. What the scores are, ``Hit`` says; chunks of one input are one hit. The words of mode
        ``text`` are the store's own to weigh, but a chunk that has none of the query's words is no hit.
        """
        ...
