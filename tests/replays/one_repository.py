"""One repository, a sweep, a lane, HTTP and a scripted engine: the whole way from a file to a vector, for replays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from embedkit.engine import open_engine
from embedkit.settings import (
    EmbeddingSettings,
    ProviderSettings,
    RepositorySettings,
    Settings,
    StoreSettings,
    SweepSettings,
    TenantSettings,
)
from embedkit.sweep.outcome import RepositoryReport
from embedkit.sweep.sweep import open_sweep
from embedkit.testing.scripted_engine import ScriptedEngine


def one_repository(
    folder: Path,
    scripted: ScriptedEngine,
    texts: Mapping[str, str],
    *,
    batch: int = 2,
    kind: str = "ollama",
    **provider: Any,
) -> Settings:
    """Settings: one tenant with one repository of these files, on a provider that is the scripted engine.

    Args:
        folder: Repository and store go here.
        scripted: The engine.
        texts: By path.
        batch: Inputs a ticket.
        kind: The provider's.
        provider: More of its settings.
    """
    root = folder / "repository"
    for path, text in texts.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    url = scripted.base_url if kind == "ollama" else scripted.openai_url
    described = ProviderSettings(kind=kind, base_url=url, model="scripted", **provider)  # type: ignore[arg-type]  # a kind's name
    return Settings(
        providers={"box": described},
        embedding=EmbeddingSettings(provider="box", batch=batch),
        store=StoreSettings(path=folder / "store.sqlite3"),
        sweep=SweepSettings(slice=86_400.0),
        tenants=(TenantSettings(name="acme", repositories=(RepositorySettings(name="one", path=root),)),),
    )


async def sync(settings: Settings) -> RepositoryReport:
    """One sweep in an engine of its own, as a process would make it; the repository's report."""
    async with open_engine(settings, reserve=0) as engine, open_sweep(engine, all=True) as sweep:
        (report,) = (await sweep.run()).repositories
    return report


def numbered(count: int) -> dict[str, str]:
    """``count`` small files, no two alike, a chunk each."""
    return {f"{number:03}.txt": f"text number {number}\n" for number in range(count)}
