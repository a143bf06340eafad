"""A sweep: one run over the tenants' repositories. Its run is a nursery with a circuit.

When the run ends, all of it has ended, but for calls that are out on lanes where the provider owns the settlement:
those are the engine's, and call no hook of the ended run.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import trio

from embedkit.admission.circuit import Circuit
from embedkit.admission.ticket import TimeoutHook
from embedkit.engine import Engine
from embedkit.errors import EmbedkitError, SpaceMismatch
from embedkit.knowledge.indexing.claims import Claims
from embedkit.knowledge.storing.retrying import retry_locked
from embedkit.probing.rules import engine_key
from embedkit.settings import RepositorySettings, TenantSettings
from embedkit.sweep import again as turns
from embedkit.sweep.again import Again
from embedkit.sweep.outcome import RepositoryReport, SweepReport, Trip, status_of
from embedkit.sweep.places import Places
from embedkit.sweep.progress import OnProgress, Progress

if TYPE_CHECKING:
    from embedkit.knowledge.sources.git_helpers import GitHelpers
    from embedkit.knowledge.storing.protocol import Store
    from embedkit.knowledge.storing.repositories import RepositoryRecord
    from embedkit.probing.rules import Verdict


class Sweep:
    """See ``open_sweep``, which makes it.

    Attributes:
        id: Of this run, in the ledger and the report.
        engine: Whose lanes it uses.
        store: Where vectors go.
        circuit: Its own.
        all: Whether due times and backoff are passed over.
        again: Whether a person asked: see ``embedkit.sweep.again``.
        may_empty: Whether a repository that held documents may come to hold none.
        now: The wall clock, by which repositories are due.
        engine_key: What names the engine that embeds: what another refused is asked of it again.
        looking: Bounds the threads that look at sources: not at all, since places do. They are no one else's threads:
            one that hangs takes none of those.
    """

    def __init__(
        self,
        engine: Engine,
        store: Store,
        tenants: Sequence[TenantSettings],
        *,
        all: bool,  # noqa: A002  # the public word, as in `embedkit sync --all`
        on_provider_timeout: TimeoutHook | None,
        on_progress: OnProgress | None,
        allow_empty: bool = False,
        retry_fenced: bool = False,
        wall_clock: Callable[[], float] = time.time,
        again: bool = False,
    ) -> None:
        self.id = secrets.token_hex(8)
        self.engine = engine
        self.store = store
        self.circuit = Circuit()
        self.all = all
        self.again = again
        self.may_empty = allow_empty
        self.now = wall_clock
        self.looking = trio.CapacityLimiter(math.inf)
        self.engine_key = engine_key(engine.settings.provider())
        self._retry_fenced = retry_fenced
        self._lifted: set[str] = set()
        self._tenants = tenants
        self._on_provider_timeout = on_provider_timeout
        self._on_progress = on_progress
        self._tripped_by: tuple[str, str] | None = None
        self._has_ended = False
        self._claimed: int | None = None
        self._claiming = trio.Lock()
        self._mismatch: SpaceMismatch | None = None
        self._running = trio.CancelScope()
        self._git_helpers: GitHelpers | None = None
        self._asking = trio.Lock()
        self._verdict: Verdict | None = None
        self._claims = {tenant.name: Claims() for tenant in self._tenants}
        self._reports: dict[tuple[str, str], RepositoryReport] = {}

    async def run(self) -> SweepReport:
        """Sweep every repository that is due, and report.

        Raises:
            UsageError: A key that is unset, a model that the engine does not have, or a store of another embedding
                space; no repository's record was changed. A repository's own trouble (a path that is missing) is its
                outcome.

        Cancellation:
            What was stored stays; ``report`` tells how far it came.
        """
        await self.engine.check_space()
        sweep = self.engine.settings.sweep
        places = Places(
            {tenant.name for tenant in self._tenants},
            concurrency=sweep.concurrency,
            tenant_concurrency=sweep.tenant_concurrency,
        )
        with trio.CancelScope() as self._running:
            suspects = await self._suspects()
            async with trio.open_nursery() as nursery:
                for tenant, described in self._enabled():
                    if (tenant, described.name) not in suspects:
                        nursery.start_soon(self._one, tenant, described, places)
            named = {(tenant, described.name): described for tenant, described in self._enabled()}
            for tenant, name in suspects:
                await self._one(tenant, named[tenant, name], places)
        if self._mismatch is not None:
            raise self._mismatch
        return self.report()

    async def _suspects(self) -> list[tuple[str, str]]:
        """Those of its repositories that tripped the circuit of their last run, who did so last coming last.

        They are swept when all others have ended, one after the other: what one of them does costs its neighbours
        nothing. Who tripped the last run comes behind who tripped an earlier one, so that each gets its turn.
        """
        named = {(tenant, described.name) for tenant, described in self._enabled()}
        tripped = {
            (record.tenant, record.name): record.tripped_at
            for record in await self.store.repositories()
            if record.tripped_at is not None and (record.tenant, record.name) in named
        }
        return sorted(tripped, key=lambda key: (tripped[key], key))

    @property
    def git_helpers(self) -> GitHelpers:
        """Who fetches from git servers, for all repositories of the run."""
        from embedkit.knowledge.sources.git_helpers import GitHelpers

        if self._git_helpers is None:
            self._git_helpers = GitHelpers()
        return self._git_helpers

    def has_tripped(self, tenant: str, name: str) -> bool:
        """Whether it was a repository's ticket that opened the run's circuit."""
        return self._tripped_by == (tenant, name)

    def end(self) -> None:
        """The run has ended, though calls of it may still be out."""
        self._has_ended = True
        if self._git_helpers is not None:
            self._git_helpers.close()

    def report(self) -> SweepReport:
        """How the run stands: final after ``run``, else what has ended so far."""
        order = [(tenant.name, item.name) for tenant in self._tenants for item in tenant.repositories]
        reports = [self._reports[key] for key in order if key in self._reports]
        status = status_of(reports) if len(reports) == len(self._enabled()) else "aborted"
        return SweepReport(self.id, status, self._trip(), reports)

    def on_timeout(self, tenant: str, name: str, error: Exception) -> object:
        """The notifier's hook for tickets of one repository: trip first, then tell the caller's hook.

        Calls that are still out when the run has ended belong to the engine: they call no hook of it.
        """
        if self._has_ended:
            return None
        if not self.circuit.is_open:
            self._tripped_by = (tenant, name)
        self.circuit.trip(error)
        # Handed on, so that the notifier can say of an async hook that it was one.
        return None if self._on_provider_timeout is None else self._on_provider_timeout(error)

    async def claim_space(self, dimension: int) -> None:
        """Fix the store's embedding space at the run's first good reply.

        Raises:
            SpaceMismatch: The store holds vectors of another.

        Cancellation:
            Claimed, or not.
        """
        if self._claimed == dimension:
            return
        async with self._claiming:
            try:
                await retry_locked(partial(self.store.claim_space, self.engine.space_of(dimension)))
            except SpaceMismatch as error:
                # Not one repository's trouble but everybody's: the run ends, and says so.
                self._mismatch = error
                self._running.cancel()
                raise
            self._claimed = dimension

    def turn_of(self, record: RepositoryRecord) -> Again:
        """When a repository that is not due may go in this run."""
        return turns.again(record) if self.again else "when due"

    async def engine_verdict(self) -> Verdict:
        """Whether the engine is well: one shared probe a run.

        Raises:
            UsageError: An unset key, a model that the engine does not have.
            StoreError: The file that probes are shared in.

        Cancellation:
            A call that is out goes on, and its answer is kept.
        """
        async with self._asking:
            if self._verdict is None:
                self._verdict = await self.engine.probe()
            return self._verdict

    async def lift_fences(self, record: RepositoryRecord) -> None:
        """Once for each tenant: fences of another engine are lifted, and all of them where that was asked for.

        Cancellation:
            Lifted, or not; if not, the next sweep does it.
        """
        if record.tenant in self._lifted:
            return
        self._lifted.add(record.tenant)
        keep = None if self._retry_fenced else self.engine_key
        await retry_locked(partial(self.store.lift_fences, record, engine=keep))

    def claims(self, tenant: str) -> Claims:
        """What the tenant's repositories are buying in this run."""
        return self._claims[tenant]

    def tell(self, progress: Progress) -> None:
        """Pass a step on to whoever watches."""
        if self._on_progress is not None:
            self._on_progress(progress)

    async def _one(
        self,
        tenant: str,
        described: RepositorySettings,
        places: Places,
    ) -> None:
        # Imported here, with all of chunking and indexing, so that `import embedkit` stays light.
        from embedkit.knowledge.sources.git import is_served
        from embedkit.sweep.repository_run import RepositoryRun

        waits = described.git is not None and is_served(described.git)
        async with places.seat(tenant, waits=waits) as seat:
            run = RepositoryRun(self, tenant, described, seat)
            key = (tenant, described.name)
            self._reports[key] = run.aborted()
            try:
                self._reports[key] = await run.run()
            except EmbedkitError as error:
                self._reports[key] = run.failed(error)
            except BaseException:
                # Cancelled, alone or in the group that a nursery makes of it.
                self._reports[key] = run.aborted()
                raise

    def _enabled(self) -> list[tuple[str, RepositorySettings]]:
        return [(tenant.name, item) for tenant in self._tenants for item in tenant.repositories if item.enabled]

    def _trip(self) -> Trip | None:
        cause = self.circuit.cause
        if cause is None:
            return None
        code = cause.durable_code if isinstance(cause, EmbedkitError) else "unknown"
        tenant, name = self._tripped_by or ("", "")
        return Trip(self.engine.provider().name, code, tenant, name, self.circuit.shed)


