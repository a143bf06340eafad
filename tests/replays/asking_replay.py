"""One chat model of a scripted engine, asked over HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from embedkit.engine import Engine, open_engine
from embedkit.settings import ProviderSettings, Settings
from embedkit.testing import ScriptedEngine

KINDS = ("openai-compatible", "ollama", "grok", "openrouter")


@asynccontextmanager
async def asked_engine(kind: str, served: ScriptedEngine, **more: Any) -> AsyncGenerator[Engine]:
    """An engine whose provider ``box`` is ``served``."""
    address = served.base_url if kind == "ollama" else served.openai_url
    described = ProviderSettings(kind=kind, base_url=address, model="scripted", **more)  # type: ignore[arg-type]
    environ = {"XAI_API_KEY": "key-of-xai", "OPENROUTER_API_KEY": "key-of-router"}
    async with open_engine(Settings(providers={"box": described}), environ=environ) as engine:
        yield engine
