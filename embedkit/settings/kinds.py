"""The kinds of provider that settings may name, and what each brings along so that a file need not say it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import attrs

KindName = Literal["local", "openai-compatible", "ollama", "gemini", "own", "codex", "gemini-cli", "grok", "openrouter"]
AnswerFloor = Literal["length", "intent", "off"]


@attrs.frozen(kw_only=True, eq=False)
class Kind:
    """What a kind of provider is able to do, needs and defaults to.

    Attributes:
        embeds: It can turn texts into vectors.
        chats: It can be asked a question.
        speaks_http: It has a ``base_url``.
        needs: Keys that its section must have.
        base_url: Where it is, if the file does not say.
        api_key_env: The environment variable of its key, if the file does not say.
        timeout: The ladder's last rung, in seconds.
        batch: How many inputs the indexer puts into a call, if the file does not say.
        answer_floor: How it tells an answer from an announcement, if the file does not say.
    """

    embeds: bool = False
    chats: bool = False
    speaks_http: bool = True
    needs: tuple[str, ...] = ()
    base_url: str | None = None
    api_key_env: str | None = None
    timeout: float = 300.0
    batch: int = 5
    answer_floor: AnswerFloor = "intent"


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        # A call of 128 takes some 20 ms, which is as long as it keeps others waiting. With 64, hops between threads and
        # transactions make a sync a seventh longer.
        "local": Kind(embeds=True, speaks_http=False, batch=128),
        "openai-compatible": Kind(embeds=True, chats=True, needs=("base_url", "model")),
        "ollama": Kind(embeds=True, chats=True, needs=("model",), base_url="http://127.0.0.1:11434"),
        "gemini": Kind(
            embeds=True,
            needs=("model",),
            base_url="https://generativelanguage.googleapis.com/v1beta",
            api_key_env="GEMINI_API_KEY",
        ),
        # Given in code: `open_engine(providers=...)`.
        "own": Kind(embeds=True, speaks_http=False),
        "codex": Kind(chats=True, speaks_http=False, timeout=600.0),
        "gemini-cli": Kind(chats=True, speaks_http=False, answer_floor="length"),
        "grok": Kind(
            chats=True,
            needs=("model",),
            base_url="https://api.x.ai/v1",
            api_key_env="XAI_API_KEY",
            timeout=180.0,
        ),
        # Its models are named by the panel's members: one section serves many aliases.
        "openrouter": Kind(
            chats=True,
            base_url="https://openrouter.ai/api/v1",
            api_key_env="OPENROUTER_API_KEY",
            timeout=180.0,
        ),
    }
)


SERVED_KINDS = ("openai-compatible", "ollama")
"""What a gateway can stand before: engines that speak one of its dialects over HTTP."""

_OVER_HTTP = ("base_url", "headers", "query", "body", "query_body", "ca_file", "proxy")
_OF_OLLAMA = ("num_ctx", "keep_alive", "options")


def without_use(name: str) -> Mapping[str, str]:
    """The keys that a section of this kind may not have, since nothing would come of them, each with the reason."""
    kind = KINDS[name]
    unused: dict[str, str] = {}
    if not kind.speaks_http:
        unused |= dict.fromkeys(_OVER_HTTP, f'kind "{name}" is not spoken to over HTTP')
    if not (kind.speaks_http and kind.chats):
        unused["stream"] = f'kind "{name}" streams no answers'
    if name == "local":
        unused["api_key_env"] = 'kind "local" needs no key'
    if name != "ollama":
        unused |= dict.fromkeys(_OF_OLLAMA, 'only kind "ollama" is sent it')
    return unused


def cores() -> int:
    """How many processor cores this process may use; at least 1."""
    if sys.version_info >= (3, 13):
        return os.process_cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1
