"""OpenAI-compatible engines (llama.cpp, vLLM, TEI, LM Studio), over ``POST {base}/embeddings``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from embedkit.providers.exchange import Exchange, OpenExchange, Reply
from embedkit.providers.failures import Format, format_after
from embedkit.providers.http import MAX_RESPONSE_BYTES
from embedkit.providers.http_provider import HttpProvider, ShowWords, bearer
from embedkit.providers.vectors import read_openai_vectors
from embedkit.providers.wire import Purpose, Wire

if TYPE_CHECKING:
    from embedkit.providers.provider import Vectors


class OpenAICompatibleProvider(HttpProvider):
    """See ``Provider``.

    Vectors are asked for in base64, which costs a twentieth of JSON numbers to read. An engine that ignores the wish is
    read as it answers. One that refuses it, in whatever words, is asked again for numbers within the same attempt, and
    if that succeeds the provider remembers: a refusal of our encoding is no failure of the caller's. One that refuses
    the field itself is asked without it. Once an answer has come, no refusal is put down to the encoding any more.
    """

    kind = "openai-compatible"
    _models_path = "/models"
    _empty_list_refuses = False

    def __init__(
        self,
        name: str,
        base_url: str,
        model: str,
        *,
        api_key: str | None = None,
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
            base_url: With its version: ``http://127.0.0.1:8080/v1``.
            model: The model's id as the engine knows it.
            api_key: Sent as a bearer token, where there is one.
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
        wanted = self.wire.body.get("encoding_format", "base64")
        self._format: Format = "base64" if wanted == "base64" else "float"
        self._is_settled = False

    def weight(self, inputs: int) -> int:
        """Each input is a task of its own to llama.cpp and its kin."""
        return inputs

    async def exchange_batch(self, exchange: Exchange, texts: Sequence[str], purpose: Purpose) -> Reply:
        """See ``HttpProvider.exchange_batch``.

        Cancellation:
            See ``Exchange.send``.
        """
        asked = self._format
        while True:
            reply = await self._ask(exchange, texts, purpose, asked)
            if 200 <= reply.status < 300:
                self._format, self._is_settled = asked, True
                return reply
            # Another connection may have found out meanwhile.
            other = self._format if self._is_settled else format_after(reply, asked, self.asked(texts))
            if other == asked:
                # It was not the encoding, or not it alone.
                return reply
            asked = other

    def read_vectors(self, document: object, inputs: int) -> Vectors:
        """See ``read_openai_vectors``."""
        return read_openai_vectors(document, inputs, self.dimension)

    async def _ask(self, exchange: Exchange, texts: Sequence[str], purpose: Purpose, format_: Format) -> Reply:
        document: dict[str, object] = {**self.wire.fields(purpose), "model": self.model, "input": list(texts)}
        document.pop("encoding_format", None)
        if format_ is not None:
            document["encoding_format"] = format_
        if self._dimensions is not None:
            document["dimensions"] = self._dimensions
        return await self.post(exchange, "/embeddings", document, texts)
