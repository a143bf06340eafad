"""From settings to providers, and to the kind of lane that each needs.

Providers that speak HTTP are imported when one is made: httpx and they are a third of all that ``import embedkit``
would cost, and the embedded model needs none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from embedkit.admission.budget_lane import BudgetLane
from embedkit.admission.capacity_lane import CapacityLane
from embedkit.admission.lane import Lane
from embedkit.admission.policy import NoRetry, Retry
from embedkit.errors import UsageError
from embedkit.providers.local import LocalProvider
from embedkit.providers.wire import Wire

if TYPE_CHECKING:
    from embedkit.providers.guarded import GuardedConnection
    from embedkit.providers.provider import Provider
    from embedkit.settings import ProviderSettings, Settings

# Which settlement a kind declares; ``None``: it is remote and unqueued, and no lane of ours governs it.
_LANES: Mapping[str, type[Lane[GuardedConnection]] | None] = {
    "local": CapacityLane,
    "ollama": CapacityLane,
    "openai-compatible": BudgetLane,
    "gemini": None,
    # A slot is free when the call has ended, whatever becomes of its caller: right for what runs in this process, and
    # for an engine that goes on computing.
    "own": CapacityLane,
}


def make_provider(
    settings: Settings,
    name: str,
    environ: Mapping[str, str],
    dimension: int | None,
    show_words: Callable[[str], None] | None = None,
) -> Provider:
    """The provider that the settings describe; nothing is sent or loaded yet.

    Args:
        settings: What is in force.
        name: Which provider.
        environ: Where keys are.
        dimension: What the store has already, where there is one.
        show_words: Given an engine's own words about a refusal, less the keys.

    Raises:
        UsageError: No such provider, it does not embed, or its key is not set.
    """
    described = settings.provider(name)
    if described.kind == "local":
        return LocalProvider(name, threads=described.capacity)
    if described.kind == "own":
        raise UsageError(f'provider {name} is of kind "own": give it to open_engine(providers={{"{name}": ...}})')
    if not described.traits.embeds:
        raise UsageError(
            f"provider {name} ({described.kind}) is not one that embeds here; name another in embedding.provider"
        )
    api_key = settings.api_key(name, environ)
    shared: dict[str, Any] = {
        "dimensions": described.dimensions,
        "dimension": dimension,
        "preflight": described.preflight,
        "wire": _wire(settings, name, environ),
        "show_words": show_words,
    }
    base_url, model = _given(described.base_url), _given(described.model)
    match described.kind:
        case "openai-compatible":
            from embedkit.providers.openai_compatible import OpenAICompatibleProvider

            return OpenAICompatibleProvider(name, base_url, model, api_key=api_key, **shared)
        case "ollama":
            from embedkit.providers.ollama import OllamaProvider

            return OllamaProvider(
                name,
                base_url,
                model,
                api_key=api_key,
                num_ctx=described.num_ctx,
                keep_alive=described.keep_alive,
                options=described.options,
                **shared,
            )
        case "gemini":
            from embedkit.providers.gemini import GeminiProvider

            return GeminiProvider(name, model, _given(api_key), base_url=base_url, **shared)
    raise AssertionError(f"the kind {described.kind} embeds, and nobody here makes it")


def _wire(settings: Settings, name: str, environ: Mapping[str, str]) -> Wire:
    described = settings.provider(name)
    headers, of_headers = settings.added_to_requests(name, "headers", environ)
    query, of_query = settings.added_to_requests(name, "query", environ)
    return Wire(
        headers=headers,
        query=query,
        body=described.body or {},
        query_body=described.query_body or {},
        secrets=(*of_headers, *of_query),
        ca_file=described.ca_file,
        proxy=settings.proxy_for(name, environ),
    )


def lane_class(described: ProviderSettings) -> type[Lane[GuardedConnection]] | None:
    """Which settlement the provider's kind declares; ``None`` where no lane of ours governs it."""
    return _LANES.get(described.kind)


def make_retry(described: ProviderSettings) -> Retry:
    """Which failures of the provider are followed by another attempt."""
    if described.kind == "local":
        return NoRetry()
    from embedkit.providers.retry import ollama_policy, openai_compatible_policy, unqueued_policy

    policies = {"openai-compatible": openai_compatible_policy, "ollama": ollama_policy, "own": ollama_policy}
    policy = policies.get(described.kind, unqueued_policy)
    return policy(max_retry_after=described.max_retry_after, over_cap=described.over_cap)


def _given(value: str | None) -> str:
    assert value is not None  # the settings' own validation
    return value
