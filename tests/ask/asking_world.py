"""Engines that answer questions, and adapters that do as they are told."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs

from embedkit.ask import Answer, Failure, Question, Result, Said
from embedkit.engine import Engine, open_engine
from embedkit.settings import AskSettings, ConsensusSettings, PanelMember, ProviderSettings, Settings
from embedkit.testing import ScriptedEngine

KEYS = {"XAI_API_KEY": "xai-secret-key", "OPENROUTER_API_KEY": "sk-or-secret-key"}

ADAPTERS = ("openai-compatible", "ollama", "grok", "openrouter")


def provider_of(kind: str, served: ScriptedEngine, **more: Any) -> ProviderSettings:
    """The section of a provider whose engine is ``served``."""
    address = served.base_url if kind == "ollama" else served.openai_url
    return ProviderSettings(kind=kind, base_url=address, model="scripted", **more)  # type: ignore[arg-type]


@asynccontextmanager
async def asking(
    providers: Mapping[str, ProviderSettings],
    *,
    panel: tuple[PanelMember, ...] = (),
    environ: Mapping[str, str] = KEYS,
    consensus: ConsensusSettings | None = None,
    log: Path | None = None,
    **ask: Any,
) -> AsyncGenerator[Engine]:
    """An engine with these providers."""
    settings = Settings(
        providers=dict(providers),
        ask=AskSettings(panel=panel, log=log, **ask),
        consensus=consensus or ConsensusSettings(),
    )
    async with open_engine(settings, environ=environ) as engine:
        yield engine


@attrs.define(eq=False)
class FakeAdapter:
    """An adapter whose answers a function gives; it may wait, or raise."""

    script: Callable[[Question], Awaitable[str]]
    questions: list[str] = attrs.field(factory=list)
    ended: int = 0

    async def attempt(self, question: Question) -> Said:
        self.questions.append(question.text)
        try:
            return Said(await self.script(question))
        finally:
            self.ended += 1


def failure(result: Result) -> Failure:
    assert isinstance(result, Failure), result
    return result


def answer(result: Result) -> Answer:
    assert isinstance(result, Answer), result
    return result


def chat_body(text: str | None, finish: str = "stop") -> bytes:
    import json

    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
    return json.dumps({"model": "scripted", "choices": [choice]}).encode()
