"""What must hold between the tables of the settings: names that exist, and names that are given once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from embedkit.settings.fields import Fault, KeyPath
from embedkit.settings.kinds import SERVED_KINDS
from embedkit.settings.redaction import shown

if TYPE_CHECKING:
    from embedkit.settings.model import Settings


def faults_across(settings: Settings) -> Iterator[Fault]:
    """Everything that is wrong between tables which are each right in themselves."""
    yield from _provider_names(settings)
    yield from _embedding(settings)
    yield from _twice((("tenants", index, "name"), tenant.name) for index, tenant in enumerate(settings.tenants))
    for index, tenant in enumerate(settings.tenants):
        at: KeyPath = ("tenants", index, "repositories")
        yield from _twice(
            ((*at, place, "name"), repository.name) for place, repository in enumerate(tenant.repositories)
        )
    yield from _panel(settings)
    yield from _arbiter(settings)
    yield from _gateway(settings)


def _provider_names(settings: Settings) -> Iterator[Fault]:
    for name in settings.providers:
        if name == "defaults":
            mend = "call the provider something else, or use provider_defaults=ProviderDefaults(timeout=...)"
            yield Fault(("providers", name), f"the name is reserved for the timeout ladder; {mend}")
        elif not (name.strip() and name.isprintable()):
            yield Fault(("providers", name), f"{shown(name)} is no name in one line; give the provider another")


def _embedding(settings: Settings) -> Iterator[Fault]:
    name = settings.embedding.provider
    yield from _unfit(settings, ("embedding", "provider"), name, "embeds", "embed")


def _unfit(settings: Settings, at: KeyPath, name: str, trait: str, verb: str) -> Iterator[Fault]:
    """A fault if provider ``name`` is not there, or is of a kind that cannot ``verb``."""
    if name not in settings.provider_names:
        known = ", ".join(settings.provider_names)
        yield Fault(at, f"{shown(name)} is no provider; use one of: {known}; or add a section [providers.<name>]")
        return
    provider = settings.provider(name)
    if not getattr(provider.traits, trait):
        yield Fault(at, f'{shown(name)} is of kind "{provider.kind}", which cannot {verb}; use a provider that can')


def _twice(names: Iterable[tuple[KeyPath, str]]) -> Iterator[Fault]:
    seen: set[str] = set()
    for at, name in names:
        if name in seen:
            yield Fault(at, f"{shown(name)} is there twice; names are unique: give the second another")
        seen.add(name)


def _panel(settings: Settings) -> Iterator[Fault]:
    panel = settings.ask.panel
    for index, member in enumerate(panel):
        at: KeyPath = ("ask", "panel", index)
        unfit = list(_unfit(settings, (*at, "provider"), member.provider, "chats", "answer questions"))
        yield from unfit
        if not unfit and _needs_model(settings, member.provider) and member.model is None:
            message = f'missing; provider {shown(member.provider)} names none: write for example model = "maker/model"'
            yield Fault((*at, "model"), message)
    yield from _twice((("ask", "panel", index, "alias"), member.alias) for index, member in enumerate(panel))


def _needs_model(settings: Settings, name: str) -> bool:
    provider = settings.provider(name)
    return provider.kind == "openrouter" and provider.model is None


def _arbiter(settings: Settings) -> Iterator[Fault]:
    arbiter = settings.consensus.arbiter
    if arbiter is not None and arbiter not in {member.alias for member in settings.ask.panel}:
        yield from _unfit(settings, ("consensus", "arbiter"), arbiter, "chats", "answer questions")


def _gateway(settings: Settings) -> Iterator[Fault]:
    gateway = settings.gateway
    yield from _twice((("gateway", "keys", index, "name"), one.name) for index, one in enumerate(gateway.keys))
    for model, name in gateway.models.items():
        at: KeyPath = ("gateway", "models", model)
        unfit = list(_unfit(settings, at, name, "embeds", "embed"))
        yield from unfit
        if not unfit and settings.provider(name).kind not in SERVED_KINDS:
            kinds = ", ".join(f'"{kind}"' for kind in SERVED_KINDS)
            kind = settings.provider(name).kind
            yield Fault(at, f'provider {shown(name)} is of kind "{kind}"; the gateway serves kinds {kinds}')
