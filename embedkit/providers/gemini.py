"""Gemini, over ``POST {base}/models/{model}:batchEmbedContents``.

Gemini is remote and unqueued. It is outside the contract of the queued local engines: no lane of ours governs
what it admits, no circuit is claimed for it, and a timeout of it trips nothing. What it does have is a quota,
whose refusals carry how long to wait: in ``Retry-After``, or in a ``RetryInfo`` in the body.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from embedkit.errors import UsageError
from embedkit.providers.exchange import Exchange, OpenExchange, Reply
from embedkit.providers.http import MAX_RESPONSE_BYTES
from embedkit.providers.http_provider import HttpProvider, ShowWords
from embedkit.providers.vectors import read_gemini_vectors
from embedkit.providers.wire import Purpose, Wire

if TYPE_CHECKING:
    from embedkit.providers.provider import Vectors

GEMINI_URL = "https://generativelanguage.googleapis.com/v1beta"


class GeminiProvider(HttpProvider):
    """See ``Provider``.

    Each text is a content of its own: given as parts of one content, they come back as one fused vector.

    Attributes:
        max_inputs: Texts that one request can carry.
    """

    kind = "gemini"
    max_inputs = 100
    _models_path = "/models?pageSize=1000"
    _empty_list_refuses = False

    def __init__(
        self,
        name: str,
        model: str,
        api_key: str,
        *,
        base_url: str = GEMINI_URL,
        dimensions: int | None = None,
        dimension: int | None = None,
        task_type: str | None = None,
        wire: Wire | None = None,
        preflight: bool = True,
        show_words: ShowWords | None = None,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        open_exchange: OpenExchange | None = None,
    ) -> None:
        """Describe the engine; nothing is sent.

        Args:
            name: The name in the settings.
            model: The model's id, without ``models/``.
            api_key: Sent in a header, never in the address.
            base_url: With its version.
            dimensions: Asked of the engine with each request, for models that can shorten their vectors.
            dimension: What the store already has; a reply with another is refused.
            task_type: What the vectors are for, as Gemini words it; it decides which space they live in.
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
            model.removeprefix("models/"),
            key_header=("x-goog-api-key", api_key),
            api_key=api_key,
            wire=wire,
            asks_models=preflight,
            dimensions=dimensions,
            dimension=dimension,
            max_response_bytes=max_response_bytes,
            show_words=show_words,
            open_exchange=open_exchange,
        )
        self._task_type = task_type

    @property
    def space_options(self) -> Mapping[str, str]:
        """The number of dimensions and the task type, where they were asked for."""
        task = {} if self._task_type is None else {"task_type": self._task_type}
        return {**super().space_options, **task}

    def weight(self, inputs: int) -> int:
        """A whole batch is one request."""
        return 1

    async def exchange_batch(self, exchange: Exchange, texts: Sequence[str], purpose: Purpose) -> Reply:
        """See ``HttpProvider.exchange_batch``.

        Raises:
            UsageError: more texts than one request can carry.

        Cancellation:
            See ``Exchange.send``.
        """
        if len(texts) > self.max_inputs:
            raise UsageError(f"provider {self.name}: {len(texts)} texts in one batch; Gemini takes {self.max_inputs}")
        requests = [{**self.wire.fields(purpose), **self._request(text)} for text in texts]
        path = f"/models/{self.model}:batchEmbedContents"
        return await self.post(exchange, path, {"requests": requests}, texts)

    def read_vectors(self, document: object, inputs: int) -> Vectors:
        """See ``read_gemini_vectors``."""
        return read_gemini_vectors(document, inputs, self.dimension)

    def _request(self, text: str) -> dict[str, object]:
        request: dict[str, object] = {
            "model": f"models/{self.model}",
            "content": {"parts": [{"text": text}]},
        }
        if self._dimensions is not None:
            request["outputDimensionality"] = self._dimensions
        if self._task_type is not None:
            request["taskType"] = self._task_type
        return request
