"""``inspect_deployment``: what a server runs on, and what is missing. It reads, and calls nobody."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from typing import Any

from embedkit.admission.snapshot import snapshot_of
from embedkit.ask import panel
from embedkit.doctor import Subject, examine
from embedkit.engine import Engine
from embedkit.errors import UsageError
from embedkit.settings import ProviderSettings, redacted_url


async def deployment(engine: Engine) -> dict[str, Any]:
    """Version, settings, providers, lanes, panel, and the doctor's findings. No key is among them.

    Cancellation:
        Nothing was changed.
    """
    settings = engine.settings
    examined = await examine(Subject(settings, engine.environ))
    return {
        "version": version("trio-embedkit"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "pid": os.getpid(),
        "settings": None if settings.file is None else str(settings.file),
        "store": str(settings.store.path),
        "embeds": settings.embedding.provider,
        "providers": [_provider(engine, name, described) for name, described in settings.providers.items()],
        "lanes": [{"provider": lane.name, **snapshot_of(lane.statistics()).as_json()} for lane in engine.lanes],
        "panel": _panel(engine),
        "mcp_timeout": settings.mcp.timeout,
        "doctor": examined.as_json(),
    }


def _provider(engine: Engine, name: str, described: ProviderSettings) -> dict[str, Any]:
    limit = engine.settings.timeout_for(name)
    return {
        "name": name,
        "kind": described.kind,
        "model": described.model,
        "base_url": None if described.base_url is None else redacted_url(described.base_url),
        "embeds": described.traits.embeds,
        "chats": described.traits.chats,
        "timeout": limit.seconds,
        "timeout_from": limit.rung,
    }


def _panel(engine: Engine) -> dict[str, Any]:
    try:
        view = panel(engine)
    except UsageError as error:
        return {"asked": [], "omitted": [], "unavailable": {}, "reason": str(error)}
    return {
        "asked": [member.alias for member in view.asked],
        "omitted": list(view.omitted),
        "unavailable": dict(view.unavailable),
        "reason": None,
    }
