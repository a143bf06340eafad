"""A lane on a scripted engine, for replays: the whole way from a ticket to a socket and back."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from embedkit.activity.ledger import Ledger
from embedkit.admission.budget_lane import BudgetLane
from embedkit.admission.capacity_lane import CapacityLane
from embedkit.admission.lane import Lane
from embedkit.admission.ticket import Ticket
from embedkit.providers.http_provider import HttpProvider
from embedkit.providers.ollama import OllamaProvider
from embedkit.providers.openai_compatible import OpenAICompatibleProvider
from embedkit.providers.provider import Connection
from embedkit.providers.retry import RetryTable, ollama_policy, openai_compatible_policy
from embedkit.testing.scripted_engine import ScriptedEngine

if TYPE_CHECKING:
    from embedkit.providers.provider import Vectors


@asynccontextmanager
async def openai_lane(
    engine: ScriptedEngine, *, capacity: int = 1, retry: RetryTable | None = None, ledger: Ledger | None = None
) -> AsyncGenerator[Lane[Connection]]:
    provider = OpenAICompatibleProvider("here", engine.openai_url, "scripted")
    async with _opened(BudgetLane, provider, capacity, retry or openai_compatible_policy(), ledger) as lane:
        yield lane


@asynccontextmanager
async def ollama_lane(
    engine: ScriptedEngine, *, capacity: int = 1, retry: RetryTable | None = None
) -> AsyncGenerator[Lane[Connection]]:
    provider = OllamaProvider("here", engine.base_url, "scripted")
    async with _opened(CapacityLane, provider, capacity, retry or ollama_policy()) as lane:
        yield lane


async def embed(lane: Lane[Connection], texts: Sequence[str], **ticket: Any) -> Vectors:
    """One ticket: a batch, unless it says otherwise."""
    described = Ticket(**{"priority": "batch", "inputs": len(texts), **ticket})
    return await lane.run(lambda connection: connection.embed(texts), described)


@asynccontextmanager
async def _opened(
    kind: type[Lane[Connection]],
    provider: HttpProvider,
    capacity: int,
    retry: RetryTable,
    ledger: Ledger | None = None,
) -> AsyncGenerator[Lane[Connection]]:
    async with trio.open_nursery() as nursery:
        yield kind(
            provider.name,
            nursery=nursery,
            connect=provider.connect,
            capacity=capacity,
            ledger=ledger or Ledger(),
            retry=retry,
        )
        nursery.cancel_scope.cancel()
