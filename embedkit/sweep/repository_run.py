"""One repository in one sweep: due, lease, look, index, outcome, checkpoint, lease back."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import trio

from embedkit.engine.width import limits_of, width_of
from embedkit.errors import EmbedkitError, StoreError
from embedkit.knowledge.indexing.indexing import Indexing
from embedkit.knowledge.indexing.keeping import keep_lease
from embedkit.knowledge.indexing.tally import Tally
from embedkit.knowledge.sources.selection import Selection
from embedkit.knowledge.sources.source import Sighting, Snapshot, Source, open_source, printable_path
from embedkit.knowledge.storing.leases import LEASE_SECONDS, Leased
from embedkit.knowledge.storing.repositories import Last, RepositoryRecord
from embedkit.knowledge.storing.retrying import retry_locked
from embedkit.settings.redaction import redacted_url
from embedkit.sweep.looking import look
from embedkit.sweep.outcome import Outcome, RepositoryReport, deciding, outcome_of
from embedkit.sweep.progress import Progress
from embedkit.sweep.schedule import is_due
from embedkit.sweep.successor import Swept, successor

if TYPE_CHECKING:
    from embedkit.engine import Embeddings
    from embedkit.knowledge.storing.leases import Lease
    from embedkit.probing.rules import Verdict
    from embedkit.settings import RepositorySettings, SweepSettings
    from embedkit.sweep.places import Seat
    from embedkit.sweep.sweep import Sweep

_RELEASE_SECONDS = 1.0


def root_of(described: RepositorySettings) -> str:
    """Where a repository lies, as the store remembers it: printable, and without what is secret in an address."""
    if described.path is not None:
        return printable_path(os.path.abspath(described.path))
    assert described.git is not None
    return printable_path(redacted_url(described.git))


def selection_of(described: RepositorySettings, sweep: SweepSettings) -> Selection:
    """What of a repository is looked at."""
    return Selection(
        include=described.include or sweep.include,
        exclude=(*sweep.exclude, *described.exclude),
        max_file_bytes=sweep.max_file_bytes,
    )


class RepositoryRun:
    """The work for one repository.

    Args:
        sweep: Its run: engine, store, circuit.
        tenant: The tenant's name.
        described: The repository's settings.
        seat: Its place among the others.
    """

    def __init__(self, sweep: Sweep, tenant: str, described: RepositorySettings, seat: Seat) -> None:
        self._sweep = sweep
        self._tenant = tenant
        self._described = described
        self._seat = seat
        self._tally = Tally()
        self._chunks = 0
        self._fenced: dict[str, int] = {}
        self._lease_failures: list[EmbedkitError] = []
        self._began_at = trio.current_time()

    async def run(self) -> RepositoryReport:
        """Do all of it.

        Raises:
            StoreError: The store could not be asked about the repository.

        Cancellation:
            What was stored stays; the lease was given back; ``aborted`` tells how it stood.
        """
        record = await self._sweep.store.repository(self._tenant, self._described.name, root_of(self._described))
        if not self._sweep.all and not is_due(record.next_due_at, self._sweep.now()):
            turn = self._sweep.turn_of(record)
            if turn == "when due":
                return await self._untouched(record, "not-due", None)
            if turn == "if the engine is well":
                verdict = await self._sweep.engine_verdict()
                # One that was asked for this run, and failed. What others learned a while ago must not keep a person
                # waiting who has just started the engine; if it is down all the same, the first ticket tells.
                if verdict.verdict == "degraded" and not verdict.shared:
                    return await self._put_off_again(record, verdict)
        if self._sweep.circuit.is_open:
            # It had not begun: nothing of it changes, and it is said so.
            return await self._untouched(record, "deferred", self._sweep.circuit.refusal())
        try:
            lease = await self._sweep.store.lease(record)
        except Leased as error:
            return await self._untouched(record, "deferred", error)
        try:
            return await self._under(lease, record)
        except BaseException:
            # The work came to no outcome, which would have given the lease back: nobody need wait for it to expire.
            await self._release(lease, record)
            raise

    def aborted(self) -> RepositoryReport:
        """How it stood when it was cancelled."""
        return attrs.evolve(self._numbers(), outcome="aborted", code="KB_SWEEP_ABORTED", reason="cancelled")

    def failed(self, error: EmbedkitError) -> RepositoryReport:
        """How it stands when the store itself failed."""
        return attrs.evolve(self._numbers(), outcome="failed", code=error.durable_code, reason=str(error))

    async def _under(self, lease: Lease, record: RepositoryRecord) -> RepositoryReport:
        seen = None
        revision = None
        error: EmbedkitError | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_lease, lease, nursery.cancel_scope)
            try:
                await self._sweep.lift_fences(record)
                snapshot = await self._look(record)
                seen, revision = snapshot.sightings, snapshot.revision
                await self._index(record, lease, snapshot, await self._seat.begin_work())
            except EmbedkitError as raised:
                error = raised
            nursery.cancel_scope.cancel()
        errors = [
            *self._lease_failures,
            *self._tally.failures,
            *self._tally.damaged,
            *([error] if error is not None else []),
        ]
        outcome = outcome_of(errors, sliced=self._tally.sliced, outstanding=self._tally.outstanding)
        return await self._settle(lease, record, outcome, deciding(errors), revision, seen)

    async def _keep_lease(self, lease: Lease, work: trio.CancelScope) -> None:
        """Renew the lease while the work goes on, and end the work if it is lost."""
        self._lease_failures.append(await keep_lease(self._sweep.store, lease, LEASE_SECONDS / 3))
        work.cancel()

    async def _look(self, record: RepositoryRecord) -> Snapshot:
        known = await self._sweep.store.sightings(record)
        return await look(self._source, known, self._sweep.looking)

    def _source(self) -> Source:
        settings = self._sweep.engine.settings
        return open_source(
            path=self._described.path,
            git=self._described.git,
            branch=self._described.branch,
            cache=Path(settings.store.path).parent / "git",
            selection=selection_of(self._described, settings.sweep),
            helpers=self._sweep.git_helpers,
        )

    async def _index(self, record: RepositoryRecord, lease: Lease, snapshot: Snapshot, works_since: float) -> None:
        indexing = Indexing(
            self._sweep.store,
            record,
            lease,
            self._buy,
            width=width_of(self._sweep.engine, record.batch_ceiling),
            limits=limits_of(self._sweep.engine.settings.embedding.chunk_tokens),
            slice_ends_at=works_since + self._sweep.engine.settings.sweep.slice,
            on_progress=self._progressed,
            claims=self._sweep.claims(self._tenant),
            may_empty=self._sweep.may_empty,
            window=self._sweep.engine.settings.provider().num_ctx,
            engine=self._sweep.engine_key,
        )
        self._tally = indexing.tally
        await indexing.run(snapshot)

    async def _buy(self, texts: Sequence[str]) -> Embeddings:
        sweep = self._sweep
        bought = await sweep.engine.embed(
            texts,
            tenant=self._tenant,
            stage="ingestion",
            circuit=sweep.circuit,
            on_provider_timeout=partial(sweep.on_timeout, self._tenant, self._described.name),
            run=sweep.id,
        )
        with trio.CancelScope(shield=True):  # bought is kept, whoever cancels
            await sweep.claim_space(bought.vectors.shape[1])
        return bought

    def _progressed(self, tally: Tally) -> None:
        self._sweep.tell(Progress(self._tenant, self._described.name, tally))

    async def _settle(
        self,
        lease: Lease,
        record: RepositoryRecord,
        outcome: Outcome,
        error: EmbedkitError | None,
        revision: str | None,
        seen: Mapping[str, Sighting] | None,
    ) -> RepositoryReport:
        after = self._after(record, outcome, error, revision)
        try:
            # What was seen is remembered once it is stored: before, the files must be looked at again.
            finish = partial(self._sweep.store.finish, after, lease, seen if outcome == "complete" else None)
            await retry_locked(finish)
        except (StoreError, Leased) as raised:
            await self._release(lease, record)
            outcome = "aborted" if isinstance(raised, Leased) else "failed"
            return self._report(record, outcome, error or raised)
        await self._count(record)
        return self._report(after, outcome, error)

    async def _release(self, lease: Lease, record: RepositoryRecord) -> None:
        """Give the lease back if the store takes it; else it expires, or is free when this process has ended.

        And count, for the report of what was cut off.
        """
        with trio.move_on_after(_RELEASE_SECONDS, shield=True), suppress(StoreError):
            await self._sweep.store.release(lease)
            await self._count(record)

    async def _count(self, record: RepositoryRecord) -> int:
        """See how many chunks are stored and fenced now; returns the number of documents."""
        documents, self._chunks = await self._sweep.store.count(record)
        self._fenced = await self._sweep.store.fenced(record)
        return documents

    def _after(
        self, record: RepositoryRecord, outcome: Outcome, error: EmbedkitError | None, revision: str | None
    ) -> RepositoryRecord:
        """The record after this outcome: see ``successor``."""
        settings = self._sweep.engine.settings
        last = Last(
            outcome,
            None if error is None else error.durable_code,
            None if error is None else error.attribution,
            None if error is None else str(error),
            self._tally.clocks,
            self._sweep.now(),
        )
        done = Swept(
            revision=revision,
            generation=limits_of(settings.embedding.chunk_tokens).generation,
            outstanding=self._tally.outstanding,
            too_large=self._tally.too_large,
            last=last,
            tripped=self._sweep.has_tripped(self._tenant, self._described.name),
        )
        return successor(
            record,
            outcome,
            done,
            cadence=settings.cadence_for(self._described),
            cap=settings.sweep.backoff_cap,
            batch=settings.batch_for(),
        )

    async def _untouched(
        self, record: RepositoryRecord, outcome: Outcome, error: EmbedkitError | None
    ) -> RepositoryReport:
        """The report of a repository that is as it was."""
        documents = await self._count(record)
        return attrs.evolve(self._report(record, outcome, error), documents=documents)

    async def _put_off_again(self, record: RepositoryRecord, verdict: Verdict) -> RepositoryReport:
        """The report of one that waits for an engine that is not well yet. No call was made for it."""
        report = await self._untouched(record, "deferred", None)
        assert record.last is not None
        reason = f"the engine is not well yet ({verdict.reason}); before: {record.last.reason}"
        return attrs.evolve(report, code=record.last.code, reason=reason)

    def _report(self, record: RepositoryRecord, outcome: Outcome, error: EmbedkitError | None) -> RepositoryReport:
        due = record.next_due_at
        report = attrs.evolve(
            self._numbers(),
            outcome=outcome,
            code=None if error is None else error.durable_code,
            reason=None if error is None else str(error),
            attribution=None if error is None else error.attribution,
            revision=record.revision,
            next_due_in=None if due is None else max(due - self._sweep.now(), 0.0),
            succeeded=record.succeeded,
            last=record.last,
        )
        self._sweep.tell(Progress(self._tenant, self._described.name, self._tally, report))
        return report

    def _numbers(self) -> RepositoryReport:
        tally = self._tally
        return RepositoryReport(
            self._tenant,
            self._described.name,
            "aborted",
            documents=tally.documents,
            skipped=dict(tally.skipped),
            left_out=tally.left_out,
            recoded=dict(tally.recoded),
            chunks=self._chunks,
            fenced=sum(self._fenced.values()),
            fenced_in=self._fenced,
            embedded=tally.embedded,
            reused=tally.reused,
            deleted=tally.deleted,
            provider_calls=tally.provider_calls,
            clocks=tally.clocks,
            elapsed=trio.current_time() - self._began_at,
            outstanding=tally.outstanding,
        )
