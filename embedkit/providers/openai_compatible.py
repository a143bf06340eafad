"""OpenAI-compatible engines (llama.cpp, vLLM, TEI, LM Studio), over ``POST {base}/embeddings``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from embedkit.providers.exchange import Exchange, OpenExchange, Reply
from embedkit.providers.failures import refuses_base64
from embedkit.providers.http import MAX_RESPONSE_BYTES, HttpEndpoint
from embedkit.providers.http_provider import HttpProvider
from embedkit.providers.json_body import dump_json
from embedkit.providers.vectors import read_openai_vectors

if TYPE_CHECKING:
    from embedkit.providers.provider import Vectors


class OpenAICompatibleProvider(HttpProvider):
    """See ``Provider``.

    Vectors are asked for in base64, which costs a twentieth of JSON numbers to read. An engine that ignores
    the wish is read as it answers. One that refuses it is asked again for numbers within the same attempt,
    and the provider
    remembers: a refusal of our encoding is no failure of the caller's.
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
        trust_env: bool = False,
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
            trust_env: Use the proxies and certificate files that the environment names.
            max_response_bytes: Largest reply that is read.
            open_exchange: Stands in for HTTP in tests.

        Raises:
            UsageError: an address, key or dimension that cannot be.
        """
        headers = () if not api_key else (("Authorization", f"Bearer {api_key}"),)
        super().__init__(
            name,
            HttpEndpoint(base_url, headers=headers, trust_env=trust_env, max_response_bytes=max_response_bytes),
            model,
            api_key=api_key,
            dimensions=dimensions,
            dimension=dimension,
            open_exchange=open_exchange,
        )
        self._asks_base64 = True

    def weight(self, inputs: int) -> int:
        """Each input is a task of its own to llama.cpp and its kin."""
        return inputs

    async def exchange_batch(self, exchange: Exchange, texts: Sequence[str]) -> Reply:
        """See ``HttpProvider.exchange_batch``.

        Cancellation:
            See ``Exchange.send``.
        """
        asked_base64 = self._asks_base64
        reply = await exchange.send("POST", "/embeddings", self._body(texts, asked_base64))
        if asked_base64 and refuses_base64(reply, texts):
            self._asks_base64 = False
            reply = await exchange.send("POST", "/embeddings", self._body(texts, False))
        return reply

    def read_vectors(self, document: object, inputs: int) -> Vectors:
        """See ``read_openai_vectors``."""
        return read_openai_vectors(document, inputs, self.dimension)

    def _body(self, texts: Sequence[str], base64: bool) -> bytes:
        document: dict[str, object] = {
            "model": self.model,
            "input": list(texts),
            "encoding_format": "base64" if base64 else "float",
        }
        if self._dimensions is not None:
            document["dimensions"] = self._dimensions
        return dump_json(document)
