"""Which failures a ticket tries again, how often, and after how long. Pure; the lane does the waiting.

There is one retry layer. Whether a failure is a *provider timeout* is a different question, asked of
``is_provider_timeout`` alone; here it only decides which row of the table below a failure belongs to.

====================  ==========================================================  ===================
failure               retries                                                     delay
====================  ==========================================================  ===================
contention            interactive: 2, none with a caller's deadline; batch: by    the hint, else full
                      the hint only                                               jitter over 1 s
provider timeout      interactive on OpenAI-compatible: as contention; else none  full jitter over 1 s
model not resident    3                                                           0.5 s
connection refused    1                                                           1 s
transport closed      1                                                           1 s
unavailable           1                                                           1 s
reply invalid         1                                                           none
anything else         0
====================  ==========================================================  ===================

A probe is never tried again: it reports what it saw. A failure that ``DecidesRetry`` has a table of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Literal

import attrs

from embedkit.errors import (
    ConnectionRefused,
    ModelNotResident,
    ProviderBusy,
    ProviderError,
    ProviderUnavailable,
    ResponseInvalid,
    TransportClosed,
    is_provider_timeout,
)

OverCap = Literal["clamp", "give-up"]

MAX_RETRY_AFTER = 30.0
MAX_HINTS = 10
MAX_WAITING = 600.0
INTERACTIVE_RETRIES = 2
INTERACTIVE_INTERVAL = 1.0
INTERACTIVE_ATTEMPT_LIMIT = 15.0

_FIXED: dict[type[ProviderError], tuple[int, float]] = {
    ModelNotResident: (3, 0.5),
    ConnectionRefused: (1, 1.0),
    TransportClosed: (1, 1.0),
    ProviderUnavailable: (1, 1.0),
    ResponseInvalid: (1, 0.0),
}


class DecidesRetry(ProviderError):
    """A failure that says itself whether its ticket tries again: that of a question, whose rules are not these."""

    def next_delay(self, attempt: int) -> float | None:
        """Seconds until the next attempt, or ``None`` if the failure of number ``attempt`` (from 1) is final."""
        return None


@attrs.frozen
class RetryTable:
    """The table of this module, as the ``Retry`` of a lane (see ``admission.attempts``).

    Attributes:
        retries_timeouts: Whether an interactive ticket's provider timeout counts as contention.
        max_retry_after: Longest hint in seconds that is waited as given.
        over_cap: What a longer one does: ``clamp`` waits ``max_retry_after``, ``give-up`` makes the failure
            final.
        draw: Gives a number from 0 to 1 for the jitter.
    """

    retries_timeouts: bool
    max_retry_after: float = MAX_RETRY_AFTER
    over_cap: OverCap = "clamp"
    draw: Callable[[], float] = random.random

    def next_delay(
        self, error: ProviderError, attempt: int, *, priority: str, spent: float, has_deadline: bool
    ) -> float | None:
        """See ``Retry.next_delay``."""
        delay = self._delay(error, attempt, priority, has_deadline)
        return None if delay is None or spent + delay > MAX_WAITING else delay

    def attempt_limit(self, priority: str, *, has_deadline: bool) -> float | None:
        """15 s where a timeout would be tried again: three attempts then stay within a person's patience."""
        waits = self.retries_timeouts and priority == "interactive" and not has_deadline
        return INTERACTIVE_ATTEMPT_LIMIT if waits else None

    def stay_away(self, error: ProviderError) -> float | None:
        """The hint, up to the longest that is waited as given."""
        hint = error.retry_after if isinstance(error, ProviderBusy | DecidesRetry) else None
        return None if hint is None else min(hint, self.max_retry_after)

    def _delay(self, error: ProviderError, attempt: int, priority: str, has_deadline: bool) -> float | None:
        if priority == "probe":
            return None
        if isinstance(error, DecidesRetry):
            return error.next_delay(attempt)
        if is_provider_timeout(error):
            return self._timeout_delay(attempt, priority, has_deadline)
        if isinstance(error, ProviderBusy):
            return self._contention_delay(error.retry_after, attempt, priority, has_deadline)
        retries, delay = _FIXED.get(type(error), (0, 0.0))
        return delay if attempt <= retries else None

    def _timeout_delay(self, attempt: int, priority: str, has_deadline: bool) -> float | None:
        if not self.retries_timeouts or priority != "interactive":
            return None
        return self._contention_delay(None, attempt, priority, has_deadline)

    def _contention_delay(self, hint: float | None, attempt: int, priority: str, has_deadline: bool) -> float | None:
        if priority == "interactive" and (has_deadline or attempt > INTERACTIVE_RETRIES):
            return None
        if hint is not None:
            return self._hint_delay(hint, attempt)
        return INTERACTIVE_INTERVAL * self.draw() if priority == "interactive" else None

    def _hint_delay(self, hint: float, attempt: int) -> float | None:
        if attempt > MAX_HINTS or (hint > self.max_retry_after and self.over_cap == "give-up"):
            return None
        return min(hint, self.max_retry_after)


def openai_compatible_policy(
    *,
    max_retry_after: float = MAX_RETRY_AFTER,
    over_cap: OverCap = "clamp",
    draw: Callable[[], float] = random.random,
) -> RetryTable:
    """For OpenAI-compatible lanes, whose queue task owns its retries; those of people's timeouts too."""
    return RetryTable(True, max_retry_after, over_cap, draw)


def ollama_policy(
    *,
    max_retry_after: float = MAX_RETRY_AFTER,
    over_cap: OverCap = "clamp",
    draw: Callable[[], float] = random.random,
) -> RetryTable:
    """For Ollama lanes: a timeout there is never tried again, since the engine may still be computing."""
    return RetryTable(False, max_retry_after, over_cap, draw)


def unqueued_policy(
    *,
    max_retry_after: float = MAX_RETRY_AFTER,
    over_cap: OverCap = "clamp",
    draw: Callable[[], float] = random.random,
) -> RetryTable:
    """For a remote provider without a lane (Gemini), whose hints stand in ``RetryInfo``. Timeouts are final."""
    return RetryTable(False, max_retry_after, over_cap, draw)
