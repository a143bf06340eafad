"""One repository becomes stored vectors: compare, prepare, offer what is new.

A feeder prepares documents in a worker thread and makes batches of the inputs that the tenant has no vectors for yet.
Buyers, as many as keep the lane's slots and its queue filled, take a batch each and keep what it brings: see
``buying``. The first buyer goes alone until the engine has answered once, so that an engine that is not there is asked
once, and not by everybody. Inputs under suspicion are tried when all else is done.

The first failure ends the feeding: nothing more is offered. Tickets that are out go on, and what they bring is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count, islice
from typing import TYPE_CHECKING

import attrs
import trio

from embedkit.errors import SourceError
from embedkit.knowledge.chunking import ChunkLimits
from embedkit.knowledge.indexing.bisecting import Batch
from embedkit.knowledge.indexing.buying import Buying
from embedkit.knowledge.indexing.claims import Claims
from embedkit.knowledge.indexing.preparing import Portion, portions, prepare
from embedkit.knowledge.indexing.purchases import Buy
from embedkit.knowledge.indexing.stopping import Stop
from embedkit.knowledge.indexing.tally import Tally
from embedkit.knowledge.sources.source import LeftOut
from embedkit.knowledge.storing.parameters import in_batches

if TYPE_CHECKING:
    from embedkit.knowledge.sources.source import Entry, Snapshot
    from embedkit.knowledge.storing.leases import Lease
    from embedkit.knowledge.storing.protocol import Store
    from embedkit.knowledge.storing.repositories import RepositoryRecord

_PORTIONS_AHEAD = 2
_REMOVED_AT_ONCE = 200  # documents
_ROUNDS = 3


@attrs.frozen
class Width:
    """How the indexer uses a lane.

    Attributes:
        batch: Inputs in one ticket.
        tickets: Tickets of one repository that are offered at once.
    """

    batch: int
    tickets: int


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
        claims: What all repositories of the tenant are buying in this sweep.
        on_progress: Told after each transaction.
        may_empty: Whether a repository that held documents may come to hold none.
        window: About how many tokens the engine takes of one input, where that is known.
        engine: What names the engine.
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
        on_progress: Callable[[Tally], object],
        claims: Claims | None = None,
        may_empty: bool = False,
        window: int | None = None,
        engine: str | None = None,
    ) -> None:
        self.tally = Tally()
        self._store = store
        self._record = record
        self._lease = lease
        self._width = width
        self._limits = limits
        self._stop = Stop(self.tally, slice_ends_at)
        self._on_progress = on_progress
        self._may_empty = may_empty
        self._buying = Buying(
            store,
            record,
            lease,
            buy,
            batch=width.batch,
            tally=self.tally,
            claims=Claims() if claims is None else claims,
            stop=self._stop,
            window=window or limits.max_tokens,
            engine=engine,
            on_progress=on_progress,
        )

    async def run(self, snapshot: Snapshot) -> None:
        """Bring the store to ``snapshot``, as far as may be; ``tally`` says how far, and what failed.

        Raises:
            SourceError: Everything that is stored seems to be gone, and that was not allowed.
            StoreError: The store cannot be read, or documents that are gone cannot be removed.
            Leased: The lease was lost.

        Cancellation:
            Every batch that had been bought is kept; the rest is as it was.
        """
        stored = await self._store.stored(self._record)
        self.tally.documents = len(snapshot.entries)
        self.tally.skipped.update(snapshot.skipped)
        self.tally.left_out += snapshot.left_out
        self.tally.recoded.update(seen.encoding for seen in snapshot.sightings.values() if seen.encoding is not None)
        # Only what is known to be gone: a file that cannot be read, or a folder, may be there still.
        found = {entry.path for entry in snapshot.entries}
        missing = sorted(stored.keys() - found)
        gone = [path for path in missing if not snapshot.unread.covers(path)]
        unread = snapshot.unread.failure([path for path in missing if snapshot.unread.covers(path)])
        if unread is not None:
            self.tally.damaged.append(unread)
        if gone and not found and len(gone) == len(stored) and not self._may_empty:
            raise SourceError(
                f"held documents ({len(stored):,}) and now has none: is it mounted? If all of it is to be removed, say "
                "--allow-empty; until then what is stored stays",
                code="KB_SOURCE_EMPTY",
            )
        cutting = self._limits.generation
        changed = [entry for entry in snapshot.entries if stored.get(entry.path) != (entry.content_hash, cutting)]
        self.tally.done = len(snapshot.entries) - len(changed)
        self._on_progress(self.tally)
        try:
            await self._store_documents(snapshot, changed)
        finally:
            self._buying.release()
        if gone and not self._stop.is_called:
            # After all switches, so that a renamed document finds its vectors still there.
            # In portions: each is a transaction, and others want the writer's place as well.
            for some in in_batches(gone, _REMOVED_AT_ONCE):
                self.tally.deleted += await self._store.remove(self._record, self._lease, some)
                self._on_progress(self.tally)

    async def _store_documents(self, snapshot: Snapshot, changed: Sequence[Entry]) -> None:
        entries = changed
        backlog: dict[bytes, str] = {}
        for number in count(1):
            self._buying.begin_round()
            await self._round(snapshot, entries, backlog)
            if self._stop.is_called:
                return
            backlog = await self._from_others()
            # Another sweep of this tenant removed vectors that were counted on: buy those after all.
            entries = [entry for entry in changed if entry.path in self._buying.vanished and number < _ROUNDS]
            if not (entries or backlog or self._buying.elsewhere):
                break
        await self._try_suspects()

    async def _from_others(self) -> dict[bytes, str]:
        """What others were buying, as far as it is ours to buy after all. It is waited for until the slice ends."""
        backlog: dict[bytes, str] = {}
        if not self._buying.elsewhere:
            return backlog
        with trio.move_on_at(self._stop.slice_ends_at) as waiting:
            backlog = await self._buying.take_over()
        if waiting.cancelled_caught:
            self._stop.spend_slice()
        return backlog

    async def _round(self, snapshot: Snapshot, changed: Sequence[Entry], backlog: dict[bytes, str]) -> None:
        feeding = self._stop.begin_round()
        send, receive = trio.open_memory_channel[Batch](self._width.tickets)
        async with receive, trio.open_nursery() as nursery:
            nursery.start_soon(self._feed, snapshot, changed, backlog, send, feeding)
            nursery.start_soon(self._buy_first, receive)
            for _ in range(self._width.tickets - 1):
                nursery.start_soon(self._buy_later, receive)

    async def _try_suspects(self) -> None:
        while self._buying.suspects and not self._stop.is_called:
            if self._stop.must_yield():
                return
            self._stop.offered()
            with self._stop.containing():
                await self._buying.try_suspect()

    async def _feed(
        self,
        snapshot: Snapshot,
        changed: Sequence[Entry],
        backlog: dict[bytes, str],
        send: trio.MemorySendChannel[Batch],
        feeding: trio.CancelScope,
    ) -> None:
        async with send, trio.open_nursery() as nursery:
            ahead_send, ahead = trio.open_memory_channel[Portion](_PORTIONS_AHEAD)
            with feeding, self._stop.containing():
                nursery.start_soon(self._prepare, snapshot, changed, ahead_send)
                async for portion in ahead:
                    if portion.changed:
                        self.tally.skipped["changed"] += len(portion.changed)
                        self.tally.left_out += [LeftOut(path, "changed") for path in portion.changed]
                    self.tally.damaged += portion.failures
                    backlog.update(await self._buying.admit(portion))
                    while len(backlog) >= self._width.batch:
                        await self._offer(send, backlog)
                while backlog:
                    await self._offer(send, backlog)
            nursery.cancel_scope.cancel()  # the preparing ends with the feeding

    async def _prepare(
        self, snapshot: Snapshot, changed: Sequence[Entry], ahead: trio.MemorySendChannel[Portion]
    ) -> None:
        async with ahead:
            for entries in portions(changed):
                work = partial(prepare, snapshot, entries, self._limits, check=trio.from_thread.check_cancelled)
                await ahead.send(await trio.to_thread.run_sync(work))

    async def _offer(self, send: trio.MemorySendChannel[Batch], backlog: dict[bytes, str]) -> None:
        self._stop.must_yield()  # which cancels the feeding: delivered by the send below
        batch = list(islice(backlog.items(), self._width.batch))
        await send.send(batch)
        self._stop.offered()
        for hash_, _ in batch:
            del backlog[hash_]

    async def _buy_first(self, batches: trio.MemoryReceiveChannel[Batch]) -> None:
        try:
            await self._buy_batches(batches)
        finally:
            self._buying.has_answered.set()  # or there is nothing to ask

    async def _buy_later(self, batches: trio.MemoryReceiveChannel[Batch]) -> None:
        await self._buying.has_answered.wait()
        await self._buy_batches(batches)

    async def _buy_batches(self, batches: trio.MemoryReceiveChannel[Batch]) -> None:
        async for batch in batches:
            if self.tally.failures:
                return
            with self._stop.containing():
                await self._buying.buy_batch(batch)
