"""Settings: ``embedkit.toml`` or values made in code, checked, with the timeout ladder resolved in one place."""

from embedkit.settings.gateway_tables import GatewayKeySettings, GatewaySettings, Place
from embedkit.settings.kinds import KINDS, Kind
from embedkit.settings.ladder import Limit, warn_on_stderr
from embedkit.settings.load import FILE_NAME, load_settings
from embedkit.settings.model import Settings
from embedkit.settings.redaction import redacted_url
from embedkit.settings.tables import (
    AskSettings,
    ConsensusSettings,
    EmbeddingSettings,
    EngineSettings,
    McpSettings,
    ModelSettings,
    PanelMember,
    ProbeSettings,
    ProviderDefaults,
    ProviderSettings,
    RepositorySettings,
    StoreSettings,
    SweepSettings,
    TenantSettings,
)

__all__ = [
    "FILE_NAME",
    "KINDS",
    "AskSettings",
    "ConsensusSettings",
    "EmbeddingSettings",
    "EngineSettings",
    "GatewayKeySettings",
    "GatewaySettings",
    "Kind",
    "Limit",
    "McpSettings",
    "ModelSettings",
    "PanelMember",
    "Place",
    "ProbeSettings",
    "ProviderDefaults",
    "ProviderSettings",
    "RepositorySettings",
    "Settings",
    "StoreSettings",
    "SweepSettings",
    "TenantSettings",
    "load_settings",
    "redacted_url",
    "warn_on_stderr",
]
