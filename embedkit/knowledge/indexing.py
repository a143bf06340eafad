"""One repository becomes stored vectors: compare, prepare, buy what is new, keep each batch as it lands.

A feeder prepares documents in a worker thread and makes batches of the inputs that the tenant has no vectors for yet.
Buyers, as many as keep the lane's slots and its queue filled, take a batch each: one ticket, then one transaction that
keeps its vectors and switches every document that they complete. Between the two nothing can be cancelled, so that
what was bought is kept.

The first failure ends the feeding: nothing more is offered. Tickets that are out go on, and what they bring is kept. A
refusal of a batch's content is no failure yet: see ``bisecting``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Protocol

import attrs
import trio

from embedkit.activity.clocks import ZERO, Clocks
from embedkit.errors import ContentRefused, EmbedkitError
from embedkit.knowledge.bisecting import Bisection
from embedkit.knowledge.chunking import CHUNKING_GENERATION, ChunkLimits
from embedkit.knowledge.documents import PreparedDocument
from embedkit.knowledge.gathering import Gathering
from embedkit.knowledge.insisting import insist
from embedkit.knowledge.preparing import Portion, portions, prepare

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from embedkit.knowledge.leases import Lease
    from embedkit.knowledge.repositories import RepositoryRecord
    from embedkit.knowledge.source import Entry, Snapshot
    from embedkit.knowledge.store import Store

_PORTIONS_AHEAD = 2
_ROUNDS = 3


class Purchase(Protocol):
    """What came of one ticket."""

    @property
    def vectors(self) -> NDArray[np.float32]:
        """``(n, dimension) float32``, finite."""
        ...

    @property
    def clocks(self) -> Clocks:
        """The ticket's times."""
        ...

    @property
    def attempts(self) -> int:
        """Provider calls it took."""
        ...


class Buy(Protocol):
    """Buys vectors through a lane: one ticket."""

    async def __call__(self, texts: Sequence[str]) -> Purchase:
        """Embed ``texts``; EmbedkitError, with the ticket's clocks and attempts, if it cannot be."""
        ...


@attrs.frozen
class Width:
    """How the indexer uses a lane.

    Attributes:
        batch: Inputs in one ticket.
        tickets: Tickets of one repository that are offered at once.
    """

    batch: int
    tickets: int


@attrs.define
class Work:
    """What was done for one repository, so far.

    Attributes:
        documents: Documents at this revision.
        done: Those of them that are stored at this revision.
        skipped: Files left out, by reason.
        embedded: Vectors bought.
        reused: Chunks of changed documents whose vector was there already.
        deleted: Chunks removed.
        provider_calls: Attempts made.
        clocks: Sums over tickets.
        failures: What ended the buying: the first failure, and those of tickets that were out then.
        sliced: Whether the slice was spent before the work.
    """

    documents: int = 0
    done: int = 0
    skipped: Counter[str] = attrs.field(factory=Counter)
    embedded: int = 0
    reused: int = 0
    deleted: int = 0
    provider_calls: int = 0
    clocks: Clocks = ZERO
    failures: list[EmbedkitError] = attrs.field(factory=list)
    sliced: bool = False

    @property
    def outstanding(self) -> int:
        """Documents that are not stored at this revision yet."""
        return self.documents - self.done


@attrs.define(eq=False)
class _Open:
    """A document that waits for vectors."""

    document: PreparedDocument
    missing: set[bytes]


