"""All settings together: what ``embedkit.toml`` can say, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import attrs

from embedkit.errors import UsageError
from embedkit.settings import rules
from embedkit.settings.checks import faults_across
from embedkit.settings.environment import filled, key_from, proxy_from, shortest_answer, upload_limit
from embedkit.settings.fields import Fault, KeyRefused, as_tuple, checked, instances, refuse, required, tables, written
from embedkit.settings.gateway_tables import GatewaySettings
from embedkit.settings.ladder import Limit, Warn, climb, usable, warn_on_stderr
from embedkit.settings.redaction import kind_of, shown
from embedkit.settings.tables import (
    AskSettings,
    ConsensusSettings,
    EmbeddingSettings,
    EngineSettings,
    McpSettings,
    ModelSettings,
    ProbeSettings,
    ProviderDefaults,
    ProviderSettings,
    RepositorySettings,
    StoreSettings,
    SweepSettings,
    TenantSettings,
)


def _with_usable_rungs(path: str, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """A read-only copy in which no ``timeout`` is anything but a limit or ``None``."""
    if not isinstance(settings, Mapping):
        return settings  # the validator refuses it
    return MappingProxyType({name: _with_usable_rung((path, name), item) for name, item in settings.items()})


def _with_usable_rung(path: tuple[str, ...], settings: Any) -> Any:
    value = getattr(settings, "timeout", None)
    limit = usable(value, written((*path, "timeout")), warn_on_stderr)
    return settings if limit == value else attrs.evolve(settings, timeout=limit)


def _providers(value: Mapping[str, ProviderSettings]) -> Mapping[str, ProviderSettings]:
    return _with_usable_rungs("providers", value)


def _models(value: Mapping[str, ModelSettings]) -> Mapping[str, ModelSettings]:
    return _with_usable_rungs("models", value)


def _defaults(value: ProviderDefaults) -> ProviderDefaults:
    defaults: ProviderDefaults = _with_usable_rung(("providers", "defaults"), value)
    return defaults


def _are_defaults(settings: Settings, attribute: object, value: object) -> None:
    if not isinstance(value, ProviderDefaults):
        message = f"{kind_of(value)} is not settings; use provider_defaults=ProviderDefaults(...)"
        raise KeyRefused("", [Fault(("providers", "defaults"), message)])


@cache
def _local() -> ProviderSettings:
    # Asked for with every ticket, and always the same.
    return ProviderSettings(kind="local")


@attrs.frozen(kw_only=True)
class Settings:
    """Everything that ``embedkit.toml`` can say, checked.

    Attributes:
        version: Of the file's format.
        provider_defaults: The table ``providers.defaults``.
        file: The file they were read from; ``None`` for settings made in code or without a file.
        origins: Where each key that was set stands: ``{"providers.box.timeout": "embedkit.toml:9"}``; ``None`` for
            settings made in code.

    Raises:
        SettingsError: From the constructor, naming the key, the value and the mend.
    """

    section: ClassVar[str] = ""

    version: int = attrs.field(
        default=1, validator=checked, metadata=required(rules.VERSION, "of the file's format; another value is refused")
    )
    providers: Mapping[str, ProviderSettings] = attrs.field(
        factory=dict, converter=_providers, validator=instances, metadata=tables(ProviderSettings, "table")
    )
    provider_defaults: ProviderDefaults = attrs.field(
        factory=ProviderDefaults, converter=_defaults, validator=_are_defaults
    )
    models: Mapping[str, ModelSettings] = attrs.field(
        factory=dict, converter=_models, validator=instances, metadata=tables(ModelSettings, "table")
    )
    embedding: EmbeddingSettings = attrs.field(
        factory=EmbeddingSettings, validator=instances, metadata=tables(EmbeddingSettings)
    )
    store: StoreSettings = attrs.field(factory=StoreSettings, validator=instances, metadata=tables(StoreSettings))
    sweep: SweepSettings = attrs.field(factory=SweepSettings, validator=instances, metadata=tables(SweepSettings))
    probe: ProbeSettings = attrs.field(factory=ProbeSettings, validator=instances, metadata=tables(ProbeSettings))
    engine: EngineSettings = attrs.field(factory=EngineSettings, validator=instances, metadata=tables(EngineSettings))
    tenants: tuple[TenantSettings, ...] = attrs.field(
        default=(), converter=as_tuple, validator=instances, metadata=tables(TenantSettings, "array")
    )
    ask: AskSettings = attrs.field(factory=AskSettings, validator=instances, metadata=tables(AskSettings))
    consensus: ConsensusSettings = attrs.field(
        factory=ConsensusSettings, validator=instances, metadata=tables(ConsensusSettings)
    )
    mcp: McpSettings = attrs.field(factory=McpSettings, validator=instances, metadata=tables(McpSettings))
    gateway: GatewaySettings = attrs.field(
        factory=GatewaySettings, validator=instances, metadata=tables(GatewaySettings)
    )
    file: Path | None = attrs.field(default=None, eq=False)
    origins: Mapping[str, str] | None = attrs.field(default=None, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        refuse(self, lambda: faults_across(self))

    @property
    def provider_names(self) -> tuple[str, ...]:
        """Every name that ``provider`` knows, sorted."""
        return tuple(sorted({*self.providers, "local"}))

    def provider(self, name: str | None = None) -> ProviderSettings:
        """The settings of one provider; without a name, of the one that embeds. ``local`` needs no section.

        Raises:
            UsageError: There is none of that name; says which there are.
        """
        name = self.embedding.provider if name is None else name
        if (found := self.providers.get(name)) is not None:
            return found
        if name == "local":
            return _local()
        raise UsageError(f"provider {shown(name)} is not known; known: {', '.join(self.provider_names)}")

    def batch_for(self, name: str | None = None) -> int:
        """How many inputs the indexer puts into one call of provider ``name``."""
        provider = self.provider(name)
        return self.embedding.batch if self.embedding.batch is not None else provider.traits.batch

    def reserve_for(self, name: str | None = None, *, default: int = 1) -> int:
        """How many slots batch work leaves free. The ``sync`` command, which nobody waits for, gives 0 as default."""
        reserve = self.provider(name).reserve
        return default if reserve is None else reserve

    def cadence_for(self, repository: RepositorySettings) -> float:
        """Seconds until ``repository`` is due again after a complete run."""
        return self.sweep.cadence if repository.cadence is None else repository.cadence

    def timeout_for(
        self,
        name: str | None = None,
        request: float | None = None,
        *,
        model: str | None = None,
        warn: Warn = warn_on_stderr,
    ) -> Limit:
        """What bounds one attempt, and which rung of the ladder said so.

        Args:
            name: The provider; without one, the one that embeds.
            request: The caller's own limit in seconds; one that is no positive finite number is dropped with a
                warning.
            model: The model, where it is not the provider's own.
            warn: Told in one line about a request that was dropped.

        Raises:
            UsageError: No such provider.
        """
        name = self.embedding.provider if name is None else name
        return climb(self, name, self.provider(name), request=request, model=model, warn=warn)

    def api_key(self, name: str | None, environ: Mapping[str, str]) -> str | None:
        """The key of a provider from ``environ``; ``None`` where its settings name no variable.

        Raises:
            UsageError: No such provider.
            SettingsError: The variable is unset, blank, or holds what no key holds.
        """
        return key_from(self, self.embedding.provider if name is None else name, environ)

    def added_to_requests(
        self, name: str, what: Literal["headers", "query"], environ: Mapping[str, str]
    ) -> tuple[dict[str, str], tuple[str, ...]]:
        """What a provider adds to each request, and which values of it came from variables; see ``environment.filled``.

        Raises:
            SettingsError: A variable that is named is unset.
        """
        return filled(self, name, what, environ)

    def proxy_for(self, name: str, environ: Mapping[str, str]) -> str | None:
        """The address of the proxy before a provider; see ``environment.proxy_from``."""
        return proxy_from(self, name, environ)

    def min_answer_chars_for(self, name: str, environ: Mapping[str, str]) -> int:
        """Characters below which an answer of provider ``name`` is suspected; see ``environment.shortest_answer``."""
        return shortest_answer(self, name, environ)

    def upload_timeout(self, environ: Mapping[str, str]) -> Limit | None:
        """What one upload may take, ``None`` for no bound; see ``environment.upload_limit``."""
        return upload_limit(self, environ)

    def overridden(
        self, *, provider: str | None = None, store: Path | None = None, store_origin: str = "--store"
    ) -> Settings:
        """These settings with what ``--provider`` and ``--store`` say.

        Args:
            provider: The provider that embeds.
            store: The knowledge base.
            store_origin: Where ``store`` was said.

        Raises:
            UsageError: No such provider, or one that cannot embed.
        """
        changed = self
        if provider is not None:
            self.provider(provider)
            embedding = attrs.evolve(self.embedding, provider=provider)
            changed = attrs.evolve(
                changed, embedding=embedding, origins=self._origins("embedding.provider", "--provider")
            )
        if store is not None:
            kept = attrs.evolve(self.store, path=store)
            changed = attrs.evolve(changed, store=kept, origins=changed._origins("store.path", store_origin))
        return changed

    def _origins(self, key: str, origin: str) -> Mapping[str, str] | None:
        return None if self.origins is None else {**self.origins, key: origin}

    def place_of(self, key: str) -> tuple[str | None, int | None]:
        """File and line of a key that was set; ``(None, None)`` for one that was not set in a file."""
        file, _, line = (self.origins or {}).get(key, "").rpartition(":")
        return (file, int(line)) if file and line.isdigit() else (None, None)
