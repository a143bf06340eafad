"""What the gateway answers: every path, its dialect, and whether a ticket stands before it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs

Dialect = Literal["openai", "ollama", "embedkit"]


@attrs.frozen
class Queued:
    """A request that takes a slot.

    Attributes:
        dialect: In which it is asked.
        path: Below the engine's root; an OpenAI path begins with ``/v1``.
        inputs: The field that holds its inputs, where it is one whose items are tasks of their own.
        streams: Whether it streams unless it says otherwise.
        may_stream: Whether it can.
        embeds: Whether its answer is vectors.
    """

    dialect: Dialect
    path: str
    inputs: str | None = None
    streams: bool = False
    may_stream: bool = True
    embeds: bool = False


QUEUED: Mapping[str, Queued] = {
    one.path: one
    for one in (
        Queued("openai", "/v1/embeddings", "input", may_stream=False, embeds=True),
        Queued("openai", "/v1/chat/completions"),
        Queued("openai", "/v1/completions", "prompt"),
        Queued("openai", "/v1/responses"),
        Queued("openai", "/v1/rerank", "documents", may_stream=False),
        Queued("ollama", "/api/embed", "input", may_stream=False, embeds=True),
        Queued("ollama", "/api/embeddings", may_stream=False, embeds=True),
        Queued("ollama", "/api/chat", streams=True),
        Queued("ollama", "/api/generate", streams=True),
    )
}
"""By path; each is a POST."""

ADMINISTRATION = frozenset({"/api/pull", "/api/push", "/api/create", "/api/copy", "/api/delete"})
"""Ollama's paths that change what an engine has."""

_MODELS = "/v1/models"


def dialect_of(path: str) -> Dialect:
    """In whose words an error about ``path`` is told."""
    if path.startswith("/api/"):
        return "ollama"
    return "openai" if path.startswith("/v1/") or path == "/v1" else "embedkit"


def is_ours(path: str) -> bool:
    """Whether a browser must not be made to ask for ``path`` by somebody else's page."""
    return path in ("/", "/metrics") or path.startswith("/embedkit/")


def model_of(path: str) -> str | None:
    """The model whose description is asked for: ``/v1/models/{id}``; ids may hold slashes."""
    return path[len(_MODELS) + 1 :] or None if path.startswith(_MODELS + "/") else None
