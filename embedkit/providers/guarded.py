"""Any provider, as the engine uses it: what comes out of it is checked, and whatever it raises is one ticket's failure.

The providers of this room check their replies themselves, for what only they know. Here is what holds for all of them
and for a user's own: as many rows as texts, one dimension, float32, finite numbers; and nothing but embedkit's own
errors. Prefixes are set here too, so that every provider has them.

A connection that cannot be opened is the failure of the next call, which finds it so, and the call after that opens
another. Each is held open by a task of its own, in the engine's nursery: ``connect()`` may hold a nursery or a cancel
scope open, and what opens another connection within an attempt has a scope that ends before they do.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NoReturn

import trio

from embedkit.errors import EmbedkitError, ProviderError, ProviderFailure, ResponseInvalid, UsageError
from embedkit.providers.wire import Purpose

if TYPE_CHECKING:
    from embedkit.providers.identity import Identity
    from embedkit.providers.provider import Connection, Provider, Vectors

logger = logging.getLogger("embedkit.providers")


class GuardedProvider:
    """See ``Provider``.

    Args:
        provider: The one that is guarded.
        name: The name in the settings, for messages.
        nursery: The engine's: connections are held open in it.
        document_prefix: Set before each text that is stored.
        query_prefix: Set before each text that is searched for.
        stay_away: Says for how many seconds an engine asked everybody to stay away; see ``Retry``.
    """

    def __init__(
        self,
        provider: Provider,
        name: str,
        nursery: trio.Nursery,
        *,
        document_prefix: str | None = None,
        query_prefix: str | None = None,
        stay_away: Callable[[ProviderError], float | None] | None = None,
    ) -> None:
        self.inner = provider
        self.name = name
        self.prefixes: Mapping[Purpose, str] = {"document": document_prefix or "", "query": query_prefix or ""}
        self._nursery = nursery
        self._dimension: int | None = None
        self._stay_away = stay_away
        self._held_until = -math.inf

    def __repr__(self) -> str:
        return f"<guarded {self.inner!r}>"

    @property
    def kind(self) -> str:
        """Its own."""
        return self.inner.kind

    @property
    def model(self) -> str:
        """Its own."""
        return self.inner.model

    @property
    def space_options(self) -> Mapping[str, str]:
        """Its own, and the prefixes: with other prefixes the same text has another vector."""
        prefixes = {f"{purpose}_prefix": prefix for purpose, prefix in self.prefixes.items() if prefix}
        return {**self.inner.space_options, **prefixes}

    @property
    def dimension(self) -> int | None:
        """What every vector has: as it says, or as its first good answer was."""
        return self._dimension if self.inner.dimension is None else self.inner.dimension

    @property
    def max_inputs(self) -> int | None:
        """Texts that one request may carry, where it says so."""
        most: int | None = getattr(self.inner, "max_inputs", None)
        return most

    def weight(self, inputs: int) -> int:
        """Its own."""
        return self.inner.weight(inputs)

    async def preflight(self) -> Identity:
        """Its own.

        Raises:
            EmbedkitError: As it is; whatever else it raises becomes ``ProviderFailure``.

        Cancellation:
            As its own.
        """
        try:
            return await self.inner.preflight()
        except Exception as error:
            self.fail("its preflight failed", error)

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[GuardedConnection]:
        """A connection; whether it could be opened, its first call says.

        Cancellation:
            It is closed in the background.
        """
        connection = GuardedConnection(self, self._nursery)
        try:
            await connection.open()
            yield connection
        finally:
            await connection.aclose()

    async def until_free(self) -> None:
        """Wait while the engine asks everybody to stay away. A lane holds its tickets back itself; this is for others.

        Cancellation:
            Changes nothing.
        """
        while trio.current_time() < self._held_until:  # noqa: ASYNC110  # for an instant, which may be moved
            await trio.sleep_until(self._held_until)

    def _note_hint(self, error: ProviderError) -> None:
        away = None if self._stay_away is None else self._stay_away(error)
        if away is not None:
            self._held_until = max(self._held_until, trio.current_time() + away)

    def check(self, vectors: object, inputs: int) -> Vectors:
        """``vectors`` if they are what was asked for; the first good ones fix the dimension.

        Raises:
            ResponseInvalid: They are not. It names the first input at fault, where there is one.
        """
        checked = _checked(vectors, inputs, self.dimension, self.name)
        if inputs:
            self._dimension = checked.shape[1]
        return checked

    def fail(self, what: str, error: Exception) -> NoReturn:
        """Raise ``error`` as it is if it is embedkit's, alone in groups or not; else a failure of this provider."""
        ours = error
        while isinstance(ours, ExceptionGroup) and len(ours.exceptions) == 1:
            ours = ours.exceptions[0]
        if isinstance(ours, ProviderError):
            self._note_hint(ours)
        if isinstance(ours, EmbedkitError):
            raise ours
        # The name of its class, and not its words: they are foreign, and may quote a text or a key.
        raise ProviderFailure(f"provider {self.name}: {what} ({type(ours).__name__})") from error


