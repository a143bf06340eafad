"""The engine: everything that one process shares, bound to a nursery that the caller can see.

It holds the lanes (one a provider, opened at its first use), the ledger, and the knowledge base where one is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import attrs
import trio

from embedkit.activity.ledger import Ledger
from embedkit.admission.circuit import Circuit
from embedkit.admission.ticket import Ids, Ticket, TimeoutHook
from embedkit.admission.unqueued import Unqueued
from embedkit.admission.waiting import Priority
from embedkit.clocks import ZERO, Clocks
from embedkit.engine.routes import Routes
from embedkit.errors import QueueWaitExceeded, SpaceMismatch, UsageError
from embedkit.knowledge.model import Space
from embedkit.knowledge.ranking import CANDIDATES, fuse
from embedkit.probing.broker import ProbeBroker
from embedkit.probing.rules import Verdict
from embedkit.providers.guarded import GuardedConnection, GuardedProvider, check_texts
from embedkit.settings import Settings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from embedkit.activity.disk import LedgerOnDisk
    from embedkit.admission.lane import Lane
    from embedkit.knowledge.search import Hit, Mode, Ranked
    from embedkit.knowledge.store import SqliteStore
    from embedkit.providers.provider import Provider
    from embedkit.providers.wire import Purpose


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
        self._knowledge: SqliteStore | None = None
        self._opening_knowledge = trio.Lock()

    def lane(self, provider: str | None = None) -> Lane[GuardedConnection]:
        """The lane of a provider; without a name, of the one that embeds. Opened on first use; nothing is sent.

        Raises:
            UsageError: No such provider, it is misdescribed, or it is unqueued (Gemini).
        """
        lane = self._routes.route(provider).lane
        if isinstance(lane, Unqueued):
            raise UsageError(f"provider {lane.name} is unqueued: it is remote, and no lane of ours governs it")
        return lane

    @property
    def lanes(self) -> Sequence[Lane[GuardedConnection]]:
        """The lanes that have been opened."""
        return [route.lane for route in self._routes if not isinstance(route.lane, Unqueued)]

    def is_queued(self, provider: str | None = None) -> bool:
        """Whether a lane governs the provider; Gemini, which is remote, has none and no circuit either."""
        return not isinstance(self._routes.route(provider).lane, Unqueued)

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
        deadline_at = math.inf if deadline is None else trio.current_time() + deadline
        route = self._routes.route(provider)
        with trio.move_on_at(deadline_at):
            await route.check()
        if not route.is_checked:
            raise QueueWaitExceeded(f"provider {route.provider.name}: the deadline passed before anything was sent")
        limit = self.settings.timeout_for(route.provider.name, timeout)
        if isinstance(route.lane, Unqueued):
            circuit = on_provider_timeout = None
        elif on_provider_timeout is None and circuit is not None:
            on_provider_timeout = circuit.trip

        async def buy(some: Sequence[str]) -> tuple[NDArray[np.float32], Ticket]:
            if isinstance(route.lane, Unqueued):
                with trio.move_on_at(deadline_at) as waiting:
                    await route.provider.until_free()
                if waiting.cancelled_caught:
                    raise QueueWaitExceeded(
                        f"provider {route.provider.name}: the deadline passed while it asked everybody to stay away"
                    )
            ticket = Ticket(
                priority=priority,
                weight=max(route.provider.weight(len(some)), 1),
                inputs=len(some),
                tenant=tenant,
                timeout=limit.seconds,
                limit_name=limit.rung,
                deadline_at=deadline_at,
                circuit=circuit,
                on_provider_timeout=on_provider_timeout,
                ids=Ids(stage=stage, run=run),
            )
            return await route.lane.run(lambda connection: connection.embed(some, purpose), ticket), ticket

        most = route.provider.max_inputs
        if most is None or len(texts) <= most:
            vectors, ticket = await buy(texts)
            return Embeddings(vectors, ticket.clocks, ticket.attempts, route.provider.name, route.provider.model)
        bought = [await buy(texts[start : start + most]) for start in range(0, len(texts), most)]
        return Embeddings(
            _stacked([vectors for vectors, _ in bought]),
            sum((ticket.clocks for _, ticket in bought), ZERO),
            sum(ticket.attempts for _, ticket in bought),
            route.provider.name,
            route.provider.model,
        )

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
            bought = await self.embed([query], priority="interactive", tenant=tenant, purpose="query")
            near = await store.nearest(tenant, _unit(bought.vectors[0]), max(k, CANDIDATES), repository)
        if mode != "vector":
            words = await store.by_words(tenant, query, max(k, CANDIDATES), repository)
        return await store.hits(tenant, fuse(near, words, k=k))

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
        return await self.probes.probe(route.lane.name)

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
        # Imported here, so that `import embedkit` stays light for those who only embed.
        from embedkit.activity.disk import LedgerOnDisk
        from embedkit.database import open_database
        from embedkit.knowledge.store import SqliteStore

        async with self._opening_knowledge:
            if self._knowledge is not None:
                return self._knowledge
            async with AsyncExitStack() as opening:
                database = await opening.enter_async_context(open_database(self.settings.store.path, create=create))
                store = SqliteStore(database)
                await store.open()
                on_disk = LedgerOnDisk(database)
                await on_disk.reap()
                await self.probes.share(database)
                # No checkpoint from here: what is started is started once, and stays.
                self._scribes.start_soon(self._write_ledger, on_disk)
                self._stack.push_async_exit(opening.pop_all())
                self._knowledge = store
        return store

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


def _stacked(vectors: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    import numpy as np

    return np.concatenate(vectors)


def _unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    import numpy as np

    length = float(np.linalg.norm(vector))
    return vector / np.float32(length) if length > 0 else vector
