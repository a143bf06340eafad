"""The engine: everything that one process shares, bound to a nursery that the caller can see.

It holds the lanes (one a provider, opened at its first use), the ledger, and the knowledge base where one is used.
Leaving its block closes the lanes, waits ``drain_timeout`` for calls that nobody waits for any more, and ends.
"""

from __future__ import annotations

import math
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import attrs
import trio

from embedkit.activity.clocks import Clocks
from embedkit.activity.disk import LedgerOnDisk
from embedkit.activity.ledger import Ledger
from embedkit.admission.circuit import Circuit
from embedkit.admission.ticket import Ids, Priority, Ticket, TimeoutHook
from embedkit.database import open_database
from embedkit.errors import SpaceMismatch, UsageError
from embedkit.knowledge.model import Space
from embedkit.knowledge.ranking import CANDIDATES, fuse
from embedkit.knowledge.store import SqliteStore
from embedkit.providers.catalogue import lane_class, make_provider, make_retry
from embedkit.settings import Settings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from embedkit.activity.recorder import Listener
    from embedkit.admission.lane import Lane
    from embedkit.knowledge.search import Hit, Mode, Ranked
    from embedkit.providers.provider import Connection, Provider


@attrs.frozen(eq=False)
class Embeddings:
    """What ``Engine.embed`` gives.

    Attributes:
        vectors: ``(n, dimension) float32``, row i for text i, as the engine gave them.
        clocks: The ticket's three times, in seconds.
        attempts: Provider calls it took.
        provider: Which provider.
        model: Which model.
    """

    vectors: NDArray[np.float32] = attrs.field(repr=False)
    clocks: Clocks
    attempts: int
    provider: str
    model: str


@attrs.frozen(eq=False)
class _Open:
    """A provider in use."""

    provider: Provider
    lane: Lane[Connection]
    checking: trio.Lock = attrs.field(factory=trio.Lock)
    checked: trio.Event = attrs.field(factory=trio.Event)


