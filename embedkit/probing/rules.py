"""Whether a probe may be sent, and what is known without one. Pure: a frozen state, and functions of it.

A probe asks an engine whether it can answer at all. It is the cheapest question there is, and pollers ask it the most:
a service that was measured sent 506 of them in an hour, against 169 calls of real work that waited for up to 1,050 s.
So an answer is reused while it is fresh, a success of real work counts as one, nobody asks an engine that is busy with
a batch and was well a moment ago, and what is left is held to a share of the real work.

Instants are on one clock, whichever: the same functions serve one process (trio's clock) and the file that processes
share (the wall clock).
"""

from __future__ import annotations

import hashlib
import math
from typing import Any, Literal

import attrs

from embedkit.settings import ProbeSettings, ProviderSettings

Word = Literal["healthy", "degraded", "unknown"]

NEVER = -math.inf
BUSY_BEHIND_BATCH = "busy-behind-batch"
REAL_WORK = "real-work"
OVER_BUDGET = "over-budget"
NEVER_ASKED = "never-asked"
STALE = "stale"

# However little real work there is, one probe may be sent each so many seconds.
FLOOR_SECONDS = 600.0
# Calls are counted over so many minutes.
WINDOW_MINUTES = 60
# An engine with a batch call out is left alone while what is known of it is younger than this, or than twice the
# recent p95 of its calls.
_BUSY_SECONDS = 60.0
# A wall clock may be set back a little; an instant further ahead than this says nothing.
_TOLERANCE = 5.0


@attrs.frozen
class Finding:
    """What is known of an engine.

    Attributes:
        word: ``healthy``, ``degraded`` or ``unknown``. One failed probe makes nobody unhealthy.
        reason: Why: a word of this file, or the durable code of what failed; ``None`` for a plain healthy probe.
        age: Seconds since what it rests on happened; ``None`` if it rests on nothing.
    """

    word: Word
    reason: str | None = None
    age: float | None = None


@attrs.frozen
class Verdict:
    """A finding, as it is given to whoever asked.

    Attributes:
        provider: Whom it is about.
        verdict: ``healthy``, ``degraded`` or ``unknown``.
        reason: Why; ``None`` for a plain healthy probe.
        age: Seconds since what it rests on happened; ``None`` if it rests on nothing.
        shared: Whether it rests on something other than a call made for this asker.
        elapsed: Seconds that the asker waited for it.
    """

    provider: str
    verdict: Word
    reason: str | None
    age: float | None
    shared: bool
    elapsed: float

    def as_json(self) -> dict[str, Any]:
        """As ``probe --json`` prints it."""
        return attrs.asdict(self)


@attrs.frozen
class ProbeResult:
    """What the last probe saw.

    Attributes:
        healthy: Whether the engine gave a good vector.
        reason: If not, the durable code of what failed.
        ended_at: Instant.
        failures: How many probes in a row have failed, this one included, with no success of real work in between.
    """

    healthy: bool
    reason: str | None
    ended_at: float
    failures: int


@attrs.frozen
class ProbeState:
    """All that a decision about one engine rests on.

    Attributes:
        result: The last probe's, if there was one.
        success_at: When a call of real work last succeeded.
        slowest: Seconds: the recent p95 of the calls of real work.
        busy_until: When the youngest batch call that is out will have reached its timeout; ``NEVER`` if none is out.
        dispatches: Real dispatches within the window.
        calls: Probe calls within the window.
        called_at: When a probe call was last made.
        flight_until: When the probe that somebody else has out will have ended at the latest; ``NEVER`` if none is.
    """

    result: ProbeResult | None = None
    success_at: float = NEVER
    slowest: float = 0.0
    busy_until: float = NEVER
    dispatches: int = 0
    calls: int = 0
    called_at: float = NEVER
    flight_until: float = NEVER


@attrs.frozen
class Send:
    """Nothing is known well enough, and a probe may be sent."""


