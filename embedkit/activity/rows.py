"""The ledger's rows: one for every ticket and one for every attempt, in closed vocabularies.

No field holds an input text, a vector, a key or an address. Names (lane, service, role, provider, model, tenant, run)
are chosen by the caller; everything else is a number or a word from a vocabulary in this file.

Any of these values can be any object: a tenant that is a UUID, an exception's ``status`` that is a response with a key
in it. ``name``, ``word``, ``code_word`` and ``http_status`` turn any object into a value that is safe to keep. They
never raise, and they call no method of the object.
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
# `abandoned` was queued, and `unsettled` was in flight, when the process or the engine ended.
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

# A name that is longer than this many characters is cut.
NAME_LIMIT: Final = 1_000

# Codes are a vocabulary that a user's providers may extend. The pattern keeps out prose, and what prose may contain.
_CODE = re.compile(r"[A-Z][A-Z0-9_]{0,79}")


def name(value: object) -> str:
    """``value`` as a name that can be stored and printed anywhere.

    Strings stay, UUIDs and whole numbers are written out, and any other object is ``unknown``: its text may be
    anything. Lone surrogates and NUL, which files and terminals refuse or truncate at, are written as escapes.
    """
    text = _text(value)
    if text is None:
        text = _written_out(value)
    if len(text) > NAME_LIMIT:
        text = text[: NAME_LIMIT - 1] + "…"
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")


def name_or_none(value: object) -> str | None:
    """As ``name``; ``None`` stays."""
    return None if value is None else name(value)


def word(value: object, vocabulary: frozenset[str]) -> str:
    """``value`` if it is in the vocabulary, else ``unknown``."""
    text = _text(value)
    return text if text is not None and text in vocabulary else UNKNOWN


def code_word(code: object) -> str | None:
    """``code`` if it looks like a code (``KB_...``), else ``unknown``; ``None`` stays."""
    if code is None:
        return None
    text = _text(code)
    return text if text is not None and _CODE.fullmatch(text) else UNKNOWN


def http_status(value: object) -> int | None:
    """``value`` if it is a whole number from 100 to 599, else ``None``.

    An exception's ``status`` is whatever its maker put there. Stored as it is, an object became text, with the key
    that was in it.
    """
    if not issubclass(type(value), int) or type(value) is bool:
        return None
    number = int.__int__(value)  # type: ignore[arg-type]  # HTTPStatus is one too
    return number if 100 <= number <= 599 else None


def _text(value: object) -> str | None:
    """``value`` as an exact ``str`` if it is a string (``StrEnum`` included), else ``None``."""
    if type(value) is str:
        return value
    # ``isinstance`` would ask the object, and a subclass may override anything: hence the type, and str's own method.
    return str.__str__(value) if issubclass(type(value), str) else None


def _written_out(value: object) -> str:
    from uuid import UUID  # rarely needed: most names are strings

    if type(value) is UUID:
        return str(value)
    if type(value) is bool or not issubclass(type(value), int):
        return UNKNOWN
    try:
        return int.__repr__(value)
    except ValueError:  # more digits than Python prints
        return UNKNOWN


@attrs.define(eq=False)
class AttemptRow:
    """One provider call of a ticket.

    Attributes:
        ticket: ``TicketRow.id``.
        number: From 1.
        started_at: Instant on the caller's clock (``trio.current_time()``), like every instant in this file.
        ended_at: Instant, or ``None`` while the call is out.
        code: The error's code, or ``None``.
        status: HTTP status, or ``None``.
        retry_delay: Seconds slept before the next attempt, or ``None``.
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
        tenant: The tenant that the work belongs to, or ``None``.
        run: The id of the run that the work belongs to, or ``None``.
        weight: In the lane's units.
        inputs: The number of texts.
        enqueued_at: Instant of the offer, read before admission, so that a wait of zero is a measured zero.
        opened_wall: The same moment on the wall clock, in seconds since the epoch.
        dispatched_at: Instant, or ``None``.
        settled_at: Instant, or ``None``.
        clocks: The three times; final once the ticket is settled.
        outcome: One of ``OUTCOMES``.
        failure_stage: One of ``FAILURE_STAGES``, or ``None`` without a failure.
        code: The error's code, or ``None``.
        attribution: ``queue`` or ``provider``, or ``None`` without a failure.
        detached: Whether the caller had left before the settlement.
        attempts: In order.
    """

    id: int
    lane: str
    # Where the ledger counts this row, with what all rows of its group have in common. Only the ledger uses it.
    tally: Tally = attrs.field(repr=False)
    tenant: str | None
    run: str | None
    weight: int
    inputs: int
    enqueued_at: float
    opened_wall: float
    attempts: list[AttemptRow] = attrs.field(factory=list)
    dispatched_at: float | None = None
    settled_at: float | None = None
    clocks: Clocks = ZERO
    outcome: str = "queued"
    failure_stage: str | None = None
    code: str | None = None
    attribution: str | None = None
    detached: bool = False

    @property
    def service(self) -> str:
        """The part of the program that made the request."""
        return self.tally.group.service

    @property
    def stage(self) -> str:
        """One of ``STAGES``."""
        return self.tally.group.stage

    @property
    def role(self) -> str:
        """What the model is used for."""
        return self.tally.group.role

    @property
    def provider(self) -> str:
        """The provider's kind or name."""
        return self.tally.group.provider

    @property
    def model(self) -> str:
        """The model's id."""
        return self.tally.group.model

    @property
    def priority(self) -> str:
        """The class: one of ``CLASSES``."""
        return self.tally.group.priority

    @property
    def disposition(self) -> str:
        """``queued``, or ``not-applicable`` if the call does not pass through a lane."""
        return self.tally.group.disposition

    def wall(self, instant: float) -> float:
        """``instant`` on the wall clock, in seconds since the epoch."""
        return self.opened_wall + (instant - self.enqueued_at)
