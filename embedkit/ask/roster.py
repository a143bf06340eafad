"""Who can be asked: from members of a panel to adapters, or to the reason why there is none. Nothing is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import attrs

from embedkit.ask.asking import Asked, failure_of_member
from embedkit.ask.programs import ProgramAdapter
from embedkit.ask.results import Failure
from embedkit.errors import EmbedkitError, SettingsError, UsageError
from embedkit.settings import Limit, PanelMember, ProviderSettings, Settings

if TYPE_CHECKING:
    from embedkit.ask.adapter import Adapter
    from embedkit.ask.http_chat import HttpChats
    from embedkit.engine import Engine

_OWN_LIMIT = 300.0
_LOCAL = frozenset({"openai-compatible", "ollama"})


@lru_cache(maxsize=64)
def _own(model: str | None) -> ProviderSettings:
    # Checking a section takes longer than all the rest of asking who answers at once.
    return ProviderSettings(kind="own", model=model)


class Roster:
    """Adapters for one call of ``ask_all`` or ``consensus``; members of one provider share its endpoint.

    Args:
        engine: Whose settings and keys.
        adapters: By alias: used in place of what the settings would make.
    """

    def __init__(self, engine: Engine, adapters: Mapping[str, Adapter] | None = None) -> None:
        self._engine = engine
        self._given = adapters or {}
        self._over_http: dict[str, HttpChats] = {}

    def place(self, member: PanelMember) -> Asked | Failure:
        """How ``member`` is asked; a failure if it cannot be: its key is unset, its program is not there."""
        try:
            described = self._described(member)
            adapter = self._given.get(member.alias) or self._adapter(member, described)
            return Asked(member, described, adapter, self._shortest(member))
        except EmbedkitError as error:
            failure = failure_of_member(member, member.model, error)
            is_key = isinstance(error, SettingsError) and (error.key or "").endswith(".api_key_env")
            return attrs.evolve(failure, kind="missing-auth") if is_key else failure

    def limit(self, member: PanelMember, timeout: float | None) -> Limit:
        """What bounds one attempt of ``member``."""
        settings = self._engine.settings
        if member.provider in settings.provider_names:
            return settings.timeout_for(member.provider, timeout, model=member.model)
        return Limit(timeout, "the request's timeout") if timeout else Limit(_OWN_LIMIT, "the default of own adapters")

    def _described(self, member: PanelMember) -> ProviderSettings:
        settings = self._engine.settings
        if member.alias in self._given and member.provider not in settings.provider_names:
            return _own(member.model)
        described = settings.provider(member.provider)
        if member.alias not in self._given and not described.traits.chats:
            raise UsageError(f'provider {member.provider} is of kind "{described.kind}", which cannot answer questions')
        return described

    def _shortest(self, member: PanelMember) -> int:
        settings = self._engine.settings
        if member.provider in settings.provider_names:
            return settings.min_answer_chars_for(member.provider, self._engine.environ)
        return settings.ask.min_answer_chars

    def _adapter(self, member: PanelMember, described: ProviderSettings) -> Adapter:
        model = described.model if member.model is None else member.model
        if described.kind in ("codex", "gemini-cli"):
            return ProgramAdapter(
                member.provider,
                described.kind,
                described,
                model,
                self._engine.environ,
                recovery=self._engine.settings.ask.recovery_grace,
                shortest=self._shortest(member),
            )
        if model is None:
            raise UsageError(f"provider {member.provider} names no model; give one")
        # httpx comes with it: a third of all that importing embedkit would cost.
        from embedkit.ask.http_chat import HttpChats

        if member.provider not in self._over_http:
            engine = self._engine
            self._over_http[member.provider] = HttpChats(
                engine.settings, member.provider, engine.environ, engine.show_words
            )
        return self._over_http[member.provider].chat(model)


def chatting_lanes(settings: Settings) -> list[str]:
    """Providers that chat through a lane."""
    return [name for name, described in settings.providers.items() if described.kind in _LOCAL]


def members_of(settings: Settings, wanted: Sequence[str | PanelMember] | None = None) -> list[PanelMember]:
    """The members of a panel: those of the settings, or those that are named.

    Args:
        settings: Their ``ask.panel``; if it is empty, every provider that chats and has a model of its own.
        wanted: Aliases of the panel, names of providers, or members made in code.

    Raises:
        UsageError: There is none of that name, or nobody at all.
    """
    panel = list(settings.ask.panel) or _everybody(settings)
    if wanted is None:
        if not panel:
            raise UsageError("nobody can be asked: add a provider that chats to the settings, or an [[ask.panel]]")
        return panel
    return [_named(settings, panel, who) if isinstance(who, str) else who for who in wanted]


def _everybody(settings: Settings) -> list[PanelMember]:
    chatting = [(name, described) for name, described in settings.providers.items() if described.traits.chats]
    return [
        PanelMember(provider=name)
        for name, described in chatting
        if described.model is not None or not described.traits.speaks_http
    ]


def _named(settings: Settings, panel: Sequence[PanelMember], who: str) -> PanelMember:
    for member in panel:
        if member.alias == who:
            return member
    if who in settings.providers:
        return PanelMember(provider=who)
    known = ", ".join(dict.fromkeys([*(member.alias for member in panel), *settings.providers]))
    raise UsageError(f"there is nobody called {who!r} to ask; there is {known or 'nobody'}")
