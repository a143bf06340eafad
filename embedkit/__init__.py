"""Structured concurrency for embedding work on scarce engines: who may use one, when, and what becomes of the others.

The names below are the library; ``embedkit.testing`` is what others hold their own lanes to. Everything is bound to a
nursery that the caller can see::

    async with embedkit.open_engine(embedkit.load_settings()) as engine:
        found = await engine.embed(["a text"], priority="interactive")
"""

import embedkit.ask  # noqa: F401  # so that `embedkit.ask.ask_all` is there for whoever imports embedkit alone
from embedkit.activity.ledger import Ledger
from embedkit.activity.recorder import Listener
from embedkit.admission.budget_lane import BudgetLane
from embedkit.admission.capacity_lane import CapacityLane
from embedkit.admission.circuit import Circuit, Sheds
from embedkit.admission.fair_order import FairOrder
from embedkit.admission.lane import Lane
from embedkit.admission.notifier import notify_provider_timeout
from embedkit.admission.order import Account, Order
from embedkit.admission.policy import NoRetry, Retry
from embedkit.admission.room import Room
from embedkit.admission.statistics import LaneStatistics, Totals
from embedkit.admission.ticket import Ids, Ticket
from embedkit.admission.waiting import Waiting
from embedkit.clocks import Clocks, attribution
from embedkit.engine import Embeddings, Engine, Indexed, open_engine
from embedkit.errors import (
    AdmissionError,
    ConnectionRefused,
    ContentRefused,
    DeadlineExceeded,
    EmbedkitError,
    LaneClosed,
    LaneFull,
    ModelChanged,
    ModelNotResident,
    ProviderAuthError,
    ProviderBusy,
    ProviderCircuitOpen,
    ProviderError,
    ProviderFailure,
    ProviderTimeout,
    ProviderUnavailable,
    QueueWaitExceeded,
    QuotaExhausted,
    ResponseInvalid,
    SettingsError,
    SourceError,
    SpaceMismatch,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreMoved,
    StoreReadOnly,
    StoreUnreadable,
    TicketWithdrawn,
    TransportClosed,
    UsageError,
    is_provider_timeout,
)
from embedkit.knowledge.model import Chunk, Document, Space
from embedkit.knowledge.searching.search import Hit, Place, Query
from embedkit.knowledge.sources.source import Sighting
from embedkit.knowledge.storing.backup import BackedUp, Restored, back_up, restore
from embedkit.knowledge.storing.checking import Damage, StoreReport, examine_store
from embedkit.knowledge.storing.leases import Lease, Leased
from embedkit.knowledge.storing.prepared import PreparedChunk, PreparedDocument
from embedkit.knowledge.storing.protocol import KnownInputs, Store
from embedkit.knowledge.storing.repairing import repair_store
from embedkit.knowledge.storing.repositories import Last, RepositoryRecord
from embedkit.probing.rules import Verdict
from embedkit.providers.exchange import Exchange, Reply
from embedkit.providers.identity import Identity
from embedkit.providers.provider import Connection, Provider
from embedkit.settings import (
    AskSettings,
    ConsensusSettings,
    EmbeddingSettings,
    EngineSettings,
    Limit,
    McpSettings,
    ModelSettings,
    PanelMember,
    ProbeSettings,
    ProviderDefaults,
    ProviderSettings,
    RepositorySettings,
    Settings,
    StoreSettings,
    SweepSettings,
    TenantSettings,
    load_settings,
)
from embedkit.sweep.outcome import RepositoryReport, SweepReport, Trip
from embedkit.sweep.progress import Progress
from embedkit.sweep.scheduling import Schedule, open_schedule
from embedkit.sweep.sweep import Sweep, open_sweep

__version__ = "0.1.0.dev0"

__all__ = [
    "Account",
    "AdmissionError",
    "AskSettings",
    "BackedUp",
    "BudgetLane",
    "CapacityLane",
    "Chunk",
    "Circuit",
    "Clocks",
    "Connection",
    "ConnectionRefused",
    "ConsensusSettings",
    "ContentRefused",
    "Damage",
    "DeadlineExceeded",
    "Document",
    "EmbeddingSettings",
    "Embeddings",
    "EmbedkitError",
    "Engine",
    "EngineSettings",
    "Exchange",
    "FairOrder",
    "Hit",
    "Identity",
    "Ids",
    "Indexed",
    "KnownInputs",
    "Lane",
    "LaneClosed",
    "LaneFull",
    "LaneStatistics",
    "Last",
    "Lease",
    "Leased",
    "Ledger",
    "Limit",
    "Listener",
    "McpSettings",
    "ModelChanged",
    "ModelNotResident",
    "ModelSettings",
    "NoRetry",
    "Order",
    "PanelMember",
    "Place",
    "PreparedChunk",
    "PreparedDocument",
    "ProbeSettings",
    "Progress",
    "Provider",
    "ProviderAuthError",
    "ProviderBusy",
    "ProviderCircuitOpen",
    "ProviderDefaults",
    "ProviderError",
    "ProviderFailure",
    "ProviderSettings",
    "ProviderTimeout",
    "ProviderUnavailable",
    "Query",
    "QueueWaitExceeded",
    "QuotaExhausted",
    "Reply",
    "RepositoryRecord",
    "RepositoryReport",
    "RepositorySettings",
    "ResponseInvalid",
    "Restored",
    "Retry",
    "Room",
    "Schedule",
    "Settings",
    "SettingsError",
    "Sheds",
    "Sighting",
    "SourceError",
    "Space",
    "SpaceMismatch",
    "Store",
    "StoreError",
    "StoreFull",
    "StoreLocked",
    "StoreMoved",
    "StoreReadOnly",
    "StoreReport",
    "StoreSettings",
    "StoreUnreadable",
    "Sweep",
    "SweepReport",
    "SweepSettings",
    "TenantSettings",
    "Ticket",
    "TicketWithdrawn",
    "Totals",
    "TransportClosed",
    "Trip",
    "UsageError",
    "Verdict",
    "Waiting",
    "attribution",
    "back_up",
    "examine_store",
    "is_provider_timeout",
    "load_settings",
    "notify_provider_timeout",
    "open_engine",
    "open_schedule",
    "open_sweep",
    "repair_store",
    "restore",
]
