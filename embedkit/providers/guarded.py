"""Any provider, as the engine uses it: what comes out of it is checked, and whatever it raises is one ticket's failure.

The providers of this room check their replies themselves, for what only they know. Here is what holds for all of them
and for a user's own: as many rows as texts, one dimension, float32, finite numbers; and nothing but embedkit's own
errors. Prefixes are set here too, so that every provider has them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, NoReturn

from embedkit.errors import EmbedkitError, ProviderFailure, ResponseInvalid, UsageError
from embedkit.providers.wire import Purpose

if TYPE_CHECKING:
    from embedkit.providers.identity import Identity
    from embedkit.providers.provider import Connection, Provider, Vectors


class GuardedProvider:
    """See ``Provider``.

    Args:
        provider: The one that is guarded.
        name: The name in the settings, for messages.
        document_prefix: Set before each text that is stored.
        query_prefix: Set before each text that is searched for.
        connect: Opens a connection, if not the provider's own method.
    """

    def __init__(
        self,
        provider: Provider,
        name: str,
        *,
        document_prefix: str | None = None,
        query_prefix: str | None = None,
        connect: Callable[[], AbstractAsyncContextManager[Connection]] | None = None,
    ) -> None:
        self.inner = provider
        self._connect = provider.connect if connect is None else connect
        self.name = name
        self.prefixes: Mapping[Purpose, str] = {"document": document_prefix or "", "query": query_prefix or ""}
        self._dimension: int | None = None

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
        """A connection, open for as long as the block.

        Raises:
            EmbedkitError: As it is; whatever else the opening raises becomes ``ProviderFailure``.

        Cancellation:
            It is closed.
        """
        async with AsyncExitStack() as opened:
            try:
                connection = await opened.enter_async_context(self._connect())
            except Exception as error:
                self.fail("no connection could be opened", error)
            yield GuardedConnection(self, connection)

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
        if isinstance(ours, EmbedkitError):
            raise ours
        # The name of its class, and not its words: they are foreign, and may quote a text or a key.
        raise ProviderFailure(f"provider {self.name}: {what} ({type(ours).__name__})") from error


class GuardedConnection:
    """See ``Connection``. Its provider's is behind it."""

    __slots__ = ("_inner", "_provider")

    def __init__(self, provider: GuardedProvider, inner: Connection) -> None:
        self._provider = provider
        self._inner = inner

    async def embed(self, texts: Sequence[str], purpose: Purpose = "document") -> Vectors:
        """See ``Connection.embed``.

        Args:
            texts: What is embedded; the prefix of ``purpose`` is set before each.
            purpose: What for.

        Raises:
            ProviderError: What the provider raised, if it is one; ``ProviderFailure`` for anything else of its;
                ``ResponseInvalid`` for vectors that are not what was asked for.

        Cancellation:
            As the provider's own connection.
        """
        provider, inner = self._provider, self._inner
        if prefix := provider.prefixes[purpose]:
            texts = [prefix + text for text in texts]
        embed_for = getattr(inner, "embed_for", None)  # asking for the protocol itself takes ten times as long
        try:
            vectors = await (inner.embed(texts) if embed_for is None else embed_for(texts, purpose))
        except Exception as error:
            provider.fail("it failed", error)
        return provider.check(vectors, len(texts))


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
    finite = np.isfinite(vectors)
    if not finite.all():
        index = int(np.argmin(finite.all(axis=1)))
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
