"""The embedded default: a static model carried in an installed package, run in worker threads. Nothing is fetched.

A call cannot be stopped once its thread runs, so its lane is a capacity lane: a slot is free when the thread is.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from embedkit.providers.identity import Identity

if TYPE_CHECKING:
    from embedkit.providers.provider import Connection, Vectors
    from embedkit.providers.static_model import StaticModel

MODEL = "wordllama-256"


class LocalProvider:
    """See ``Provider``.

    Args:
        name: The name in the settings.
        threads: Worker threads at most, whatever trio's own limiter says: one for each slot.
    """

    kind = "local"
    model = MODEL

    def __init__(self, name: str, *, threads: int) -> None:
        self.name = name
        self.dimension: int | None = None
        self._threads = trio.CapacityLimiter(threads)
        self._loading = trio.Lock()
        self._loaded: StaticModel | None = None

    @property
    def space_options(self) -> Mapping[str, str]:
        """None: the model has no options."""
        return {}

    def weight(self, inputs: int) -> int:
        """A call is one thread, however many texts it has."""
        return 1

    async def preflight(self) -> Identity:
        """Load the model.

        Raises:
            UsageError: The packages that carry it are not installed; says how to install them.

        Cancellation:
            The loading went on to its end, and is not repeated.
        """
        await self._model()
        return Identity("listed", self.model)

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Connection]:
        """The model, as a connection.

        Cancellation:
            Changes nothing.
        """
        yield _LocalConnection(await self._model(), self._threads)

    async def _model(self) -> StaticModel:
        async with self._loading:
            if self._loaded is None:
                self._loaded = await trio.to_thread.run_sync(_load, limiter=self._threads)
                self.dimension = self._loaded.dimension
        return self._loaded


class _LocalConnection:
    def __init__(self, model: StaticModel, threads: trio.CapacityLimiter) -> None:
        self._model = model
        self._threads = threads

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """See ``Connection.embed``.

        Cancellation:
            Comes out only before the thread began; one that runs is waited for.
        """
        return await trio.to_thread.run_sync(self._model.embed, texts, limiter=self._threads)


def _load() -> StaticModel:
    from embedkit.providers.static_model import StaticModel

    return StaticModel.load()