class Engine:
    """See ``open_engine``, which makes it.

    Attributes:
        settings: What is in force.
        nursery: Slots, and the calls in them, run here.
        ledger: What happened to every ticket and attempt.
    """

    def __init__(
        self,
        settings: Settings,
        nursery: trio.Nursery,
        stack: AsyncExitStack,
        ledger: Ledger,
        *,
        reserve: int,
        environ: Mapping[str, str],
        providers: Mapping[str, Provider],
    ) -> None:
        self.settings = settings
        self.nursery = nursery
        self.ledger = ledger
        self._stack = stack
        self._reserve = reserve
        self._environ = environ
        self._given = providers
        self._open: dict[str, _Open] = {}
        self._closed = False
        self._knowledge: SqliteStore | None = None
        self._opening_knowledge = trio.Lock()

    def lane(self, provider: str | None = None) -> Lane[Connection]:
        """The lane of a provider; without a name, of the one that embeds. Opened on first use; nothing is sent.

        Raises:
            UsageError: No such provider, or it is misdescribed.
        """
        return self._provider(provider).lane

    @property
    def lanes(self) -> Sequence[Lane[Connection]]:
        """The lanes that have been opened."""
        return [open_.lane for open_ in self._open.values()]

    async def embed(
        self,
        texts: Sequence[str],
        *,
        provider: str | None = None,
        priority: Priority = "batch",
        tenant: str | None = None,
        stage: str = "query",
        timeout: float | None = None,
        deadline: float | None = None,
        circuit: Circuit | None = None,
        on_provider_timeout: TimeoutHook | None = None,
        run: str | None = None,
    ) -> Embeddings:
        """Embed ``texts`` as one ticket.

        Args:
            texts: One or more. They stay together: one request, one outcome.
            provider: Which; without one, the one that embeds.
            priority: ``interactive`` if somebody waits for it.
            tenant: Whose work it is; batch work is shared fairly between tenants.
            stage: ``ingestion``, ``query``, ``drain``: for the ledger.
            timeout: Seconds for one attempt, from dispatch to the last byte; else the settings' ladder.
            deadline: Seconds from now for everything: queue, attempts and waits between them.
            circuit: The run's; when it trips, the ticket is shed if it is still queued.
            on_provider_timeout: Called once, synchronously, if the final failure is a provider timeout, before anybody
                else is dispatched. Without one, ``circuit`` trips.
            run: The run's id, for the ledger.

        Raises:
            ProviderError: The final failure.
            AdmissionError: The lane's: circuit open, deadline passed, closed.
            UsageError: No such provider, an unset key, a model that the engine does not have.

        Cancellation:
            A queued ticket has left the lane and was never sent. A dispatched one is detached or aborted, as its lane's
            kind says.
        """
        open_ = self._provider(provider)
        await self._check(open_)
        limit = self.settings.timeout_for(open_.provider.name, timeout)
        if on_provider_timeout is None and circuit is not None:
            on_provider_timeout = circuit.trip
        ticket = Ticket(
            priority=priority,
            weight=max(open_.provider.weight(len(texts)), 1),
            inputs=len(texts),
            tenant=tenant,
            timeout=limit.seconds,
            limit_name=limit.rung,
            deadline_at=math.inf if deadline is None else trio.current_time() + deadline,
            circuit=circuit,
            on_provider_timeout=on_provider_timeout,
            ids=Ids(stage=stage, run=run),
        )
        vectors = await open_.lane.run(lambda connection: connection.embed(texts), ticket)
        return Embeddings(vectors, ticket.clocks, ticket.attempts, open_.provider.name, open_.provider.model)

    async def search(
        self, query: str, *, tenant: str, repository: str | None = None, k: int = 10, mode: Mode = "hybrid"
    ) -> list[Hit]:
        """The ``k`` chunks of ``tenant`` nearest to ``query``, best first.

        Args:
            query: What is looked for, in words or code.
            tenant: Whose chunks; no other tenant's are looked at.
            repository: Only in this one.
            k: How many at most.
            mode: ``vector`` (cosine), ``text`` (BM25 over words), or both joined by rank.

        Raises:
            SpaceMismatch: The store's vectors are of another space than the provider's.
            ProviderError: The query could not be embedded.
            StoreError: The store cannot be read.

        Cancellation:
            Nothing was changed.
        """
        store = await self.knowledge()
        near: Ranked = []
        words: Ranked = []
        if mode != "text":
            await self.check_space()
            bought = await self.embed([query], priority="interactive", tenant=tenant)
            near = await store.nearest(tenant, _unit(bought.vectors[0]), max(k, CANDIDATES), repository)
        if mode != "vector":
            words = await store.by_words(tenant, query, max(k, CANDIDATES), repository)
        return await store.hits(tenant, fuse(near, words, k=k))

    async def knowledge(self, *, create: bool = True) -> SqliteStore:
        """The knowledge base that the settings name, opened at the first call.

        Args:
            create: Make it if there is none.

        Raises:
            UsageError: There is none, and ``create`` is false.
            StoreError: It cannot be opened.

        Cancellation:
            It was opened, and stays so, or not.
        """
        async with self._opening_knowledge:
            if self._knowledge is None:
                database = await self._stack.enter_async_context(open_database(self.settings.store.path, create=create))
                store = SqliteStore(database)
                await store.open()
                on_disk = LedgerOnDisk(database)
                await on_disk.reap()
                await self.nursery.start(partial(on_disk.run, self.ledger))
                self._knowledge = store
        return self._knowledge

    async def check_space(self, provider: str | None = None) -> None:
        """Refuse to mix: what the provider gives must be comparable with what the store holds.

        Raises:
            SpaceMismatch: It is not.

        Cancellation:
            Nothing was changed.
        """
        open_ = self._provider(provider)
        await self._check(open_)
        held = await (await self.knowledge()).space()
        if held is None:
            return
        ours = self.space_of(open_.provider.dimension or held.dimension, provider)
        if held != ours:
            raise SpaceMismatch(
                f"{self.settings.store.path} holds vectors of {held}, and provider {open_.provider.name} gives {ours}; "
                "name another store (--store), or go back to that model"
            )

    def space_of(self, dimension: int, provider: str | None = None) -> Space:
        """The space of a provider's vectors of ``dimension``."""
        used = self._provider(provider).provider
        return Space(used.kind, used.model, dimension, dict(used.space_options))

    def provider(self, name: str | None = None) -> Provider:
        """How a provider is spoken to; without a name, the one that embeds."""
        return self._provider(name).provider

    def close(self) -> None:
        """Take nothing more: queued tickets are shed with ``LaneClosed``; calls that are out go on."""
        self._closed = True
        for open_ in self._open.values():
            open_.lane.close()

    async def drained(self) -> None:
        """Wait until no call is out, after ``close``.

        Cancellation:
            Changes nothing.
        """
        for open_ in self._open.values():
            await open_.lane.drained()

    def _provider(self, name: str | None) -> _Open:
        name = self.settings.embedding.provider if name is None else name
        if name not in self._open:
            if self._closed:
                raise UsageError("this engine is closed")
            self._open[name] = self._make(name)
        return self._open[name]

    def _make(self, name: str) -> _Open:
        described = self.settings.provider(name)
        provider = self._given.get(name) or make_provider(self.settings, name, self._environ, None)
        lane = lane_class(described)(
            name,
            nursery=self.nursery,
            connect=provider.connect,
            capacity=described.capacity,
            ledger=self.ledger,
            reserve=self.settings.reserve_for(name, default=self._reserve),
            max_queued=described.max_queued,
            max_overtakes=described.max_overtakes,
            max_age=described.max_age,
            retry=make_retry(described),
            provider=name,
            model=provider.model,
        )
        return _Open(provider, lane)

    async def _check(self, open_: _Open) -> None:
        """Preflight, once; those who come meanwhile wait for it."""
        if open_.checked.is_set():
            return
        async with open_.checking:
            if not open_.checked.is_set():
                await open_.provider.preflight()
                open_.checked.set()