@attrs.frozen
class Join:
    """Somebody else's probe is out: its result is this asker's too."""


@attrs.frozen
class Reuse:
    """What is known is fresh."""

    finding: Finding


@attrs.frozen
class BusyBehindBatch:
    """The engine works on a batch call and was well a moment ago: it is healthy, and is left alone."""

    finding: Finding


@attrs.frozen
class OverBudget:
    """A probe is wanted, and may not be sent yet."""

    finding: Finding


Decision = Send | Join | Reuse | BusyBehindBatch | OverBudget


def decide(state: ProbeState, rules: ProbeSettings, now: float, asked_at: float) -> Decision:
    """What to do for somebody who asked at ``asked_at``."""
    finding = find(state, rules, now)
    if finding.reason == BUSY_BEHIND_BATCH:
        return BusyBehindBatch(finding)
    known_at = _known_at(state)
    if _age(known_at, now) < _freshness(state, rules) or known_at >= asked_at:
        return Reuse(finding)
    if state.flight_until > now:
        return Join()
    if not _may_call(state, rules, now):
        return OverBudget(finding if finding.word == "degraded" else attrs.evolve(finding, reason=OVER_BUDGET))
    return Send()


def find(state: ProbeState, rules: ProbeSettings, now: float) -> Finding:
    """What is known, with nothing asked.

    An engine is known for as long as the budget may keep it from being asked again; after that it is unknown.
    """
    age = _age(_known_at(state), now)
    if math.isinf(age):
        return Finding("unknown", NEVER_ASKED)
    if _is_busy(state, now, age):
        return Finding("healthy", BUSY_BEHIND_BATCH, age)
    if age >= max(_freshness(state, rules), FLOOR_SECONDS):
        return Finding("unknown", STALE, age)
    result = _result_that_stands(state)
    if result is None:
        return Finding("healthy", REAL_WORK, age)
    return Finding("healthy" if result.healthy else "degraded", result.reason, age)


def next_result(state: ProbeState, reason: str | None, now: float) -> ProbeResult:
    """The result of a probe that ended ``now``: with ``reason``, or well if there is none."""
    if reason is None:
        return ProbeResult(True, None, now, 0)
    before = _result_that_stands(state)
    return ProbeResult(False, reason, now, 1 if before is None else before.failures + 1)


def engine_key(described: ProviderSettings) -> str:
    """What names an engine in the shared file, whatever processes call their provider; its address is hashed."""
    address = hashlib.sha256((described.base_url or "").encode()).hexdigest()[:16]
    return f"{described.kind}/{described.model or ''}/{address}"


def _result_that_stands(state: ProbeState) -> ProbeResult | None:
    """The last probe's, unless real work has succeeded since: that *is* a healthy probe."""
    result = state.result
    return result if result is not None and result.ended_at >= state.success_at else None


def _known_at(state: ProbeState) -> float:
    return state.success_at if state.result is None else max(state.success_at, state.result.ended_at)


def _freshness(state: ProbeState, rules: ProbeSettings) -> float:
    """Seconds for which what is known is reused without another thought."""
    result = _result_that_stands(state)
    if result is None or result.healthy:
        return rules.fresh
    # The exponent is bounded only so that it cannot overflow; the cap is reached long before.
    return min(rules.failing * 2.0 ** min(result.failures - 1, 64), max(rules.failing, rules.failing_cap))


def _is_busy(state: ProbeState, now: float, age: float) -> bool:
    result = _result_that_stands(state)
    well = result is None or result.healthy
    return well and state.busy_until > now and age < max(_BUSY_SECONDS, 2 * state.slowest)


def _may_call(state: ProbeState, rules: ProbeSettings, now: float) -> bool:
    return state.calls + 1 <= rules.share * state.dispatches or _age(state.called_at, now) >= FLOOR_SECONDS


def _age(instant: float, now: float) -> float:
    age = now - instant
    return math.inf if age < -_TOLERANCE else max(age, 0.0)
