"""From settings to providers, and to the kind of lane that each needs.

Providers that speak HTTP are imported when one is made: httpx and they are a third of all that ``import embedkit``
would cost, and the embedded model needs none of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from embedkit.admission.budget_lane import BudgetLane
from embedkit.admission.capacity_lane import CapacityLane
from embedkit.admission.lane import Lane
from embedkit.admission.policy import NoRetry, Retry
from embedkit.errors import UsageError
from embedkit.providers.local import LocalProvider

if TYPE_CHECKING:
    from embedkit.providers.provider import Connection, Provider
    from embedkit.settings import ProviderSettings, Settings

# Gemini is remote and unqueued: it has no lane.
_LANES: Mapping[str, type[Lane[Connection]]] = {
    "local": CapacityLane,
    "ollama": CapacityLane,
    "openai-compatible": BudgetLane,
}


def make_provider(settings: Settings, name: str, environ: Mapping[str, str], dimension: int | None) -> Provider:
    """The provider that the settings describe; nothing is sent or loaded yet.

    Args:
        settings: What is in force.
        name: Which provider.
        environ: Where keys are.
        dimension: What the store has already, where there is one.

    Raises:
        UsageError: No such provider, it does not embed, or its key is not set.
    """
    described = settings.provider(name)
    match described.kind:
        case "local":
            return LocalProvider(name, threads=described.capacity)
        case "openai-compatible":
            from embedkit.providers.openai_compatible import OpenAICompatibleProvider

            return OpenAICompatibleProvider(
                name,
                _given(described.base_url),
                _given(described.model),
                api_key=settings.api_key(name, environ),
                dimensions=described.dimensions,
                dimension=dimension,
            )
        case "ollama":
            from embedkit.providers.ollama import OllamaProvider

            return OllamaProvider(
                name,
                _given(described.base_url),
                _given(described.model),
                num_ctx=described.num_ctx,
                keep_alive=described.keep_alive,
                dimensions=described.dimensions,
                dimension=dimension,
            )
        case "gemini":
            from embedkit.providers.gemini import GeminiProvider

            return GeminiProvider(
                name,
                _given(described.model),
                _given(settings.api_key(name, environ)),
                base_url=_given(described.base_url),
                dimensions=described.dimensions,
                dimension=dimension,
            )
    raise UsageError(
        f"provider {name} ({described.kind}) is not one that embeds here; name another in embedding.provider"
    )


def lane_class(described: ProviderSettings) -> type[Lane[Connection]] | None:
    """Which settlement the provider's kind declares; ``None`` where no lane of ours governs it."""
    return _LANES.get(described.kind)


def max_inputs(described: ProviderSettings) -> int | None:
    """Texts that one request may carry, where the provider's kind has such a bound."""
    if described.kind == "gemini":
        from embedkit.providers.gemini import GeminiProvider

        return GeminiProvider.max_inputs
    return None


def make_retry(described: ProviderSettings) -> Retry:
    """Which failures of the provider are followed by another attempt."""
    if described.kind == "local":
        return NoRetry()
    from embedkit.providers.retry import ollama_policy, openai_compatible_policy, unqueued_policy

    policy = {"openai-compatible": openai_compatible_policy, "ollama": ollama_policy}.get(
        described.kind, unqueued_policy
    )
    return policy(max_retry_after=described.max_retry_after, over_cap=described.over_cap)


def _given(value: str | None) -> str:
    assert value is not None  # the settings' own validation
    return value
