"""What the providers over HTTP share: one attempt of one batch, and whether the model is there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import trio

from embedkit.errors import ProviderError, ResponseInvalid, UsageError
from embedkit.providers.exchange import Exchange, OpenExchange, Reply
from embedkit.providers.failures import Asked, failure_inside, failure_of
from embedkit.providers.http import HttpEndpoint, open_exchange
from embedkit.providers.identity import Identity, identify, models_of
from embedkit.providers.json_body import load_json
from embedkit.providers.vectors import empty_vectors

if TYPE_CHECKING:
    from embedkit.providers.provider import Connection, Vectors

PREFLIGHT_SECONDS = 5.0


class HttpProvider(ABC):
    """Base of the providers that speak HTTP. See ``Provider``; subclasses give the wire's shapes.

    Attributes:
        name: The name in the settings.
        model: The model's id as the engine knows it.
        dimension: What every vector must have: given, or fixed by the first good reply.
    """

    kind: str
    _models_path: str
    _empty_list_refuses: bool

    def __init__(
        self,
        name: str,
        endpoint: HttpEndpoint,
        model: str,
        *,
        api_key: str | None,
        dimensions: int | None,
        dimension: int | None,
        open_exchange: OpenExchange | None,
    ) -> None:
        """Shared parts of the subclasses' parameters, which are described there."""
        if dimensions is not None and dimension is not None and dimensions != dimension:
            raise UsageError(f"provider {name}: dimensions is {dimensions}, and the store has {dimension}")
        self.name = name
        self.model = model
        self.dimension = dimensions if dimensions is not None else dimension
        self._dimensions = dimensions
        self._api_key = api_key
        self._endpoint = endpoint
        self._open_exchange = open_exchange

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {self.model!r} at {self._endpoint.peer}>"

    @property
    def space_options(self) -> Mapping[str, str]:
        """The number of dimensions where it was asked for, since those vectors are of another space."""
        return {} if self._dimensions is None else {"dimensions": str(self._dimensions)}

    @abstractmethod
    def weight(self, inputs: int) -> int:
        """How many of the lane's slots a batch of ``inputs`` texts takes up in the engine."""

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Connection]:
        """A connection for one slot; opened by its first request.

        Cancellation:
            The connection is closed.
        """
        async with self._opened() as exchange:
            yield HttpConnection(self, exchange)

    async def preflight(self, limit: float = PREFLIGHT_SECONDS) -> Identity:
        """Ask the engine for its models, over a connection of its own, within ``limit`` seconds.

        Returns:
            ``listed``; or ``unknown`` where the engine does not answer in time, or not this question.

        Raises:
            UsageError: the engine lists other models only.

        Cancellation:
            The connection is closed; nothing was learned.
        """
        reply: Reply | ProviderError | None = None
        with trio.move_on_after(limit):
            async with self._opened() as exchange:
                reply = await _reply_or_error(exchange, self._models_path)
        peer = self._endpoint.peer
        if reply is None:
            return Identity("unknown", self.model, f"engine {peer} did not list its models within {limit:g} s")
        if isinstance(reply, ProviderError):
            return Identity("unknown", self.model, str(reply))
        return identify(self.model, _listed(reply), peer=peer, empty_is_refusal=self._empty_list_refuses)

    @abstractmethod
    async def exchange_batch(self, exchange: Exchange, texts: Sequence[str]) -> Reply:
        """Send the request for ``texts`` and give its reply, whatever its status.

        Cancellation:
            See ``Exchange.send``.
        """

    @abstractmethod
    def read_vectors(self, document: object, inputs: int) -> Vectors:
        """The validated vectors of a parsed reply."""

    def read(self, reply: Reply, texts: Sequence[str]) -> Vectors:
        """The vectors of ``reply``; it fixes the dimension if it is the first good one.

        Raises:
            ProviderError: the one that the reply stands for.
        """
        if not 200 <= reply.status < 300:
            raise failure_of(reply, self._asked(texts))
        try:
            document = load_json(reply.body)
            if isinstance(document, dict) and document.get("error"):
                failure = failure_inside(document, reply, self._asked(texts))
                if failure is not None:
                    raise failure
            vectors = self.read_vectors(document, len(texts))
        except ResponseInvalid as error:
            raise _with_peer(error, reply.status, self._endpoint.peer) from None
        self.dimension = vectors.shape[1]
        return vectors

    def _asked(self, texts: Sequence[str]) -> Asked:
        return Asked(self._endpoint.peer, texts, datetime.now(UTC), self._api_key)

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[Exchange]:
        opened = open_exchange(self._endpoint) if self._open_exchange is None else self._open_exchange()
        async with opened as exchange:
            yield exchange


class HttpConnection:
    """See ``Connection``."""

    def __init__(self, provider: HttpProvider, exchange: Exchange) -> None:
        self._provider = provider
        self._exchange = exchange

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """See ``Connection.embed``. Exactly one attempt; without texts, no request.

        Cancellation:
            The transport is closed; nothing is known of what the engine goes on doing.
        """
        if not texts:
            await trio.lowlevel.checkpoint()
            return empty_vectors(self._provider.dimension)
        reply = await self._provider.exchange_batch(self._exchange, texts)
        return self._provider.read(reply, texts)


async def _reply_or_error(exchange: Exchange, path: str) -> Reply | ProviderError:
    try:
        return await exchange.send("GET", path)
    except ProviderError as error:
        return error


def _listed(reply: Reply) -> list[str] | None:
    if reply.status != 200:
        return None
    try:
        return models_of(load_json(reply.body))
    except ResponseInvalid:
        return None


def _with_peer(error: ResponseInvalid, status: int, peer: str) -> ResponseInvalid:
    message = str(error)
    if not message.startswith("engine "):
        message = f"engine {peer}: {message}"
    return ResponseInvalid(message, status=status, input_index=error.input_index)
