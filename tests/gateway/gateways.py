"""A gateway before a scripted engine, and clients of it, over real sockets."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx
import trio

from embedkit.engine import Engine, open_engine
from embedkit.gateway.serving import Gateway, open_gateway
from embedkit.settings import EmbeddingSettings, GatewaySettings, Place, ProviderSettings, Settings, StoreSettings
from embedkit.testing import ScriptedEngine, open_scripted_engine

ANY = (Place("127.0.0.1", 0),)


@attrs.frozen
class House:
    """A gateway, what stands behind it, and a client."""

    gateway: Gateway
    engine: Engine
    scripted: ScriptedEngine
    client: httpx.AsyncClient

    @property
    def lane(self) -> Any:
        return self.engine.lane("box")

    @property
    def totals(self) -> Any:
        return self.lane.statistics().totals

    def body(self, *texts: str, model: str = "scripted", **more: Any) -> dict[str, Any]:
        return {"model": model, "input": list(texts), **more}

    async def embed(self, *texts: str, headers: Mapping[str, str] | None = None, **more: Any) -> httpx.Response:
        return await self.client.post("/v1/embeddings", json=self.body(*texts, **more), headers=headers)

    async def settled(self) -> None:
        """Wait until nobody is here any more, and check that all are accounted for."""
        here = self.gateway.shared.journal.here
        await wait_until(lambda: not list(here()) and not self.totals.in_flight and not self.totals.queued)
        self.check_balanced()

    def check_balanced(self) -> None:
        totals = self.totals
        assert totals.offered == totals.accounted
        assert (totals.queued, totals.in_flight) == (0, 0)
        assert list(self.gateway.shared.journal.here()) == []


def settings_for(
    scripted: ScriptedEngine, kind: str = "openai-compatible", *, gateway: GatewaySettings | None = None, **more: Any
) -> Settings:
    base = scripted.base_url if kind == "ollama" else scripted.openai_url
    box = ProviderSettings(kind=kind, base_url=base, model="scripted", **more)  # type: ignore[arg-type]
    return Settings(
        providers={"box": box},
        embedding=EmbeddingSettings(provider="box"),
        store=StoreSettings(path=Path("/nonexistent/never-opened.sqlite3")),
        gateway=GatewaySettings(listen=ANY) if gateway is None else gateway,
    )


@asynccontextmanager
async def open_house(
    kind: str = "openai-compatible",
    *,
    gateway: GatewaySettings | None = None,
    provider: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    settings: Settings | None = None,
    **script: Any,
) -> AsyncGenerator[House]:
    """A gateway before one scripted engine, whose provider is called ``box``."""
    async with open_scripted_engine(**script) as scripted:
        chosen = settings or settings_for(scripted, kind, gateway=gateway, **(provider or {}))
        async with (
            open_engine(chosen, environ=environ or {}) as engine,
            open_gateway(engine) as opened,
            httpx.AsyncClient(base_url=opened.url, timeout=30.0, trust_env=False) as client,
        ):
            yield House(opened, engine, scripted, client)


async def wait_until(condition: Any) -> None:
    """Wait until ``condition`` holds, which tasks of this very process bring about."""
    with trio.fail_after(10):
        while not condition():  # noqa: ASYNC110  # a lane tells nobody of its totals
            await trio.sleep(0.001)


async def exchange(port: int, *parts: bytes) -> bytes:
    """Send ``parts``, and give all that comes back until the gateway closes."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        for part in parts:
            await stream.send_all(part)
        found = b""
        with trio.fail_after(10):
            async for piece in stream:
                found += piece
        return found
