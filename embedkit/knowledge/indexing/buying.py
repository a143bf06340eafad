"""What is bought for one repository: each batch is one ticket, then one transaction.

The transaction keeps the batch's vectors and switches every document that they complete. Between ticket and
transaction nothing can be cancelled, so that what was bought is kept. A refusal that may belong to one
input is no failure yet: see ``bisecting``. A timeout is one, and teaches something besides, which the next run goes by:

- it held several inputs, and was too large: how many is noted, for the repository's ceiling;
- it held one input alone, which is therefore under suspicion. In the next run that input comes last, alone, and only
  after a control: so an engine that answers nobody puts a fence around nothing, and the rest is stored first. If it
  times out again behind a control that did not, it is fenced.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import trio

from embedkit.clocks import ZERO
from embedkit.errors import ContentRefused, EmbedkitError, ProviderError, is_provider_timeout
from embedkit.knowledge.indexing.bisecting import (
    CONTROL,
    MOST_IN_A_ROW,
    Answer,
    Batch,
    Control,
    Found,
    Offer,
    Split,
    Step,
    bisect,
    may_be_an_inputs,
)
from embedkit.knowledge.indexing.gathering import Gathering
from embedkit.knowledge.indexing.preparing import Portion, divided, is_divisible
from embedkit.knowledge.indexing.purchases import Buy, Purchase, unit_rows
from embedkit.knowledge.indexing.waiting_documents import WaitingDocuments
from embedkit.knowledge.storing.parameters import in_batches
from embedkit.knowledge.storing.prepared import PreparedDocument
from embedkit.knowledge.storing.retrying import retry_locked

if TYPE_CHECKING:
    from embedkit.knowledge.indexing.claims import Claims
    from embedkit.knowledge.indexing.stopping import Stop
    from embedkit.knowledge.indexing.tally import Tally
    from embedkit.knowledge.model import Finding
    from embedkit.knowledge.storing.leases import Lease
    from embedkit.knowledge.storing.protocol import Store
    from embedkit.knowledge.storing.repositories import RepositoryRecord

# Documents that are admitted together: what switches in one transaction.
_PORTION = 16


class Buying:
    """The purchases of one repository in one run.

    Args:
        store: Where they are kept.
        record: The repository.
        lease: The run's right to change it.
        buy: Buys vectors.
        batch: Most inputs of a ticket.
        tally: Where account is kept.
        claims: What the tenant's repositories are buying.
        stop: Whether the work is to stop.
        window: About how many tokens the engine takes of one input.
        engine: What names the engine: what it refuses is asked of another again.
        on_progress: Told after each transaction.

    Attributes:
        has_answered: Whether the engine has answered in this run.
        suspects: Inputs that are to be tried when all else is done, with their texts.
        elsewhere: Inputs that another repository of the tenant is buying.
        vanished: Paths of documents that could not switch, since a vector had gone that was there before.
    """

    def __init__(
        self,
        store: Store,
        record: RepositoryRecord,
        lease: Lease,
        buy: Buy,
        *,
        batch: int,
        tally: Tally,
        claims: Claims,
        stop: Stop,
        window: int,
        engine: str | None = None,
        on_progress: Callable[[Tally], object],
    ) -> None:
        self.has_answered = trio.Event()
        self.suspects: dict[bytes, str] = {}
        self.elsewhere: set[bytes] = set()
        self.vanished: set[str] = set()
        self._store = store
        self._record = record
        self._lease = lease
        self._buy = buy
        self._batch = batch
        self._tally = tally
        self._claims = claims
        self._claimed: set[bytes] = set()
        self._stop = stop
        self._window = window
        self._engine = engine
        self._refused_in_a_row = 0
        self._on_progress = on_progress
        self._gathering = Gathering(self._commit)
        self._waiting_documents = WaitingDocuments()
        self._fenced: set[bytes] = set()
        self._over_window: set[bytes] = set()
        self._on_trial: bytes | None = None

    def begin_round(self) -> None:
        """Documents that vanished are to be admitted again, and nothing is queued or out."""
        self.vanished.clear()
        self._waiting_documents.arrived_lately.clear()

    async def admit(self, portion: Portion) -> dict[bytes, str]:
        """Switch what needs no purchase, and return the inputs that nobody has, is buying, or suspects: to be bought.

        Raises:
            StoreError: The store cannot be read or written.

        Cancellation:
            Nothing was changed, or what was ready has switched.
        """
        known: set[bytes] = set()
        suspected: set[bytes] = set()
        looked_up: set[bytes] = set()
        claimed: set[bytes] = set()
        while new := portion.inputs.keys() - looked_up:
            # Before the look-up, which then knows of everything that others have stored and released.
            claimed_now = self._claims.claim(new - self._claimed)
            self._claimed |= claimed_now
            claimed |= claimed_now
            found = await self._store.known_inputs(self._record.tenant_id, new)
            looked_up |= new
            known |= found.known
            suspected |= found.suspected
            self._fenced |= found.fenced
            self._over_window |= found.over_window
            portion = divided(portion, self._over_window)
        # From here to the end of the loop there is no checkpoint: what landed during the look-ups is known now, and
        # what has not landed is waited for. An await in between would buy some inputs twice.
        known |= self._waiting_documents.arrived_lately.intersection(portion.inputs)
        ready: list[PreparedDocument] = []
        to_buy: dict[bytes, str] = {}
        for document in portion.documents:
            missing = {part.hash for part in document.chunks} - known - self._fenced
            for hash_ in self._waiting_documents.enter(document, missing, self._fenced):
                if hash_ in suspected:
                    self.suspects[hash_] = portion.inputs[hash_]
                elif hash_ in self._claimed:
                    to_buy[hash_] = portion.inputs[hash_]
                else:
                    self.elsewhere.add(hash_)
            if not missing:
                ready.append(document)
        self._tally.reused = self._waiting_documents.reused
        self.release(hash_ for hash_ in claimed if hash_ not in self._waiting_documents)
        if ready:
            await self._gathering.commit({}, ready)
        return to_buy

    async def take_over(self) -> dict[bytes, str]:
        """Wait for what others were buying; return what of it is ours to buy after all.

        Nothing of ours may be queued or out: see ``claims``.

        Raises:
            StoreError: The store cannot be read or written.

        Cancellation:
            As ``admit``; or it was still waiting.
        """
        self.release()
        await self._claims.released(self.elsewhere)
        documents = [document for hash_ in self.elsewhere for document in self._waiting_documents.withdraw(hash_)]
        self.elsewhere.clear()
        ours: dict[bytes, str] = {}
        for some in in_batches(documents, _PORTION):
            ours |= await self.admit(Portion(some))
        return ours

    def release(self, hashes: Iterable[bytes] | None = None) -> None:
        """These inputs are stored, or will not be bought; without any, whatever is still claimed."""
        ended = self._claimed.intersection(self._claimed if hashes is None else hashes)
        self._claimed -= ended
        self._claims.release(ended)

    async def buy_batch(self, batch: Batch) -> None:
        """Buy what may be bought of ``batch``, and keep it.

        Raises:
            EmbedkitError: The ticket's failure, or the store's.

        Cancellation:
            What was bought is kept; the rest is as it was.
        """
        refused = await self._offer(batch)
        if refused is not None:
            await self._search(batch, refused)

    async def _search(self, batch: Batch, refused: ProviderError) -> None:
        """Do what the bisection says until it has found out, or the work is to stop."""
        search = bisect(batch, refused, window=self._window)
        answer: Answer = None
        has_begun = False
        while True:
            try:
                step = search.send(answer)
            except StopIteration as ended:
                await self._conclude(batch, ended.value)
                return
            # Between tickets; not before the first control and before a split, which brings the next sweep further.
            if has_begun and not isinstance(step, Split) and self._stop.must_yield():
                return  # without its last control nobody is at fault
            has_begun = True
            answer = await self._do(step)

    async def _do(self, step: Step) -> Answer:
        match step:
            case Control():
                await self.control()
                return None
            case Offer():
                return await self._offer(step.batch)
            case Split():
                return await self.split(step.hash)

    async def _offer(self, batch: Batch) -> ProviderError | None:
        """Buy and keep; a refusal that may belong to one of the inputs is returned, any other failure raised."""
        try:
            purchase = await self._bought(batch)
        except ProviderError as error:
            if not may_be_an_inputs(error):
                raise
            self.spend(error)
            return error
        self._refused_in_a_row = 0
        await self.keep(batch, purchase)
        return None

    async def _conclude(self, batch: Batch, found: Found) -> None:
        if found.was_too_large:
            self._note_too_large(batch)
        for error in found.at_fault.values():
            self._refused_in_a_row += not isinstance(error, ContentRefused)
            if self._refused_in_a_row >= MOST_IN_A_ROW:
                raise error  # one ticket after the other: this is no property of texts
        if found.at_fault:
            await self._fence({hash_: error.durable_code for hash_, error in found.at_fault.items()})

    async def try_suspect(self) -> None:
        """Offer one of ``suspects``, alone, after a control.

        Raises:
            EmbedkitError: The control's failure, which says nothing of the suspect; its own; or the store's.

        Cancellation:
            Nothing was learned of it, or that is stored.
        """
        hash_ = next(iter(self.suspects))
        text = self.suspects.pop(hash_)
        await self.control()
        self._on_trial = hash_
        await self.buy_batch([(hash_, text)])

    async def _bought(self, batch: Batch) -> Purchase:
        try:
            purchase = await self._buy([text for _, text in batch])
        except EmbedkitError as error:
            if is_provider_timeout(error):
                await self._learn(batch, error)
            raise
        self.has_answered.set()
        return purchase

    async def control(self) -> None:
        """Buy the control.

        Raises:
            EmbedkitError: Its failure, which is the engine's.

        Cancellation:
            It leaves nothing behind in any case.
        """
        self.spend(await self._buy([CONTROL]))
        self.has_answered.set()

    async def keep(self, batch: Batch, purchase: Purchase) -> None:
        """Store what was bought for ``batch``, with the documents that are complete now.

        Cancellation:
            Shielded: bought is kept, whoever cancels.
        """
        with trio.CancelScope(shield=True):
            self._tally.embedded += len(batch)
            self.spend(purchase)
            hashes = [hash_ for hash_, _ in batch]
            ready = self._waiting_documents.arrived(hashes)
            await self._gathering.commit(dict(zip(hashes, unit_rows(purchase.vectors), strict=True)), ready)
            self.release(hashes)

    async def split(self, hash_: bytes) -> Sequence[Batch] | None:
        """Put the halves of an input in its place. It is remembered: nobody of this tenant offers the whole again.

        Returns:
            Those that are to be bought; ``None``, and nothing was done, if it is too short to have halves.

        Cancellation:
            Remembered, or not; no document has changed.
        """
        waiting = self._waiting_documents.waiting_for(hash_)
        # If nobody waits, those who did are being admitted anew on account of another input, and divided then.
        if waiting and not any(is_divisible(document, hash_) for document in waiting):
            return None
        await self._record_finding(hash_, "over-window")
        self._over_window.add(hash_)
        self.release([hash_])
        parts = list((await self.admit(Portion(self._waiting_documents.withdraw(hash_)))).items())
        return [parts[start : start + self._batch] for start in range(0, len(parts), self._batch)]

    def spend(self, spent: Purchase | EmbedkitError) -> None:
        """Account for a call."""
        self._tally.clocks += spent.clocks or ZERO
        self._tally.provider_calls += spent.attempts

    async def _learn(self, batch: Batch, timeout: EmbedkitError) -> None:
        """A ticket timed out. That it did is raised by the caller; here is written down what it says of its inputs."""
        hash_ = batch[0][0]
        # Shielded: the timeout cost minutes, and is not to be bought a second time for nothing.
        with trio.CancelScope(shield=True):
            try:
                if len(batch) == 1 and hash_ == self._on_trial:
                    await self._fence({hash_: timeout.durable_code})
                    return
                if len(batch) == 1:
                    await self._record_finding(hash_, "timed-out")
                else:
                    self._note_too_large(batch)
            except EmbedkitError as trouble:
                self._stop.fail(trouble)

    def _note_too_large(self, batch: Batch) -> None:
        """For the repository's next sweep: this many inputs were too many."""
        self._tally.too_large = min(len(batch), self._tally.too_large or len(batch))

    async def _record_finding(self, hash_: bytes, finding: Finding) -> None:
        await retry_locked(partial(self._store.record_finding, self._record, self._lease, hash_, finding))

    async def _fence(self, refused: Mapping[bytes, str]) -> None:
        with trio.CancelScope(shield=True):
            self._fenced.update(refused)
            ready = self._waiting_documents.left_out(refused)
            self._tally.reused = self._waiting_documents.reused
            await self._write(
                partial(self._store.fence, self._record, self._lease, refused, ready, engine=self._engine), ready
            )
            self.release(refused)

    async def _commit(self, vectors: Mapping[bytes, bytes], ready: Sequence[PreparedDocument]) -> None:
        await self._write(partial(self._store.commit, self._record, self._lease, vectors, ready), ready)

    async def _write(
        self,
        transaction: Callable[[], Awaitable[tuple[int, list[PreparedDocument]]]],
        ready: Sequence[PreparedDocument],
    ) -> None:
        """One transaction, with the vectors in hand."""
        deleted, vanished = await retry_locked(transaction)
        self._tally.deleted += deleted
        self._tally.done += len(ready) - len(vanished)
        self.vanished.update(document.path for document in vanished)
        self._on_progress(self._tally)
