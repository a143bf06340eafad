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
        return _seconds(question, getattr(policy, question)(*args, **kwargs))
    except Exception as error:
        logger.warning("the retry policy's %s raised %s; none is taken", question, type(error).__name__)
    return None


def ask_limit(policy: Retry, priority: str, *, has_deadline: bool) -> float | None:
    """``ask(policy, "attempt_limit", ...)``, which every call asks, and nearly always to be told that there is none."""
    try:
        limit = policy.attempt_limit(priority, has_deadline=has_deadline)
        return None if limit is None else _seconds("attempt_limit", limit)
    except Exception as error:
        logger.warning("the retry policy's attempt_limit raised %s; none is taken", type(error).__name__)
    return None


def _seconds(question: str, answer: object) -> float | None:
    if answer is None:
        return None
    if isinstance(answer, int | float) and not isinstance(answer, bool) and math.isfinite(answer):
        return max(float(answer), 0.0)
    kind = type(answer).__name__
    logger.warning("the retry policy's %s is no number of seconds (%s); none is taken", question, kind)
    return None
