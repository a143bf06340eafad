"""Ollama, over ``POST {base}/api/embed``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from embedkit.providers.exchange import Exchange, OpenExchange, Reply
from embedkit.providers.http import MAX_RESPONSE_BYTES
from embedkit.providers.http_provider import HttpProvider, ShowWords, bearer
from embedkit.providers.vectors import read_ollama_vectors
from embedkit.providers.wire import Purpose, Wire

if TYPE_CHECKING:
    from embedkit.providers.provider import Vectors


class OllamaProvider(HttpProvider):
    """See ``Provider``.

    ``truncate`` is false in each request: an input over the window is refused, and not embedded in part
    unnoticed.
    """

    kind = "ollama"
    _models_path = "/api/tags"
    _empty_list_refuses = True

    def __init__(
        self,
        name: str,
        base_url: str,
        model: str,
        *,
        api_key: str | None = None,
        num_ctx: int | None = None,
        keep_alive: str | float | None = None,
        options: Mapping[str, object] | None = None,
        dimensions: int | None = None,
        dimension: int | None = None,
        wire: Wire | None = None,
        preflight: bool = True,
        show_words: ShowWords | None = None,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        open_exchange: OpenExchange | None = None,
    ) -> None:
        """Describe the engine; nothing is sent.

        Args:
            name: The name in the settings.
            base_url: Without a path: ``http://127.0.0.1:11434``.
            model: With or without its tag.
            api_key: Sent as a bearer token, for an Ollama behind a gateway.
            num_ctx: Size of the window in tokens. Each other value makes Ollama load the model anew.
            keep_alive: How long the model stays loaded afterwards: ``"10m"``, or seconds.
            options: Further options of the model's runner, sent as they are.
            dimensions: Asked of the engine with each request, for models that can shorten their vectors.
            dimension: What the store already has; a reply with another is refused.
            wire: What is added to each request, and the way it takes.
            preflight: Whether the engine is asked for its models before the first call.
            show_words: Given the engine's own words about a refusal, less the keys.
            max_response_bytes: Largest reply that is read.
            open_exchange: Stands in for HTTP in tests.

        Raises:
            UsageError: an address, key or dimension that cannot be.
        """
        super().__init__(
            name,
            base_url,
            model,
            key_header=bearer(api_key),
            api_key=api_key,
            wire=wire,
            asks_models=preflight,
            dimensions=dimensions,
            dimension=dimension,
            max_response_bytes=max_response_bytes,
            show_words=show_words,
            open_exchange=open_exchange,
        )
        self._fixed = _fixed_part(model, num_ctx, keep_alive, options, dimensions)

    def weight(self, inputs: int) -> int:
        """A whole batch is one request, worked off by one runner."""
        return 1

    async def exchange_batch(self, exchange: Exchange, texts: Sequence[str], purpose: Purpose) -> Reply:
        """See ``HttpProvider.exchange_batch``.

        Cancellation:
            See ``Exchange.send``.
        """
        document = {**self.wire.fields(purpose), **self._fixed, "input": list(texts)}
        return await self.post(exchange, "/api/embed", document, texts)

    def read_vectors(self, document: object, inputs: int) -> Vectors:
        """See ``read_ollama_vectors``."""
        return read_ollama_vectors(document, inputs, self.dimension)


def _fixed_part(
    model: str,
    num_ctx: int | None,
    keep_alive: str | float | None,
    options: Mapping[str, object] | None,
    dimensions: int | None,
) -> dict[str, object]:
    """What is the same in every request; what was not given is left to the engine."""
    fixed: dict[str, object] = {"model": model, "truncate": False}
    runner = dict(options or {})
    if num_ctx is not None:
        runner["num_ctx"] = num_ctx
    if runner:
        fixed["options"] = runner
    if keep_alive is not None:
        fixed["keep_alive"] = keep_alive
    if dimensions is not None:
        fixed["dimensions"] = dimensions
    return fixed
