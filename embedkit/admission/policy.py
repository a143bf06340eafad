"""Whether a failed attempt is followed by another: a parameter of the lane, and its only retry layer.

A policy may be anybody's. What it raises, or says that is no number, is logged and taken for "no": the failure that it
was asked about stands, and nobody else hears of it.
"""

from __future__ import annotations

import logging
import math
from typing import Protocol

from embedkit.errors import ProviderError

logger = logging.getLogger("embedkit.admission")


class Retry(Protocol):
    """Which failures are followed by another attempt, and when."""

    def next_delay(
        self, error: ProviderError, attempt: int, *, priority: str, spent: float, has_deadline: bool
    ) -> float | None:
        """Seconds to sleep before the next attempt, or ``None``: ``error`` is final.

        Args:
            error: What attempt number ``attempt`` (from 1) ended with.
            attempt: Attempts made so far.
            priority: The ticket's class.
            spent: Seconds this ticket has slept between attempts.
            has_deadline: Whether its caller gave a deadline.
        """
        ...

    def attempt_limit(self, priority: str, *, has_deadline: bool) -> float | None:
        """Seconds that one attempt may take at most, where the policy has a limit of its own."""
        ...

    def stay_away(self, error: ProviderError) -> float | None:
        """Seconds for which the engine asked everybody to stay away, whoever was told and whether it tries again."""
        ...


class NoRetry:
    """Every failure is final."""

    def next_delay(
        self, error: ProviderError, attempt: int, *, priority: str, spent: float, has_deadline: bool
    ) -> float | None:
        """``None``."""
        return None

    def attempt_limit(self, priority: str, *, has_deadline: bool) -> float | None:
        """``None``."""
        return None

    def stay_away(self, error: ProviderError) -> float | None:
        """``None``."""
        return None


def ask(policy: Retry, question: str, *args: object, **kwargs: object) -> float | None:
    """The policy's answer in seconds, at least 0; ``None`` for none, for a failure, and for what is no number.

    A hint that lies a moment back (-0.2 s) is 0: no reason to stay away. Infinity is no time to wait for.
    """
    try:
        seconds = getattr(policy, question)(*args, **kwargs)
        if seconds is None:
            return None
        if isinstance(seconds, int | float) and not isinstance(seconds, bool) and math.isfinite(seconds):
            return max(float(seconds), 0.0)
        kind = type(seconds).__name__
        logger.warning("the retry policy's %s is no number of seconds (%s); none is taken", question, kind)
    except Exception as error:
        logger.warning("the retry policy's %s raised %s; none is taken", question, type(error).__name__)
    return None
