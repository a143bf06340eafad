"""The drain: texts that were deferred become stored vectors, a few at a time, at an engine that may not answer.

A cycle takes the oldest records, offers those of a repository as one ticket, stores what comes back, and only then
takes the records off the log. What fails decides what follows:

=====================  =====================================================================================
failure                what follows
=====================  =====================================================================================
provider timeout       the cycle ends, and nothing of it is offered again in it. The next waits at least as
                       long as this one did, twice that after another, up to an hour, and begins with a probe.
                       A ticket of several is narrower next time; one alone counts against its record
an input's             the records are offered one by one; one that fails alone, beside a control that does not,
                       counts against itself
may be an input's      (a passing failure: 500, a connection that broke) the ticket is narrower next time, and the
                       cycle ends; one alone is judged as above
the engine's           the cycle ends, with a pause that doubles; no record is blamed
=====================  =====================================================================================

A record that has failed six times by itself is given up: kept, told of, and offered again when somebody says so.

Tests: tests/engine/test_draining.py.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs
import trio

from embedkit.admission.circuit import Circuit
from embedkit.engine.drain_rules import BATCH, INTERVAL_SECONDS, MOST_ATTEMPTS, cooldown, pause, tickets
from embedkit.engine.role import run_as
from embedkit.engine.width import limits_of
from embedkit.errors import EmbedkitError, ProviderError, StoreError, StoreFull, StoreLocked, is_provider_timeout
from embedkit.knowledge.chunking import chunk
from embedkit.knowledge.indexing.bisecting import CONTROL
from embedkit.knowledge.indexing.purchases import unit_rows
from embedkit.knowledge.model import Document
from embedkit.knowledge.sources.given import check_document
from embedkit.knowledge.storing import deferring
from embedkit.knowledge.storing.prepared import PreparedDocument
from embedkit.knowledge.storing.repositories import GIVEN_ROOT
from embedkit.knowledge.storing.retrying import retry_locked

if TYPE_CHECKING:
    from embedkit.database import Database
    from embedkit.engine.engine import Engine
    from embedkit.knowledge.storing.deferring import Deferred, DrainStatistics
    from embedkit.knowledge.storing.leases import Lease
    from embedkit.knowledge.storing.protocol import Store
    from embedkit.knowledge.storing.repositories import RepositoryRecord

ROLE: Final = "drain"

_log = logging.getLogger("embedkit.drain")
_RELEASE_SECONDS = 1.0


@attrs.define
class Cycle:
    """What one cycle did.

    Attributes:
        drained: Records whose vectors are stored now.
        failed: Records that failed by themselves.
        calls: Attempts made.
        yielded: Why it ended before its records did, as a durable code; ``None``: it did not.
        is_empty: Whether no record was ready.
    """

    drained: int = 0
    failed: int = 0
    calls: int = 0
    yielded: str | None = None
    is_empty: bool = False


class _Yield(Exception):
    """The cycle is over: its error says why, and how long the engine was waited for."""

    def __init__(self, error: EmbedkitError) -> None:
        super().__init__(str(error))
        self.error = error


class Drain:
    """The drain of an engine's knowledge base; ``Engine.drain``.

    Args:
        engine: Whose lanes and knowledge base it uses.
        wall_clock: Seconds since 1970.
    """

    def __init__(self, engine: Engine, *, wall_clock: Callable[[], float] = time.time) -> None:
        self._engine = engine
        self._now = wall_clock
        self._pause = 0.0
        self._must_probe = False
        self._not_before = -math.inf

    async def append(self, document: Document, *, tenant: str, repository: str) -> None:
        """Note a text in the log; see ``Engine.defer``.

        Cancellation:
            Noted, or not.
        """
        database, now = await self._database(), self._now()
        await database.write(
            lambda connection: deferring.append(
                connection, tenant, repository, document.path, document.text, document.metadata, now
            )
        )

    async def statistics(self) -> DrainStatistics:
        """How the log stands.

        Raises:
            StoreError: It cannot be read.

        Cancellation:
            Nothing was changed.
        """
        database = await self._database()
        return await database.read(partial(deferring.statistics, most_attempts=MOST_ATTEMPTS, now=self._now()))

    async def revive(self) -> int:
        """Offer what was given up once more; returns how many records.

        Raises:
            StoreError: The log cannot be written.

        Cancellation:
            All of them, or none.
        """
        database = await self._database()
        return await database.write(partial(deferring.revive, most_attempts=MOST_ATTEMPTS))

    async def run(self, *, on_cycle: Callable[[Cycle], object] | None = None) -> None:
        """Drain until cancelled: a cycle every five seconds while there are records, one drain a store.

        Args:
            on_cycle: Told of each cycle that had records, synchronously.

        Raises:
            UsageError: A key that is unset, a model that the engine does not have, or a store of another space.
            StoreError: The store cannot be used; one that is locked or full for a while is waited for.

        Cancellation:
            What was bought is stored; another drain of the store takes over at once.
        """

        async def drain() -> None:
            while True:
                try:
                    done = await self.cycle()
                except (StoreLocked, StoreFull) as error:
                    _log.warning("the drain goes on in a moment: %s", error)
                    done = Cycle()
                if on_cycle is not None and not done.is_empty:
                    on_cycle(done)
                await self._rest()

        await run_as(await self._database(), ROLE, drain)

    async def until_empty(self) -> Cycle:
        """Cycles one after the other, until no record is ready or one yields; what all of them did.

        Raises:
            UsageError: As ``run``.
            StoreError: The store cannot be used.

        Cancellation:
            What was bought is stored.
        """
        total = Cycle()

        async def drain() -> None:
            while True:
                done = await self.cycle()
                total.drained += done.drained
                total.failed += done.failed
                total.calls += done.calls
                total.yielded = done.yielded
                if done.is_empty or done.yielded is not None:
                    return

        await run_as(await self._database(), ROLE, drain)
        return total

    async def cycle(self) -> Cycle:
        """Embed up to twenty records.

        Raises:
            UsageError: As ``run``.
            StoreError: The store cannot be used.

        Cancellation:
            What was bought is stored, and what is stored is off the log, or will be found stored by the next cycle.
        """
        done = Cycle()
        database = await self._database()
        records = await database.read(
            partial(deferring.ready, most_attempts=MOST_ATTEMPTS, now=self._now(), count=BATCH)
        )
        if not records:
            done.is_empty = True
            return done
        if trio.current_time() < self._not_before:
            done.yielded = "KB_DRAIN_PAUSED"
            return done
        await self._engine.check_space()
        if self._must_probe and (await self._engine.probe()).verdict != "healthy":
            self._yield(0.0)
            done.yielded = "KB_DRAIN_ENGINE_NOT_HEALTHY"
            return done
        run = _CycleRun(self._engine, database, await self._engine.knowledge(), self._now, done)
        try:
            for ticket in tickets(records):
                await run.drain(ticket)
        except _Yield as ended:
            done.yielded = ended.error.durable_code
            self._must_probe = self._must_probe or is_provider_timeout(ended.error)
            self._yield(0.0 if ended.error.clocks is None else ended.error.clocks.provider_time)
        else:
            self._pause, self._must_probe, self._not_before = 0.0, False, -math.inf
        return done

    def _yield(self, spent: float) -> None:
        self._pause = pause(self._pause, spent)
        self._not_before = trio.current_time() + self._pause

    async def _rest(self) -> None:
        await trio.sleep(max(INTERVAL_SECONDS, self._not_before - trio.current_time()))

    async def _database(self) -> Database:
        database = await self._engine.database()
        await database.migrate(deferring.COMPONENT, deferring.STEPS, deferring.RULES)
        return database


class _CycleRun:
    """One cycle's dealings with the engine and the store, under a circuit of its own."""

    def __init__(self, engine: Engine, database: Database, store: Store, now: Callable[[], float], done: Cycle) -> None:
        self._engine = engine
        self._database = database
        self._store = store
        self._now = now
        self._done = done
        self._circuit = Circuit()
        self._run = secrets.token_hex(8)
        self._limits = limits_of(engine.settings.embedding.chunk_tokens)
        self._space: int | None = None

    async def drain(self, records: Sequence[Deferred]) -> None:
        """Embed the records of one repository, together, or one by one if one of them is at fault.

        Raises:
            _Yield: The cycle is over.
        """
        first = records[0]
        known = await self._store.repository(first.tenant, first.repository, GIVEN_ROOT)
        try:
            lease = await self._store.lease(known)
        except StoreError:
            raise
        except EmbedkitError:
            return  # somebody is at work on it: the next cycle comes to it
        try:
            await self._under(known, lease, records)
        finally:
            with trio.move_on_after(_RELEASE_SECONDS, shield=True), suppress(StoreError):
                await self._store.release(lease)

    async def _under(self, known: RepositoryRecord, lease: Lease, records: Sequence[Deferred]) -> None:
        try:
            await self._embed(known, lease, records)
        except ProviderError as error:
            self._done.calls += error.attempts
            if is_provider_timeout(error):
                await self._note_timeout(records, error)
                raise _Yield(error) from error
            if not error.isolable:
                raise _Yield(error) from error
            if len(records) == 1:
                await self._control()
                await self._note_failure(records[0], error)
                return
            if error.deferrable:
                await self._narrow(records)
                raise _Yield(error) from error
            for record in records:
                await self._under(known, lease, [record])
        except StoreError:
            raise
        except EmbedkitError as error:
            raise _Yield(error) from error

    async def _control(self) -> None:
        """A text that nothing is wrong with: if that fails too, the engine is at fault, and no record.

        Raises:
            _Yield: It failed.
        """
        try:
            bought = await self._engine.embed([CONTROL], stage="drain", circuit=self._circuit, run=self._run)
        except EmbedkitError as error:
            self._done.calls += error.attempts
            raise _Yield(error) from error
        self._done.calls += bought.attempts

    async def _embed(self, known: RepositoryRecord, lease: Lease, records: Sequence[Deferred]) -> None:
        documents = {record.path: record for record in records}  # the last of each path
        prepared = await trio.to_thread.run_sync(self._prepared, list(documents.values()))
        inputs = {part.hash: part.input for document in prepared for part in document.chunks}
        found = await self._store.known_inputs(known.tenant_id, list(inputs))
        missing = {hash_: text for hash_, text in inputs.items() if hash_ not in found.known | found.fenced}
        vectors: Mapping[bytes, bytes] = {}
        if missing:
            bought = await self._engine.embed(
                list(missing.values()), tenant=known.tenant, stage="drain", circuit=self._circuit, run=self._run
            )
            self._done.calls += bought.attempts
            vectors = dict(zip(missing, unit_rows(bought.vectors), strict=True))
            dimension = bought.vectors.shape[1]
        with trio.CancelScope(shield=True):  # bought is kept, whoever cancels
            if missing and self._space != dimension:
                await retry_locked(partial(self._store.claim_space, self._engine.space_of(dimension)))
                self._space = dimension
            _, left = await retry_locked(partial(self._store.commit, known, lease, vectors, prepared))
            # The marker after the vector: whoever dies in between finds the vector, and buys nothing twice.
            behind = {document.path for document in left}
            stored = [record.id for record in records if record.path not in behind]
            await self._database.write(partial(deferring.mark_done, ids=stored))
            self._done.drained += len(stored)

    def _prepared(self, records: Sequence[Deferred]) -> list[PreparedDocument]:
        found = []
        for record in records:
            document = Document(record.path, record.text, record.metadata)
            found.append(
                PreparedDocument.of(
                    record.path,
                    document.content_hash,
                    self._limits.generation,
                    chunk(record.path, record.text, limits=self._limits),
                    metadata=record.metadata,
                )
            )
        return found

    async def _note_timeout(self, records: Sequence[Deferred], error: ProviderError) -> None:
        # Shielded: the timeout cost minutes, and is not to be bought a second time for nothing.
        with trio.CancelScope(shield=True):
            if len(records) == 1:
                await self._note_failure(records[0], error)
                return
            await self._narrow(records)

    async def _narrow(self, records: Sequence[Deferred]) -> None:
        ids = [record.id for record in records]
        await self._database.write(partial(deferring.narrow, ids=ids, width=len(records) // 2))

    async def _note_failure(self, record: Deferred, error: ProviderError) -> None:
        self._done.failed += 1
        at = self._now() + cooldown(record.attempts + 1)
        await self._database.write(
            partial(deferring.mark_failed, number=record.id, code=error.durable_code, not_before=at)
        )


def checked(text: str, path: str | None, metadata: Mapping[str, object] | None) -> Document:
    """The document that is deferred.

    Raises:
        UsageError: It cannot be stored.
    """
    name = f"{secrets.token_hex(8)}" if path is None else path
    document = Document(name, text, {} if metadata is None else metadata, content_hash="not yet")
    return check_document(document)
