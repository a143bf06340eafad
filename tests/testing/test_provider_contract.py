"""Our providers over HTTP, held to the provider contract; and a bad one, to see that it has teeth."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from embedkit.errors import ProviderError
from embedkit.providers.gemini import GeminiProvider
from embedkit.providers.ollama import OllamaProvider
from embedkit.providers.openai_compatible import OpenAICompatibleProvider
from embedkit.providers.provider import Provider
from embedkit.testing import ProviderContract, ScriptedEngine


class TestOpenAICompatible(ProviderContract):
    def make_provider(self, engine: ScriptedEngine) -> Provider:
        return OpenAICompatibleProvider("here", engine.openai_url, "scripted")


class TestOllama(ProviderContract):
    def make_provider(self, engine: ScriptedEngine) -> Provider:
        return OllamaProvider("here", engine.base_url, "scripted")


class TestGemini(ProviderContract):
    def make_provider(self, engine: ScriptedEngine) -> Provider:
        return GeminiProvider("far", "scripted", "key", base_url=engine.gemini_url)


class Bad(OllamaProvider):
    """Tries again by itself, drops blanks, shares one connection, and asks the engine about nothing."""

    lock: trio.Lock

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Any]:
        self.lock = getattr(self, "lock", None) or trio.Lock()
        async with super().connect() as inner:
            yield BadConnection(inner, self.lock)


class BadConnection:
    def __init__(self, inner: Any, lock: trio.Lock) -> None:
        self.inner = inner
        self.lock = lock

    async def embed(self, texts: Sequence[str]) -> Any:
        texts = [text for text in texts if text.strip()] or ["nothing"]
        async with self.lock:
            try:
                return await self.inner.embed(texts)
            except ProviderError:
                return await self.inner.embed(texts)


class Contract(ProviderContract):
    def make_provider(self, engine: ScriptedEngine) -> Provider:
        return Bad("here", engine.base_url, "scripted")

    def expected(self, texts: Sequence[str]) -> list[list[float]]:
        return super().expected(texts)


@pytest.mark.parametrize(
    "test",
    [
        "test_row_i_is_the_vector_of_text_i",
        "test_no_text_is_no_request",
        "test_a_failure_is_one_attempt_and_a_provider_error",
    ],
)
def test_a_bad_provider_is_found_out(test: str) -> None:
    with pytest.raises((AssertionError, ExceptionGroup)):
        getattr(Contract(), test)()