@asynccontextmanager
async def open_sweep(
    engine: Engine,
    tenants: Sequence[TenantSettings] | None = None,
    *,
    all: bool = False,  # noqa: A002  # the public word, as in `embedkit sync --all`
    on_provider_timeout: TimeoutHook | None = None,
    on_progress: OnProgress | None = None,
    allow_empty: bool = False,
    retry_fenced: bool = False,
    wall_clock: Callable[[], float] = time.time,
    again: bool = False,
) -> AsyncGenerator[Sweep]:
    """A run over repositories, for as long as the block lasts.

    Args:
        engine: Whose lanes and knowledge base it uses.
        tenants: Which; else those of the settings.
        all: Sweep what is not due as well.
        on_provider_timeout: Called besides the run's own trip, synchronously, at each provider timeout of its tickets.
        on_progress: Told of each step, synchronously.
        allow_empty: Remove the documents of a repository that now seems to have none; without it, that is a failure.
        retry_fenced: Offer what is fenced once more.
        wall_clock: Seconds since 1970, by which repositories are due.
        again: A person asks: what failed for the first time goes at once, and what was put off for want of an engine
            goes unless a probe made for this run finds it down. Nothing of it applies where all go anyway.

    Raises:
        StoreError: The knowledge base cannot be opened.

    Cancellation:
        Everything of the run has ended when it comes out; what was stored stays.
    """
    store = await engine.knowledge()
    sweep = Sweep(
        engine,
        store,
        engine.settings.tenants if tenants is None else tenants,
        all=all,
        on_provider_timeout=on_provider_timeout,
        on_progress=on_progress,
        allow_empty=allow_empty,
        retry_fenced=retry_fenced,
        wall_clock=wall_clock,
        again=again,
    )
    try:
        yield sweep
    finally:
        sweep.end()
