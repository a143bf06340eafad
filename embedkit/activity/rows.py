"""What the ledger writes down: a row for every ticket and one for every attempt, in closed vocabularies.

There is no field in which an input text, a vector, a key or an address could stand. Names (lane, service,
role, provider, model, tenant, run) are the caller's own words; everything else is a number or a word of this
file.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import attrs

from embedkit.clocks import ZERO, Clocks

if TYPE_CHECKING:
    from embedkit.activity.report import Tally

UNKNOWN: Final = "unknown"

STAGES: Final = frozenset({"ingestion", "query", "probe", "drain", "ask"})
CLASSES: Final = frozenset({"interactive", "batch", "probe"})
DISPOSITIONS: Final = frozenset({"queued", "not-applicable"})
FAILURE_STAGES: Final = frozenset({"queue", "dispatch", "provider"})
ATTRIBUTIONS: Final = frozenset({"queue", "provider"})
OPEN_OUTCOMES: Final = ("queued", "in-flight")
# `abandoned` is a queued row, and `unsettled` one in flight, whose process or engine ended before it did.
SETTLED_OUTCOMES: Final = (
    "succeeded",
    "failed",
    "withdrawn",
    "shed",
    "aborted",
    "unsettled",
    "abandoned",
)
OUTCOMES: Final = frozenset({*OPEN_OUTCOMES, *SETTLED_OUTCOMES})

# Codes are a vocabulary of their own, open to a user's providers. This keeps prose, and what prose may carry,
# out.
_CODE = re.compile(r"[A-Z][A-Z0-9_]{0,79}")


def word(value: str, vocabulary: frozenset[str]) -> str:
    """``value`` if the vocabulary has it, else ``unknown``."""
    return value if value in vocabulary else UNKNOWN


def code_word(code: str | None) -> str | None:
    """``code`` if it looks like one (``KB_...``), else ``unknown``; ``None`` stays."""
    return code if code is None or _CODE.fullmatch(code) else UNKNOWN


@attrs.define(eq=False)
class AttemptRow:
    """One provider call of a ticket.

    Attributes:
        ticket: ``TicketRow.id``.
        number: From 1.
        started_at: Instant, on the clock of the caller (``trio.current_time()``); as all instants here.
        ended_at: Instant, or ``None`` while it is out.
        code: What it failed with, or ``None``.
        status: HTTP status, where there was one.
        retry_delay: Seconds slept before the next attempt, where there was one.
    """

    ticket: int
    number: int
    started_at: float
    ended_at: float | None = None
    code: str | None = None
    status: int | None = None
    retry_delay: float | None = None


@attrs.define(eq=False)
class TicketRow:
    """One ticket, from before its admission to its settlement.

    Attributes:
        id: Unique within one ledger, ascending.
        lane: The lane's name.
        service: Who asks.
        stage: One of ``STAGES``.
        role: What for.
        provider: The provider's kind or name.
        model: The model's id.
        priority: The class: one of ``CLASSES``.
        tenant: Whose work it is.
        run: The run's id, where it belongs to one.
        weight: In the lane's units.
        inputs: How many texts.
        disposition: ``queued``, or ``not-applicable`` where no lane is in between.
        enqueued_at: Instant of the offer, taken before admission, so that a wait of zero is a measured zero.
        opened_wall: The same moment by the wall clock: seconds since the epoch.
        dispatched_at: Instant, or ``None``.
        settled_at: Instant, or ``None``.
        clocks: The three times; final once it is settled.
        outcome: One of ``OUTCOMES``.
        failure_stage: One of ``FAILURE_STAGES``, for a failure.
        code: What it failed with, or ``None``.
        attribution: ``queue`` or ``provider``, for a failure.
        detached: Whether its caller had left before it was settled.
        attempts: In order.
    """

    id: int
    lane: str
    service: str
    stage: str
    role: str
    provider: str
    model: str
    priority: str
    tenant: str | None
    run: str | None
    weight: int
    inputs: int
    disposition: str
    enqueued_at: float
    opened_wall: float
    # Where the ledger counts it; nobody else's.
    tally: Tally = attrs.field(repr=False)
    attempts: list[AttemptRow] = attrs.field(factory=list)
    dispatched_at: float | None = None
    settled_at: float | None = None
    clocks: Clocks = ZERO
    outcome: str = "queued"
    failure_stage: str | None = None
    code: str | None = None
    attribution: str | None = None
    detached: bool = False

    def wall(self, instant: float) -> float:
        """``instant`` by the wall clock: seconds since the epoch."""
        return self.opened_wall + (instant - self.enqueued_at)