class GuardedConnection:
    """See ``Connection``. Its provider's is behind it, and another where that one has ended."""

    def __init__(self, provider: GuardedProvider, nursery: trio.Nursery) -> None:
        self._provider = provider
        self._nursery = nursery
        self._open: _Open | None = None

    async def embed(self, texts: Sequence[str], purpose: Purpose = "document") -> Vectors:
        """See ``Connection.embed``.

        Args:
            texts: What is embedded; the prefix of ``purpose`` is set before each.
            purpose: What for.

        Raises:
            ProviderError: What the provider raised, if it is one; ``ProviderFailure`` for anything else of its;
                ``ResponseInvalid`` for vectors that are not what was asked for.

        Cancellation:
            As the provider's own connection. One that was being opened goes on being opened, for the next call.
        """
        provider = self._provider
        connection = await self._connection()
        if prefix := provider.prefixes[purpose]:
            texts = [prefix + text for text in texts]
        embed_for = getattr(connection, "embed_for", None)  # asking for the protocol itself takes ten times as long
        try:
            vectors = await (connection.embed(texts) if embed_for is None else embed_for(texts, purpose))
        except Exception as error:
            provider.fail("it failed", error)
        return provider.check(vectors, len(texts))

    async def open(self) -> None:
        """Open the provider's connection, if none is open; a failure is kept for the next call.

        Cancellation:
            It goes on being opened, for the next call.
        """
        if self._open is None or self._open.ended.is_set():
            self._open = _Open(self._provider)
            try:
                self._nursery.start_soon(self._open.hold, name=f"embedkit connection of {self._provider.name}")
            except RuntimeError as error:  # trio's word for a nursery that has ended
                self._open = None
                self._provider.fail("the engine has ended", error)
        await self._open.ready.wait()

    async def aclose(self) -> None:
        """Close what is open.

        Cancellation:
            It is closed all the same, by its own task.
        """
        if self._open is not None:
            self._open.closing.set()
            await self._open.ended.wait()

    async def _connection(self) -> Connection:
        # One that is open is used in this very step: a call that waited here after its dispatch could be made for
        # nobody, with its caller gone meanwhile.
        if self._open is None or not self._open.ready.is_set():
            await self.open()
        assert self._open is not None
        if self._open.connection is None:
            failure, self._open = self._open.failure, None
            self._provider.fail("no connection could be opened", failure or RuntimeError("it was closed"))
        return self._open.connection


class _Open:
    """A provider's connection, held open by a task of its own.

    ``connection`` and ``failure`` are written by that task alone; ``closing`` is set by whoever uses it.
    """

    def __init__(self, provider: GuardedProvider) -> None:
        self.connection: Connection | None = None
        self.failure: Exception | None = None
        self.ready = trio.Event()
        self.closing = trio.Event()
        self.ended = trio.Event()
        self._provider = provider

    async def hold(self) -> None:
        try:
            async with self._provider.inner.connect() as self.connection:
                self.ready.set()
                await self.closing.wait()
        except* Exception as error:
            self.failure = error
            if self.ready.is_set():
                # While it was idle, or as it was closed: no call is there to be told.
                logger.warning("provider %s: a connection ended with %s", self._provider.name, type(error).__name__)
        finally:
            self.connection = None
            self.ready.set()
            self.ended.set()


def _checked(vectors: object, inputs: int, dimension: int | None, name: str) -> Vectors:
    import numpy as np

    if not isinstance(vectors, np.ndarray) or vectors.ndim != 2:
        what = f"an array of {vectors.ndim} dimensions" if isinstance(vectors, np.ndarray) else type(vectors).__name__
        raise ResponseInvalid(f"provider {name} gave {what}, not an array of a row for each text")
    if vectors.dtype != np.float32:
        raise ResponseInvalid(f"provider {name} gave numbers of type {vectors.dtype}, not float32")
    rows, width = vectors.shape
    if rows != inputs:
        index = rows if rows < inputs else None
        raise ResponseInvalid(f"provider {name} gave {rows} vectors for {inputs} texts", input_index=index)
    if inputs and width == 0:
        raise ResponseInvalid(f"provider {name} gave vectors without a number", input_index=0)
    if inputs and dimension is not None and width != dimension:
        raise ResponseInvalid(f"provider {name} gave vectors of {width} dimensions, not {dimension}", input_index=0)
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        index = int(np.argmin(finite))
        raise ResponseInvalid(f"provider {name} gave text {index} a number that is not finite", input_index=index)
    return vectors


def check_texts(texts: object) -> None:
    """Refuse what is no list of texts.

    Raises:
        UsageError: A string, which is a sequence of one-letter texts; or something in it is no string.
    """
    if isinstance(texts, str | bytes):
        raise UsageError("texts is one string, which would be embedded letter by letter; give a list: embed([text])")
    if not isinstance(texts, Sequence):
        raise UsageError(f"texts is of type {type(texts).__name__}; give a list of strings")
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise UsageError(f"text {index} is of type {type(text).__name__}; give a list of strings")
