"""Texts that are in no folder become stored vectors: as a repository of a sweep does, under a lease and a circuit.

They come in portions: what was given is indexed (see ``indexing``) whenever there is enough of it, so that a million
texts need the memory of some hundreds. What is to be deleted goes last, once all that was given is stored.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import attrs
import trio

from embedkit.admission.circuit import Circuit
from embedkit.engine.width import limits_of, width_of
from embedkit.errors import EmbedkitError, ProviderCircuitOpen, SourceError, StoreError
from embedkit.knowledge.indexing.indexing import Indexing
from embedkit.knowledge.indexing.keeping import keep_lease
from embedkit.knowledge.indexing.tally import Tally
from embedkit.knowledge.sources.given import check_document, snapshot_of
from embedkit.knowledge.storing.leases import LEASE_SECONDS
from embedkit.knowledge.storing.parameters import in_batches
from embedkit.knowledge.storing.repositories import GIVEN_ROOT, Last
from embedkit.knowledge.storing.retrying import retry_locked
from embedkit.probing.rules import engine_key

if TYPE_CHECKING:
    from embedkit.engine.engine import Engine
    from embedkit.engine.route import Embeddings
    from embedkit.knowledge.model import Document
    from embedkit.knowledge.storing.leases import Lease
    from embedkit.knowledge.storing.protocol import Store
    from embedkit.knowledge.storing.repositories import RepositoryRecord

Given = Iterable["Document"] | AsyncIterable["Document"]
OnAdded = Callable[[int, int], object]

_DOCUMENTS_AT_ONCE = 512
_CHARACTERS_AT_ONCE = 8 << 20
_REMOVED_AT_ONCE = 200  # documents of one transaction: others wait for the writer's place meanwhile
_RELEASE_SECONDS = 1.0


class Adding:
    """One call of ``Engine.index``.

    Args:
        engine: Whose lanes and knowledge base it uses.
        store: The knowledge base.
        tenant: Whose texts.
        repository: Of which repository.
        on_progress: Told how many documents are stored, and how many vectors were bought.
    """

    def __init__(
        self, engine: Engine, store: Store, tenant: str, repository: str, on_progress: OnAdded | None = None
    ) -> None:
        self._engine = engine
        self._store = store
        self._tenant = tenant
        self._repository = repository
        self._on_progress = on_progress
        self._circuit = Circuit()
        self._tally = Tally()
        self._named: set[str] = set()
        self._space: int | None = None

    async def run(
        self, documents: Given, *, complete: Callable[[], bool], allow_empty: bool
    ) -> tuple[Tally, int, dict[str, int]]:
        """Index what is given; returns what was done, and the chunks that are stored and fenced now.

        Raises:
            EmbedkitError: The first failure; what was bought is stored.
            Exception: Whatever ``documents`` raise.

        Cancellation:
            Every batch that had been bought is kept, and the lease was given back.
        """
        record = await self._store.repository(self._tenant, self._repository, GIVEN_ROOT)
        lease = await self._store.lease(record)
        try:
            error = await self._under(lease, record, documents, complete, allow_empty)
            finish = partial(self._store.finish, self._after(record, error), lease, None)
            await retry_locked(finish)
        except BaseException:
            with trio.move_on_after(_RELEASE_SECONDS, shield=True), suppress(StoreError):
                await self._store.release(lease)
            raise
        finally:
            if isinstance(documents, AsyncGenerator):
                await documents.aclose()
        if error is not None:
            raise error
        _, chunks = await self._store.count(record)
        return self._tally, chunks, await self._store.fenced(record)

    async def _under(
        self,
        lease: Lease,
        record: RepositoryRecord,
        documents: Given,
        complete: Callable[[], bool],
        allow_empty: bool,
    ) -> EmbedkitError | None:
        """Do all of it; the error that decided, if any did. What the iterable raises comes out as it is."""
        lost: list[EmbedkitError] = []
        foreign: list[Exception] = []
        error: EmbedkitError | None = None

        async def keep(work: trio.CancelScope) -> None:
            lost.append(await keep_lease(self._store, lease, LEASE_SECONDS / 3))
            work.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep, nursery.cancel_scope)
            try:
                keep_fences = engine_key(self._engine.settings.provider())
                await retry_locked(partial(self._store.lift_fences, record, engine=keep_fences))
                await self._index_all(lease, record, _Portions(documents))
                if not self._failures and complete():
                    await self._remove_others(lease, record, allow_empty)
            except EmbedkitError as raised:
                error = raised
            except Exception as raised:  # the caller's own: it is given back, outside of our nursery's group
                foreign.append(raised)
            nursery.cancel_scope.cancel()
        if foreign:
            raise foreign[0]
        failures = [*lost, *self._failures, *([error] if error is not None else [])]
        # What opened the circuit tells more than what it shed.
        return min(failures, key=lambda failure: isinstance(failure, ProviderCircuitOpen), default=None)

    @property
    def _failures(self) -> Sequence[EmbedkitError]:
        return [*self._tally.failures, *self._tally.damaged]

    async def _index_all(self, lease: Lease, record: RepositoryRecord, portions: _Portions) -> None:
        while some := await portions.take():
            self._named.update(document.path for document in some)
            limit = self._engine.settings.sweep.max_file_bytes
            snapshot = await trio.to_thread.run_sync(snapshot_of, some, limit)
            indexing = Indexing(
                self._store,
                record,
                lease,
                self._buy,
                width=width_of(self._engine, record.batch_ceiling),
                limits=limits_of(self._engine.settings.embedding.chunk_tokens),
                slice_ends_at=math.inf,
                on_progress=self._tell,
                window=self._engine.settings.provider().num_ctx,
                engine=engine_key(self._engine.settings.provider()),
            )
            try:
                await indexing.run(snapshot)
            finally:
                _add(self._tally, indexing.tally)
            if self._tally.failures:
                return

    def _tell(self, now: Tally) -> None:
        """``now`` is of the portion that is being indexed; those before it are in our own."""
        if self._on_progress is not None:
            self._on_progress(self._tally.done + now.done, self._tally.embedded + now.embedded)

    async def _remove_others(self, lease: Lease, record: RepositoryRecord, allow_empty: bool) -> None:
        stored = await self._store.stored(record)
        gone = sorted(stored.keys() - self._named)
        if gone and not self._named and not allow_empty:
            raise SourceError(
                f"{self._tenant}/{self._repository} holds documents ({len(stored):,}), and none was given: if all of "
                "it is to be removed, say so (allow_empty, --allow-empty); until then what is stored stays",
                code="KB_SOURCE_EMPTY",
            )
        for some in in_batches(gone, _REMOVED_AT_ONCE):
            self._tally.deleted += await self._store.remove(record, lease, some)

    async def _buy(self, texts: Sequence[str]) -> Embeddings:
        bought = await self._engine.embed(texts, tenant=self._tenant, stage="ingestion", circuit=self._circuit)
        dimension = bought.vectors.shape[1]
        if self._space != dimension:
            with trio.CancelScope(shield=True):  # bought is kept, whoever cancels
                await retry_locked(partial(self._store.claim_space, self._engine.space_of(dimension)))
            self._space = dimension
        return bought

    def _after(self, record: RepositoryRecord, error: EmbedkitError | None) -> RepositoryRecord:
        """The record after this: nothing is ever due, since nobody but the caller knows of other texts."""
        outcome = "complete" if error is None else "deferred" if error.deferrable else "failed"
        too_large = self._tally.too_large
        return attrs.evolve(
            record,
            generation=limits_of(self._engine.settings.embedding.chunk_tokens).generation,
            streak=0 if error is None else record.streak + (outcome == "failed"),
            succeeded=record.succeeded or error is None,
            outstanding=self._tally.outstanding,
            batch_ceiling=None if error is None else record.batch_ceiling if too_large is None else too_large // 2 or 1,
            last=Last(
                outcome,
                None if error is None else error.durable_code,
                None if error is None else error.attribution,
                None if error is None else str(error),
                self._tally.clocks,
                time.time(),
            ),
        )


class _Portions:
    """What is given, in portions. What came before an error is a portion, and the error comes out with the next."""

    def __init__(self, documents: Given) -> None:
        self._next = _next_of(documents)
        self._ended: Exception | None = None

    async def take(self) -> list[Document]:
        """The next portion; an empty one is the end.

        Raises:
            UsageError: What was given is no document.
            Exception: Whatever the iterable raises.

        Cancellation:
            What was asked for and not returned is lost.
        """
        some: list[Document] = []
        characters = 0
        try:
            while self._ended is None and len(some) < _DOCUMENTS_AT_ONCE and characters < _CHARACTERS_AT_ONCE:
                some.append(check_document(await self._next()))
                characters += len(some[-1].text)
        except Exception as error:
            self._ended = error
        if not some and self._ended is not None and not isinstance(self._ended, StopAsyncIteration):
            raise self._ended
        return some


def _next_of(documents: Given) -> Callable[[], Awaitable[object]]:
    if isinstance(documents, AsyncIterable):
        return aiter(documents).__anext__
    items = iter(documents)

    async def following() -> object:
        for item in items:
            return item
        raise StopAsyncIteration

    return following


def _add(total: Tally, some: Tally) -> None:
    for name in ("documents", "done", "embedded", "reused", "deleted", "provider_calls"):
        setattr(total, name, getattr(total, name) + getattr(some, name))
    total.clocks += some.clocks
    total.left_out += some.left_out
    total.failures += some.failures
    total.damaged += some.damaged
    total.too_large = some.too_large if total.too_large is None else total.too_large
