"""What the providers over HTTP share: one attempt of one batch, and whether the model is there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from embedkit.errors import ModelChanged, ProviderError, ResponseInvalid, UsageError
from embedkit.providers.exchange import Exchange, OpenExchange, Reply
from embedkit.providers.failures import Asked, failure_inside, failure_of, is_error
from embedkit.providers.http import HttpEndpoint, open_exchange
from embedkit.providers.identity import Identity, identify, mean_the_same, models_of, shown_model
from embedkit.providers.json_body import LISTING, NOT_COUNTED, bound_of, dump_json, load_json
from embedkit.providers.vectors import empty_vectors
from embedkit.providers.wire import Purpose, Wire

if TYPE_CHECKING:
    from embedkit.providers.provider import Connection, Vectors

R = TypeVar("R")

ShowWords = Callable[[str], None]

PREFLIGHT_SECONDS = 5.0
_AT_ONCE = 1 << 18  # bytes: above, parsing and checking would hold up every other task for more than a millisecond
_READERS = 2


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
        base_url: str,
        model: str,
        *,
        key_header: tuple[str, str] | None,
        api_key: str | None,
        wire: Wire | None,
        asks_models: bool,
        dimensions: int | None,
        dimension: int | None,
        max_response_bytes: int,
        show_words: ShowWords | None,
        open_exchange: OpenExchange | None,
    ) -> None:
        """Shared parts of the subclasses' parameters, which are described there.

        Args:
            name: The name in the settings.
            base_url: Where the engine is.
            model: The model's id as the engine knows it.
            key_header: How the key is sent; one of ``wire`` of the same name is sent in its place.
            api_key: The key itself, which is shown nowhere.
            wire: What is added to each request, and the way it takes.
            asks_models: Whether preflight asks for the engine's models.
            dimensions: Asked of the engine with each request.
            dimension: What the store already has.
            max_response_bytes: Largest reply that is read, whatever was asked.
            show_words: Given the engine's own words about a refusal.
            open_exchange: Stands in for HTTP in tests.
        """
        if dimensions is not None and dimension is not None and dimensions != dimension:
            raise UsageError(f"provider {name}: dimensions is {dimensions}, and the store has {dimension}")
        self.name = name
        self.model = model
        self.dimension = dimensions if dimensions is not None else dimension
        self.wire = Wire() if wire is None else wire
        self._dimensions = dimensions
        self._secrets = tuple(secret for secret in (api_key, *self.wire.secrets) if secret)
        self._asks_models = asks_models
        self._show_words = show_words
        self._said_model: str | None = None
        self._reading: trio.CapacityLimiter | None = None
        given = tuple(self.wire.headers.items())
        names = {header.lower() for header, _ in given}
        own = () if key_header is None or key_header[0].lower() in names else (key_header,)
        self._endpoint = HttpEndpoint(
            base_url,
            headers=(*own, *given),
            query=self.wire.query,
            ca_file=self.wire.ca_file,
            proxy=self.wire.proxy,
            trust_env=self.wire.trust_env,
            max_response_bytes=max_response_bytes,
        )
        self._open_exchange = open_exchange

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {self.model!r} at {self._endpoint.peer}>"

    @property
    def space_options(self) -> Mapping[str, str]:
        """The number of dimensions and the fields of the request where they were asked for: they change vectors."""
        asked = {} if self._dimensions is None else {"dimensions": str(self._dimensions)}
        return {**asked, **self.wire.space_options}

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
            ``listed``; or ``unknown`` where the engine does not answer in time, or not this question, or is not to be
            asked (``preflight = false``).

        Raises:
            UsageError: the engine lists other models only.

        Cancellation:
            The connection is closed; nothing was learned.
        """
        if not self._asks_models:
            await trio.lowlevel.checkpoint()
            return Identity("unknown", self.model, "the engine was not asked for its models (preflight = false)")
        reply: Reply | ProviderError | None = None
        listed: list[str] | None = None
        with trio.move_on_after(limit):
            async with self._opened() as exchange:
                reply = await _reply_or_error(exchange, self._models_path)
                if isinstance(reply, Reply):
                    listed = await self._off_loop(len(reply.body), _listed, reply)
        peer = self._endpoint.peer
        if reply is None:
            return Identity("unknown", self.model, f"engine {peer} did not list its models within {limit:g} s")
        if isinstance(reply, ProviderError):
            return Identity("unknown", self.model, str(reply))
        return identify(self.model, listed, peer=peer, empty_is_refusal=self._empty_list_refuses, secrets=self._secrets)

    @abstractmethod
    async def exchange_batch(self, exchange: Exchange, texts: Sequence[str], purpose: Purpose) -> Reply:
        """Send the request for ``texts`` and give its reply, whatever its status.

        Cancellation:
            See ``Exchange.send``.
        """

    async def post(self, exchange: Exchange, path: str, document: dict[str, object], texts: Sequence[str]) -> Reply:
        """Send ``document`` to ``path`` and read as much as the vectors of ``texts`` can need.

        Cancellation:
            See ``Exchange.send``.
        """
        most = bound_of(texts, self.dimension).size
        return await exchange.send("POST", path, dump_json(document), max_bytes=most)

    @abstractmethod
    def read_vectors(self, document: object, inputs: int) -> Vectors:
        """The validated vectors of a parsed reply."""

    def read(self, reply: Reply, texts: Sequence[str]) -> Vectors:
        """The vectors of ``reply``; it fixes the dimension, and the model's name, if it is the first good one.

        Raises:
            ProviderError: the one that the reply stands for.
        """
        if not 200 <= reply.status < 300:
            raise failure_of(reply, self.asked(texts))
        try:
            is_counted = len(reply.body) > NOT_COUNTED
            document = load_json(reply.body, bound_of(texts, self.dimension) if is_counted else None)
            if is_error(document):
                raise failure_inside(document, reply, self.asked(texts))
            vectors = self.read_vectors(document, len(texts))
        except ResponseInvalid as error:
            raise _with_peer(error, reply.status, self._endpoint.peer) from None
        self._compare_model(document)
        self.dimension = vectors.shape[1]
        return vectors

    async def read_off_loop(self, reply: Reply, texts: Sequence[str]) -> Vectors:
        """As ``read``, in a worker thread where the reply is large.

        Cancellation:
            Nothing came of it; the thread goes on to its end.
        """
        return await self._off_loop(len(reply.body), self.read, reply, texts)

    def asked(self, texts: Sequence[str]) -> Asked:
        """What a refusal of ``texts`` is judged against."""
        return Asked(self._endpoint.peer, texts, datetime.now(UTC), self._secrets, self._show_words)

    def _compare_model(self, document: object) -> None:
        """Refuse vectors of another model than the replies before had: engines serve what is loaded, whatever is asked.

        A first reply that names another than was asked for is believed: a deployment and an alias have names of their
        own.
        """
        said = document.get("model") if isinstance(document, dict) else None
        if not isinstance(said, str) or not said.strip():
            return
        if self._said_model is None:
            self._said_model = said
        if said == self._said_model or mean_the_same(self._said_model, said) or mean_the_same(self.model, said):
            return
        before, now = (shown_model(name, self._secrets) for name in (self._said_model, said))
        raise ModelChanged(
            f"engine {self._endpoint.peer} answered with the model {now}, and before with {before}; nothing was kept: "
            "have it serve one model under this name, and begin again"
        )

    async def _off_loop(self, size: int, work: Callable[..., R], *given: Any) -> R:
        if size <= _AT_ONCE:
            return work(*given)
        if self._reading is None:
            self._reading = trio.CapacityLimiter(_READERS)
        return await trio.to_thread.run_sync(work, *given, limiter=self._reading, abandon_on_cancel=True)

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
        """See ``Connection.embed``.

        Cancellation:
            See ``embed_for``.
        """
        return await self.embed_for(texts, "document")

    async def embed_for(self, texts: Sequence[str], purpose: Purpose) -> Vectors:
        """See ``PurposefulConnection``. Exactly one attempt; without texts, no request.

        Cancellation:
            The transport is closed; nothing is known of what the engine goes on doing.
        """
        if not texts:
            await trio.lowlevel.checkpoint()
            return empty_vectors(self._provider.dimension)
        reply = await self._provider.exchange_batch(self._exchange, texts, purpose)
        return await self._provider.read_off_loop(reply, texts)


def bearer(api_key: str | None) -> tuple[str, str] | None:
    """The header of a bearer token, where there is one."""
    return ("Authorization", f"Bearer {api_key}") if api_key else None


async def _reply_or_error(exchange: Exchange, path: str) -> Reply | ProviderError:
    try:
        return await exchange.send("GET", path, max_bytes=LISTING.size)
    except ProviderError as error:
        return error


def _listed(reply: Reply) -> list[str] | None:
    if reply.status != 200:
        return None
    try:
        return models_of(load_json(reply.body, LISTING))
    except ResponseInvalid:
        return None


def _with_peer(error: ResponseInvalid, status: int, peer: str) -> ResponseInvalid:
    message = str(error)
    if not message.startswith("engine "):
        message = f"engine {peer}: {message}"
    return ResponseInvalid(message, status=status, input_index=error.input_index)
