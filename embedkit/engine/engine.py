"""The engine: everything that one process shares, bound to a nursery that the caller can see.

It holds the lanes (one a provider, opened at its first use), the ledger, and the knowledge base where one is used.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import trio

from embedkit.activity.ledger import Ledger
from embedkit.admission.circuit import Circuit
from embedkit.admission.snapshot import snapshot_of
from embedkit.admission.ticket import Ids, Ticket, TimeoutHook
from embedkit.admission.waiting import Priority
from embedkit.clocks import Clocks
from embedkit.engine.route import Embeddings
from embedkit.engine.routes import Routes
from embedkit.errors import SpaceMismatch, StoreError, UsageError
from embedkit.knowledge.model import Space
from embedkit.knowledge.storing.forgetting import Forgotten
from embedkit.probing.broker import ProbeBroker
from embedkit.probing.rules import Verdict
from embedkit.providers.guarded import GuardedConnection, GuardedProvider, check_texts
from embedkit.settings import Settings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from embedkit.activity.disk import LedgerOnDisk
    from embedkit.admission.lane import Lane
    from embedkit.database import Database
    from embedkit.engine.draining import Drain
    from embedkit.knowledge.model import Document
    from embedkit.knowledge.searching.search import Hit, Mode
    from embedkit.knowledge.storing.protocol import Store
    from embedkit.providers.provider import Provider
    from embedkit.providers.wire import Purpose


@attrs.frozen
class Indexed:
    """What ``Engine.index`` did.

    Attributes:
        documents: Documents that were given and are stored now, whether or not they were before.
        chunks: Chunks in the repository now.
        embedded: Vectors bought.
        reused: Chunks of changed documents whose vector was there already.
        deleted: Chunks removed: of earlier versions, and of documents that were not named.
        fenced: Chunks that the engine refuses, by the path of the document; the rest of it is stored.
        oversized: Paths of documents over ``sweep.max_file_bytes``, which are left out.
        provider_calls: Attempts made.
        clocks: Sums over tickets.
    """

    documents: int
    chunks: int
    embedded: int
    reused: int
    deleted: int
    fenced: Mapping[str, int] = attrs.field(hash=False)
    oversized: tuple[str, ...]
    provider_calls: int
    clocks: Clocks


class Engine:
    """See ``open_engine``, which makes it.

    Attributes:
        settings: What is in force.
        nursery: Slots, and the calls in them, run here.
        ledger: What happened to every ticket and attempt.
        probes: What is known of providers; ``probes.verdict(name)`` starts nothing, and is for health endpoints.
        environ: Where keys are read.
        show_words: Given an engine's own words about a refusal, less the keys.
    """

    def __init__(
        self,
        settings: Settings,
        nursery: trio.Nursery,
        scribes: trio.Nursery,
        stack: AsyncExitStack,
        ledger: Ledger,
        *,
        reserve: int,
        environ: Mapping[str, str],
        providers: Mapping[str, Provider],
        show_words: Callable[[str], None] | None = None,
        store: Store | None = None,
    ) -> None:
        self.settings = settings
        self.nursery = nursery
        self.ledger = ledger
        self.environ = environ
        self.show_words = show_words
        self.probes = ProbeBroker(nursery, settings.probe)
        ledger.attach(self.probes)
        self._scribes = scribes
        self._writing = trio.CancelScope(shield=True)
        self._stack = stack
        self._routes = Routes(
            settings,
            nursery,
            stack,
            ledger,
            self.probes,
            self._held_space,
            reserve=reserve,
            environ=environ,
            given=providers,
            show_words=show_words,
        )
        self._own_store = store
        self._knowledge: Store | None = None
        self._database: Database | None = None
        self._drain: Drain | None = None
        self._opening_knowledge = trio.Lock()

    def lane(self, provider: str | None = None) -> Lane[GuardedConnection]:
        """The lane of a provider; without a name, of the one that embeds. Opened on first use; nothing is sent.

        Raises:
            UsageError: No such provider, it is misdescribed, or it is unqueued (Gemini).
        """
        return self._routes.route(provider).lane

    @property
    def lanes(self) -> Sequence[Lane[GuardedConnection]]:
        """The lanes that have been opened."""
        return [route.lane for route in self._routes if route.is_queued]

    def is_queued(self, provider: str | None = None) -> bool:
        """Whether a lane governs the provider; Gemini, which is remote, has none and no circuit either."""
        return self._routes.route(provider).is_queued

    def width(self, batch: int, provider: str | None = None) -> tuple[int, int]:
        """How the indexer is to use a provider: inputs of a ticket, at most ``batch``, and how many tickets at once."""
        return self._routes.route(provider).width(batch)

    async def embed(
        self,
        texts: Sequence[str],
        *,
        provider: str | None = None,
        priority: Priority = "batch",
        tenant: str | None = None,
        stage: str = "query",
        purpose: Purpose = "document",
        timeout: float | None = None,
        deadline: float | None = None,
        circuit: Circuit | None = None,
        on_provider_timeout: TimeoutHook | None = None,
        run: str | None = None,
    ) -> Embeddings:
        """Embed ``texts`` as one ticket.

        Args:
            texts: One or more. They stay together: one request, one outcome. A provider with a bound on a batch
                (``max_inputs``) gets as many requests, one after the other, as that asks for.
            provider: Which; without one, the one that embeds.
            priority: ``interactive`` if somebody waits for it.
            tenant: Whose work it is; batch work is shared fairly between tenants.
            stage: ``ingestion``, ``query``, ``drain``: for the ledger.
            purpose: ``query`` for a text that is to find others: it gets ``query_prefix`` and ``query_body`` of the
                settings, in place of those for texts that are to be found.
            timeout: Seconds for one attempt, from dispatch to the last byte; else the settings' ladder.
            deadline: Seconds from now for everything: queue, attempts and waits between them.
            circuit: The run's; when it trips, the ticket is shed if it is still queued. An unqueued provider (Gemini)
                knows none: neither this nor the next is used.
            on_provider_timeout: Called once, synchronously, if the final failure is a provider timeout, before anybody
                else is dispatched. Without one, ``circuit`` trips.
            run: The run's id, for the ledger.

        Raises:
            ProviderError: The final failure.
            AdmissionError: The lane's: circuit open, deadline passed, closed.
            UsageError: No such provider, an unset key, a model that the engine does not have, or no list of texts.

        Cancellation:
            A queued ticket has left the lane and was never sent. A dispatched one is detached or aborted, as its lane's
            kind says.
        """
        check_texts(texts)
        route = self._routes.route(provider)
        limit = self.settings.timeout_for(route.provider.name, timeout)
        deadline_at = math.inf if deadline is None else trio.current_time() + deadline
        if on_provider_timeout is None and circuit is not None:
            on_provider_timeout = circuit.trip
        make_ticket = partial(
            Ticket,
            priority=priority,
            tenant=tenant,
            timeout=limit.seconds,
            limit_name=limit.rung,
            deadline_at=deadline_at,
            circuit=circuit,
            on_provider_timeout=on_provider_timeout,
            ids=Ids(stage=stage, run=run),
        )
        return await route.run(texts, purpose, deadline_at, make_ticket)

    async def search(
        self,
        query: str = "",
        *,
        tenant: str | Sequence[str],
        repository: str | None = None,
        k: int = 10,
        mode: Mode = "hybrid",
        path: Sequence[str] = (),
        language: Sequence[str] = (),
        min_score: float | None = None,
        like: tuple[str, int] | None = None,
        metadata: Mapping[str, object] | None = None,
        deadline: float | None = None,
    ) -> list[Hit]:
        """The ``k`` chunks of ``tenant`` nearest to ``query``, best first. The same chunk in several places is one hit.

        Args:
            query: What is looked for, in words or code.
            tenant: Whose chunks; no other tenant's are looked at. Several are ranked together.
            repository: Only in this one.
            k: How many at most.
            mode: ``vector`` (cosine), ``text`` (BM25 over words), or both joined by rank.
            path: Only in documents that one of these patterns names, as in a ``.gitignore``.
            language: Only in documents of these languages.
            min_score: Only hits with at least this cosine; in mode ``text``, this BM25.
            like: Path and line of a stored chunk: its neighbours are looked for, by its vector, and nobody is asked.
            metadata: Only in documents whose metadata has all of these values.
            deadline: Seconds from now for the embedding of the query: its queue, attempts and waits between them.

        Raises:
            UsageError: A language that is not known, or nothing stands at ``like``.
            SpaceMismatch: The store's vectors are of another space than the provider's.
            ProviderError: The query could not be embedded.
            AdmissionError: The lane's: the deadline passed, closed.
            StoreError: The store cannot be read.

        Cancellation:
            Nothing was changed.
        """
        # Imported here, so that `import embedkit` stays light for those who only embed.
        from embedkit.knowledge.searching.search import Query

        store = await self.knowledge(may_be_read_only=True)
        tenants = [tenant] if isinstance(tenant, str) else list(tenant)
        vector = None
        if like is not None:
            mode = "vector"
        elif mode != "text":
            await self.check_space()
            owner = tenants[0] if len(tenants) == 1 else None
            bought = await self.embed([query], priority="interactive", tenant=owner, purpose="query", deadline=deadline)
            vector = _unit(bought.vectors[0])
        return await store.search(
            Query(
                tenants=tenants,
                text=query,
                vector=vector,
                like=like,
                mode=mode,
                k=k,
                repository=repository,
                paths=path,
                languages=language,
                min_score=min_score,
                metadata=metadata or {},
            )
        )

    async def index(
        self,
        tenant: str,
        repository: str,
        documents: Iterable[Document] | AsyncIterable[Document],
        *,
        complete: bool | Callable[[], bool] = False,
        allow_empty: bool = False,
        on_progress: Callable[[int, int], object] | None = None,
    ) -> Indexed:
        """Store texts that are in no folder. What has not changed is not bought again.

        The repository is one of given texts alone: no sweep touches it. Its texts are indexed in portions, under its
        lease; old versions are found until new ones are stored.

        Args:
            tenant: Whose texts.
            repository: Where they go; made if there is none.
            documents: New, changed or as they were. Of one path the last counts. Asked for as they are stored: an
                endless one need not fit into memory.
            complete: Whether ``documents`` are all there is, so that what they do not name is removed; or asked, once
                the last has been given and stored. With any failure nothing is removed.
            allow_empty: Whether ``complete`` may remove everything.
            on_progress: Told, after each transaction, how many of the documents are stored, and how many vectors were
                bought for them.

        Raises:
            UsageError: The repository holds a folder's files, or what was given is no ``Document`` that can be stored;
                what was given before it is stored.
            SpaceMismatch: The store's vectors are of another space than the provider's.
            ProviderError: The engine failed; what it had answered is stored, and the next call goes on from there.
            EmbedkitError: A sweep is working on the repository, or a document cannot be cut; the others are stored.
            StoreError: The store cannot be written.
            Exception: Whatever ``documents`` raise; what they gave before is stored.

        Cancellation:
            Every batch that had been bought is kept; nothing was removed, or all of what was to be, or part of it.
        """
        # Imported here, with all of chunking and indexing, so that `import embedkit` stays light.
        from embedkit.engine.adding import Adding

        for name, value in (("tenant", tenant), ("repository", repository)):
            if not value.strip() or not value.isprintable():
                raise UsageError(f"{name} is {value!a}; it is a name in one line")
        await self.check_space()
        adding = Adding(self, await self.knowledge(), tenant, repository, on_progress)
        is_complete = complete if callable(complete) else lambda: bool(complete)
        tally, chunks, fenced = await adding.run(documents, complete=is_complete, allow_empty=allow_empty)
        return Indexed(
            documents=tally.done,
            chunks=chunks,
            embedded=tally.embedded,
            reused=tally.reused,
            deleted=tally.deleted,
            fenced=fenced,
            oversized=tuple(item.path for item in tally.left_out),
            provider_calls=tally.provider_calls,
            clocks=tally.clocks,
        )

    @property
    def drain(self) -> Drain:
        """What embeds the texts that were deferred: ``await engine.drain.run()``; see ``Drain``."""
        from embedkit.engine.draining import Drain

        if self._drain is None:
            self._drain = Drain(self)
        return self._drain

    async def defer(
        self,
        text: str,
        *,
        tenant: str,
        repository: str,
        path: str | None = None,
        metadata: Mapping[str, object] | None = None,
    ) -> str:
        """Store a text now and embed it later: it is in a durable log when this returns, and no engine was asked.

        ``drain`` embeds it, in this process or in another (``embedkit drain``, ``embedkit run``). Until then a search
        does not find it.

        Args:
            text: What is to be found.
            tenant: Whose.
            repository: Where it goes: one whose texts are given, not a folder's.
            path: The document's name there; a later text of the same name takes its place. Without one, a new name.
            metadata: Of the document.

        Returns:
            The document's name.

        Raises:
            UsageError: It cannot be stored: no text, no name, or metadata that is no JSON.
            StoreError: The log cannot be written.

        Cancellation:
            Noted, or not; a name that was given may be deferred again.
        """
        from embedkit.engine.draining import checked

        for name, value in (("tenant", tenant), ("repository", repository)):
            if not value.strip() or not value.isprintable():
                raise UsageError(f"{name} is {value!a}; it is a name in one line")
        document = checked(text, path, metadata)
        await self.drain.append(document, tenant=tenant, repository=repository)
        return document.path

    async def forget(self, *, tenant: str, repository: str | None = None) -> Forgotten:
        """Remove a repository, or all of a tenant's, from the knowledge base, with all that is kept for it.

        Args:
            tenant: Whose.
            repository: Which; without one, all of them.

        Raises:
            UsageError: The store has no such tenant or repository.
            EmbedkitError: A sweep is working on one of them.
            StoreError: The store cannot be written.

        Cancellation:
            Whole repositories may be gone; one that was begun is continued by the next call.
        """
        store = await self.knowledge(create=False)
        records = [record for record in await store.repositories() if record.tenant == tenant]
        chosen = [record for record in records if repository in (None, record.name)]
        if not chosen:
            known = ", ".join(record.name for record in records) or "none"
            raise UsageError(f"tenant {tenant!r} has no repository to forget by that name; it has {known}")
        counts = [await store.forget(record) for record in chosen]
        return Forgotten(
            tuple((record.tenant, record.name) for record in chosen),
            sum(documents for documents, _ in counts),
            sum(chunks for _, chunks in counts),
        )

    async def probe(self, name: str | None = None) -> Verdict:
        """Whether a provider can answer: from what is known if that is fresh, else by one call for all who ask.

        The answer and the budget of probes are shared with every process that uses the same knowledge base, which is
        opened (and made) for that.

        Args:
            name: Which provider; without one, the one that embeds.

        Raises:
            UsageError: No such provider, an unset key, a model that the engine does not have.
            StoreError: The knowledge base cannot be opened.

        Cancellation:
            A call that is out goes on, and its answer is kept for the next who asks.
        """
        route = self._routes.route(name)
        await self.knowledge()
        return await self.probes.probe(route.provider.name)

    async def knowledge(self, *, create: bool = True, may_be_read_only: bool = False) -> Store:
        """The knowledge base: ``open_engine``'s ``store``, or the settings' file, opened at the first call.

        Args:
            create: Make it if there is none.
            may_be_read_only: Open it to be searched: no lock, room or permission to write is needed. What happens is
                recorded in it where it can be written.

        Raises:
            UsageError: There is none, and ``create`` is false.
            StoreError: It cannot be opened.

        Cancellation:
            It was opened, and stays so, or not.
        """
        # Imported here, so that `import embedkit` stays light for those who only embed.
        from embedkit.activity.disk import LedgerOnDisk
        from embedkit.database import open_database
        from embedkit.knowledge.storing.store import SqliteStore

        # The ledger and the shared probes are in the file, whoever keeps the vectors.
        creates = create or self._own_store is not None
        async with self._opening_knowledge:
            if self._knowledge is not None:
                return self._knowledge
            async with AsyncExitStack() as opening:
                database = await opening.enter_async_context(
                    open_database(self.settings.store.path, create=creates, may_be_read_only=may_be_read_only)
                )
                store = self._own_store
                if store is None:
                    store = SqliteStore(database)
                    await store.open()
                on_disk = None if database.is_read_only else LedgerOnDisk(database, of_lane=self._snapshot_of_lane)
                if on_disk is not None and not may_be_read_only:
                    # Whoever only reads waits for no lock: its first row cleans up as well, when there is one.
                    await on_disk.reap()
                if on_disk is not None:
                    with suppress(*((StoreError,) if may_be_read_only else ())):
                        await self.probes.share(database)
                # No checkpoint from here: what is started is started once, and stays.
                if on_disk is not None:
                    self._scribes.start_soon(self._write_ledger, on_disk)
                self._stack.push_async_exit(opening.pop_all())
                self._knowledge, self._database = store, database
        return store

    async def database(self) -> Database:
        """The file of the settings, in which the ledger, shared probes and roles are, whoever keeps the vectors.

        Raises:
            StoreError: It cannot be opened.

        Cancellation:
            It was opened, and stays so, or not.
        """
        await self.knowledge()
        assert self._database is not None
        return self._database

    def _snapshot_of_lane(self, name: str) -> dict[str, Any] | None:
        """For the ledger's writer: a lane as other processes are to see it; ``None`` if no lane has this name."""
        found = next((lane for lane in self.lanes if lane.name == name), None)
        return None if found is None else snapshot_of(found.statistics()).as_json()

    async def _write_ledger(self, on_disk: LedgerOnDisk) -> None:
        # Shielded, and ended by ``end_writing``: what cancels the engine settles its calls, and that is written too.
        with self._writing:
            await on_disk.run(self.ledger)

    async def check_space(self, provider: str | None = None) -> None:
        """Refuse to mix: what the provider gives must be comparable with what the store holds.

        Raises:
            SpaceMismatch: It is not.

        Cancellation:
            Nothing was changed.
        """
        route = self._routes.route(provider)
        await route.check()
        held = await (await self.knowledge()).space()
        if held is None:
            return
        ours = route.space(route.provider.dimension or held.dimension)
        if held != ours:
            raise SpaceMismatch(
                f"{self.settings.store.path} holds vectors of {held}, and provider {route.provider.name} gives {ours}; "
                "name another store (--store), or go back to that model"
            )

    def space_of(self, dimension: int, provider: str | None = None) -> Space:
        """The space of a provider's vectors of ``dimension``."""
        return self._routes.route(provider).space(dimension)

    def provider(self, name: str | None = None) -> GuardedProvider:
        """How a provider is spoken to; without a name, the one that embeds."""
        return self._routes.route(name).provider

    def close(self) -> None:
        """Take nothing more: queued tickets are shed with ``LaneClosed``; calls that are out go on."""
        self._routes.close()

    def end_writing(self) -> None:
        """Everything has settled: write that down, and end."""
        self._writing.cancel()

    async def drained(self) -> None:
        """Wait until no call is out, after ``close``.

        Cancellation:
            Changes nothing.
        """
        for lane in self.lanes:
            await lane.drained()

    async def _held_space(self) -> Space | None:
        return None if self._knowledge is None else await self._knowledge.space()


def _unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    import numpy as np

    length = float(np.linalg.norm(vector))
    return vector / np.float32(length) if length > 0 else vector
