"""The routes of one engine: opened at first use, and closed at its end."""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

import trio

from embedkit.admission.unqueued import Unqueued
from embedkit.engine.route import Route
from embedkit.errors import UsageError
from embedkit.knowledge.model import Space
from embedkit.probing.broker import ProbeBroker
from embedkit.probing.call import Target
from embedkit.probing.rules import engine_key
from embedkit.providers.catalogue import lane_class, make_provider, make_retry
from embedkit.providers.guarded import GuardedConnection, GuardedProvider
from embedkit.providers.held import held_open
from embedkit.settings import ProviderSettings, Settings

if TYPE_CHECKING:
    from embedkit.activity.ledger import Ledger
    from embedkit.admission.lane import Lane
    from embedkit.providers.provider import Provider

# The text of a probe: one token or two, whatever the model.
_PROBE = "probe"


class Routes:
    """The routes of one engine, by name.

    Args:
        settings: What is in force.
        nursery: The engine's: slots run in it.
        stack: Closes, at the engine's end, what has to be closed.
        ledger: Told of every ticket.
        probes: Told of every provider.
        held_space: Asks the knowledge base, where one is open, for its space.
        reserve: Units of each lane that batch work leaves free, where settings do not say.
        environ: Where keys are read.
        given: Providers by name that are used in place of what the settings would make.
        show_words: Given an engine's own words about a refusal, less the keys.
    """

    def __init__(
        self,
        settings: Settings,
        nursery: trio.Nursery,
        stack: AsyncExitStack,
        ledger: Ledger,
        probes: ProbeBroker,
        held_space: Callable[[], Awaitable[Space | None]],
        *,
        reserve: int,
        environ: Mapping[str, str],
        given: Mapping[str, Provider],
        show_words: Callable[[str], None] | None,
    ) -> None:
        self._settings = settings
        self._nursery = nursery
        self._stack = stack
        self._ledger = ledger
        self._probes = probes
        self._held_space = held_space
        self._reserve = reserve
        self._environ = environ
        self._given = given
        self._show_words = show_words
        self._open: dict[str, Route] = {}
        self._closed = False
        self._context = contextvars.copy_context()

    def __iter__(self) -> Iterator[Route]:
        return iter(self._open.values())

    def route(self, name: str | None = None) -> Route:
        """The route to a provider, opened at the first call; without a name, to the one that embeds.

        Raises:
            UsageError: No such provider, or it is misdescribed.
        """
        name = self._settings.embedding.provider if name is None else name
        if name not in self._open:
            if self._closed:
                raise UsageError("this engine is closed")
            self._open[name] = self._make(name)
        return self._open[name]

    def close(self) -> None:
        """Open nothing more, and close what is open: queued tickets are shed, calls that are out go on."""
        self._closed = True
        for route in self:
            route.way.close()

    def _make(self, name: str) -> Route:
        described = self._settings.provider(name)
        own = self._given.get(name)
        made = own or make_provider(self._settings, name, self._environ, None, self._show_words)
        provider = GuardedProvider(
            made,
            name,
            document_prefix=described.document_prefix,
            query_prefix=described.query_prefix,
            connect=None if own is None else partial(held_open, own.connect, name, self._nursery),
        )
        # In the context of whoever opened the engine: the variables of the caller who comes first reach no provider.
        route = Route(provider, self._context.run(self._way, name, described, provider), described.capacity)
        self._probes.watch(
            Target(
                name,
                engine_key(described),
                route.way,
                call=lambda connection: connection.embed([_PROBE]),
                prepare=partial(self._dimension_of, route),
                timeout=self._settings.timeout_for(name).seconds,
            )
        )
        return route

    def _way(
        self, name: str, described: ProviderSettings, provider: GuardedProvider
    ) -> Lane[GuardedConnection] | Unqueued[GuardedConnection]:
        kind = lane_class(described)
        if kind is None:
            unqueued = Unqueued(
                name,
                connect=provider.connect,
                ledger=self._ledger,
                retry=make_retry(described),
                model=provider.model,
            )
            self._stack.push_async_callback(unqueued.aclose)
            return unqueued
        return kind(
            name,
            nursery=self._nursery,
            connect=provider.connect,
            capacity=described.capacity,
            ledger=self._ledger,
            reserve=self._settings.reserve_for(name, default=self._reserve),
            max_queued=described.max_queued,
            lead=described.lead,
            batch_share=described.batch_share,
            shares={tenant.name: tenant.share for tenant in self._settings.tenants},
            retry=make_retry(described),
            provider=name,
            model=provider.model,
        )

    async def _dimension_of(self, route: Route) -> int | None:
        """What the provider's vectors must have, once it is known that it can be called; the store's word first."""
        await route.check()
        held = await self._held_space()
        if held is not None and held == route.space(held.dimension):
            return held.dimension
        return route.provider.dimension