@asynccontextmanager
async def open_engine(
    settings: Settings | None = None,
    *,
    recorder: Listener | None = None,
    reserve: int = 1,
    environ: Mapping[str, str] | None = None,
    providers: Mapping[str, Provider] | None = None,
) -> AsyncGenerator[Engine]:
    """The engine, for as long as the block lasts.

    Args:
        settings: ``load_settings()``, or made in code; without any, the embedded default model.
        recorder: Told of each change to a ticket's row, besides the engine's own ledger.
        reserve: Slots of each lane that batch work leaves free for people, where settings do not say.
        environ: Where keys are read; else the process's own environment.
        providers: By name: used in place of what the settings would make of that name, whose section still says which
            lane and retries it gets. A seam for tests, and for engines that embedkit does not know.

    Raises:
        ExceptionGroup: A defect in embedkit or in a provider ended a slot, and with it the engine. What the block
            itself raises comes out as it is.

    Cancellation:
        Calls that were out are cut off and recorded as ``unsettled``; nothing is waited for.
    """
    settings = Settings() if settings is None else settings
    ledger = Ledger()
    if recorder is not None:
        ledger.attach(recorder)
    body_error: Exception | None = None
    async with AsyncExitStack() as stack:
        try:
            async with trio.open_nursery() as nursery:
                engine = Engine(
                    settings,
                    nursery,
                    stack,
                    ledger,
                    reserve=reserve,
                    environ=os.environ if environ is None else environ,
                    providers={} if providers is None else providers,
                )
                try:
                    yield engine
                except Exception as error:
                    # Kept aside, so that the nursery does not wrap the caller's own error in a group.
                    body_error = error
                finally:
                    engine.close()
                with trio.move_on_after(settings.engine.drain_timeout):
                    await engine.drained()
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            if body_error is None:
                raise
            raise BaseExceptionGroup("the block and the engine failed", [body_error, group]) from None
        if body_error is not None:
            raise body_error


def _unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    import numpy as np

    length = float(np.linalg.norm(vector))
    return vector / np.float32(length) if length > 0 else vector