class Indexing:
    """The indexing of one repository in one sweep.

    Args:
        store: Where it is kept.
        record: The repository.
        lease: The sweep's right to change it.
        buy: Buys vectors.
        width: How many and how much at once.
        limits: How large chunks are.
        slice_ends_at: Instant after which no further batch is offered, once one has been.
        on_progress: Told after each transaction.
    """

    def __init__(
        self,
        store: Store,
        record: RepositoryRecord,
        lease: Lease,
        buy: Buy,
        *,
        width: Width,
        limits: ChunkLimits,
        slice_ends_at: float,
        on_progress: Callable[[Work], object],
    ) -> None:
        self.work = Work()
        self._store = store
        self._record = record
        self._lease = lease
        self._buy = buy
        self._width = width
        self._limits = limits
        self._slice_ends_at = slice_ends_at
        self._on_progress = on_progress
        self._batches_offered = 0
        self._feeding = trio.CancelScope()
        # Inputs that somebody waits for: queued, out, or about to be. Each is bought once, whoever needs it.
        self._waiting: dict[bytes, list[_Open]] = {}
        # Inputs bought in this round: what a look-up that began before they were kept does not know of.
        self._bought: set[bytes] = set()
        # Inputs that are not to be offered: the engine refuses them for what they are.
        self._fenced: set[bytes] = set()
        self._vanished: set[str] = set()
        self._gathering = Gathering(self._commit)

    async def run(self, snapshot: Snapshot) -> None:
        """Bring the store to ``snapshot``, as far as may be; ``work`` says how far, and what failed.

        Raises:
            StoreError: The store cannot be read, or documents that are gone cannot be removed.
            Leased: The lease was lost.

        Cancellation:
            Every batch that had been bought is kept; the rest is as it was.
        """
        stored = await self._store.stored(self._record)
        self.work.documents = len(snapshot.entries)
        self.work.skipped.update(snapshot.skipped)
        wanted = [entry for entry in snapshot.entries if stored.get(entry.path) != _identity(entry)]
        self.work.done = len(snapshot.entries) - len(wanted)
        self._on_progress(self.work)
        await self._store_documents(snapshot, wanted)
        gone = stored.keys() - {entry.path for entry in snapshot.entries}
        if gone and not self.work.failures and not self.work.sliced:
            # After all switches, so that a renamed document finds its vectors still there.
            self.work.deleted += await self._store.remove(self._record, self._lease, sorted(gone))

    async def _store_documents(self, snapshot: Snapshot, wanted: Sequence[Entry]) -> None:
        for _ in range(_ROUNDS):
            await self._round(snapshot, wanted)
            if not self._vanished or self.work.failures or self.work.sliced:
                return
            # Another sweep of this tenant removed vectors that were counted on: buy those after all.
            wanted = [entry for entry in wanted if entry.path in self._vanished]
            self._vanished.clear()

    async def _round(self, snapshot: Snapshot, wanted: Sequence[Entry]) -> None:
        self._feeding = trio.CancelScope()
        self._bought.clear()
        send, receive = trio.open_memory_channel[list[tuple[bytes, str]]](self._width.tickets)
        async with receive, trio.open_nursery() as nursery:
            nursery.start_soon(self._feed, snapshot, wanted, send)
            for _ in range(self._width.tickets):
                nursery.start_soon(self._buy_batches, receive)

    async def _feed(
        self, snapshot: Snapshot, wanted: Sequence[Entry], send: trio.MemorySendChannel[list[tuple[bytes, str]]]
    ) -> None:
        backlog: dict[bytes, str] = {}
        async with send, trio.open_nursery() as nursery:
            ahead_send, ahead = trio.open_memory_channel[Portion](_PORTIONS_AHEAD)
            with self._feeding, self._containing():
                nursery.start_soon(self._prepare, snapshot, wanted, ahead_send)
                async for portion in ahead:
                    backlog.update(await self._admit(portion))
                    while len(backlog) >= self._width.batch:
                        await self._offer(send, backlog)
                while backlog:
                    await self._offer(send, backlog)
            nursery.cancel_scope.cancel()  # the preparing ends with the feeding

    async def _prepare(
        self, snapshot: Snapshot, wanted: Sequence[Entry], ahead: trio.MemorySendChannel[Portion]
    ) -> None:
        async with ahead:
            for entries in portions(wanted):
                work = partial(prepare, snapshot, entries, self._limits, check=trio.from_thread.check_cancelled)
                await ahead.send(await trio.to_thread.run_sync(work))

    async def _admit(self, portion: Portion) -> dict[bytes, str]:
        """Switch what needs no purchase, and return the inputs that nobody has or is buying yet."""
        known = await self._store.known(self._record.tenant_id, portion.inputs)
        self._fenced |= await self._store.fenced(self._record.tenant_id, portion.inputs)
        # From here to the end of the loop there is no checkpoint: what landed during the look-ups is known now, and
        # what has not landed is waited for. An await in between would buy some inputs twice.
        known |= self._bought.intersection(portion.inputs)
        ready: list[PreparedDocument] = []
        wanted: dict[bytes, str] = {}
        self.work.skipped["unreadable"] += len(portion.unreadable)
        self.work.documents -= len(portion.unreadable)
        for document in portion.documents:
            hashes = {part.hash for part in document.chunks}
            missing = hashes - known - self._fenced
            before = len(wanted)
            waiter = _Open(document, missing)
            for hash_ in dict.fromkeys(part.hash for part in document.chunks if part.hash in missing):
                if hash_ not in self._waiting:
                    wanted[hash_] = portion.inputs[hash_]
                self._waiting.setdefault(hash_, []).append(waiter)
            # All but those that are bought for this document: known before, or the same as another chunk of this run.
            left_out = sum(1 for part in document.chunks if part.hash in self._fenced)
            self.work.reused += len(document.chunks) - left_out - (len(wanted) - before)
            if not missing:
                ready.append(document)
        if ready:
            await self._gathering.commit({}, ready)
        return wanted

    async def _offer(self, send: trio.MemorySendChannel[list[tuple[bytes, str]]], backlog: dict[bytes, str]) -> None:
        if self._batches_offered and trio.current_time() >= self._slice_ends_at:
            self.work.sliced = True
            self._feeding.cancel()  # delivered by the send below
        batch = list(islice(backlog.items(), self._width.batch))
        await send.send(batch)
        self._batches_offered += 1
        for hash_, _ in batch:
            del backlog[hash_]

    async def _buy_batches(self, batches: trio.MemoryReceiveChannel[list[tuple[bytes, str]]]) -> None:
        async for batch in batches:
            if self.work.failures:
                return
            with self._containing():
                await self._buy_batch(batch)

    async def _buy_batch(self, batch: Sequence[tuple[bytes, str]]) -> None:
        try:
            purchase = await self._buy([text for _, text in batch])
        except ContentRefused as refused:
            at_fault = await Bisection(self._buy, self).run(batch, refused)
            if at_fault:
                await self._fence({hash_: error.durable_code for hash_, error in at_fault})
            return
        await self.keep([hash_ for hash_, _ in batch], purchase)

    @contextmanager
    def _containing(self) -> Iterator[None]:
        """A failure ends the feeding; it does not end what is out."""
        try:
            yield
        except EmbedkitError as error:
            self.spend(error)
            self.work.failures.append(error)
            self._feeding.cancel()

    async def keep(self, hashes: Sequence[bytes], purchase: Purchase) -> None:
        """Store what was bought, with the documents that it completes.

        Cancellation:
            Shielded: bought is kept, whoever cancels.
        """
        with trio.CancelScope(shield=True):
            self.work.embedded += len(hashes)
            self.spend(purchase)
            ready = self._arrived(hashes)
            await self._gathering.commit(dict(zip(hashes, _unit_rows(purchase.vectors), strict=True)), ready)

    def spend(self, spent: Purchase | EmbedkitError) -> None:
        """Account for a call."""
        self.work.clocks += spent.clocks or ZERO
        self.work.provider_calls += spent.attempts

    def is_over(self) -> bool:
        """Whether nothing more is to be offered, since something failed."""
        return bool(self.work.failures)

    async def _fence(self, refused: Mapping[bytes, str]) -> None:
        with trio.CancelScope(shield=True):
            self._fenced.update(refused)
            ready = self._arrived(list(refused))
            await self._write(partial(self._store.fence, self._record, self._lease, refused, ready), ready)

    def _arrived(self, hashes: Sequence[bytes]) -> list[PreparedDocument]:
        """The documents that these vectors complete."""
        ready = []
        self._bought.update(hashes)
        for hash_ in hashes:
            for waiter in self._waiting.pop(hash_):
                waiter.missing.remove(hash_)
                if not waiter.missing:
                    ready.append(waiter.document)
        return ready

    async def _commit(self, vectors: Mapping[bytes, bytes], ready: Sequence[PreparedDocument]) -> None:
        await self._write(partial(self._store.commit, self._record, self._lease, vectors, ready), ready)

    async def _write(
        self,
        transaction: Callable[[], Awaitable[tuple[int, list[PreparedDocument]]]],
        ready: Sequence[PreparedDocument],
    ) -> None:
        """One transaction, with the vectors in hand."""
        deleted, vanished = await insist(transaction)
        self.work.deleted += deleted
        self.work.done += len(ready) - len(vanished)
        self._vanished.update(document.path for document in vanished)
        self._on_progress(self.work)


def _identity(entry: Entry) -> tuple[str, int]:
    return entry.content_hash, CHUNKING_GENERATION


def _unit_rows(vectors: NDArray[np.float32]) -> list[bytes]:
    """Rows of unit length, as bytes; a zero row stays one."""
    import numpy as np

    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0).astype("<f4", copy=False)
    return [row.tobytes() for row in unit]
