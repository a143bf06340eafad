"""The attempts of one dispatched ticket. Retries belong to the ticket and hold its slot; only the last failure counts.

Each attempt has a scope of its own, from dispatch to the last byte, parsing included: transport timeouts are not
relied on. Nothing here tells anybody of an intermediate failure.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Protocol

import outcome
import trio

from embedkit.activity.recorder import Recorder
from embedkit.admission.slot import Result
from embedkit.admission.ticket import Ticket
from embedkit.errors import EmbedkitError, ProviderError, ProviderTimeout

logger = logging.getLogger("embedkit.admission")


class Retry(Protocol):
    """Whether a failed attempt is followed by another; a parameter of the lane, and its only retry layer."""

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


async def make_attempts(
    ticket: Ticket, connection: object, retry: Retry, ledger: Recorder, hold: Callable[[float], object]
) -> Result | None:
    """Call until it succeeds, or fails for good.

    Args:
        ticket: In flight.
        connection: The slot's own.
        retry: Says which failures are followed by another attempt, and when.
        ledger: Told of each attempt.
        hold: Told until when the engine itself asked us to stay away.

    Returns:
        The value, or the error of the last attempt (one that is not embedkit's is passed on as it is); ``None`` if
        the ticket was aborted.

    Cancellation:
        The attempt in progress was cut off; the ledger's row of it says so.
    """
    while not ticket.aborted:
        result = await _attempt(ticket, connection, _limit(ticket, retry), ledger)
        if type(result) is not outcome.Error or not isinstance(result.error, ProviderError):
            return result
        away = retry.stay_away(result.error)
        if away is not None:
            hold(trio.current_time() + away)
        delay = _delay_before_next(ticket, result.error, retry)
        if delay is None:
            return result
        await _sleep(ticket, delay)
        if _is_unwanted(ticket):
            return result
    return None


async def _attempt(ticket: Ticket, connection: object, limit: float, ledger: Recorder) -> Result | None:
    assert ticket.row is not None
    assert ticket.slot is not None
    assert ticket.call is not None
    ticket.attempts += 1
    # A first attempt begins in the step of its dispatch.
    started = ticket.dispatched_at if ticket.attempts == 1 else trio.current_time()
    attempt = ledger.attempt_started(ticket.row, ticket.attempts, started)
    code: str | None = "ABORTED"
    status: int | None = None
    try:
        # A listener may have cancelled the caller just now: then there is nobody to make the call for.
        result = None
        if not ticket.aborted:
            result = await ticket.slot.attempt(ticket.call, connection, started + limit)
        if ticket.aborted:
            result = _after_abort(result)
        elif result is None:
            result = outcome.Error(_timeout(ticket, limit))
        if result is not None:
            code, status = (None, None) if type(result) is outcome.Value else _words(result)
    finally:
        ledger.attempt_ended(attempt, trio.current_time(), code=code, status=status)
    return result


def _after_abort(result: Result | None) -> Result | None:
    """What an attempt came to that was told to end: nothing, where it broke only while its transport was closed."""
    if type(result) is outcome.Error and not isinstance(result.error, EmbedkitError):
        logger.warning("a call that was aborted raised %s while it ended", type(result.error).__name__)
        return None
    return result


def _limit(ticket: Ticket, retry: Retry) -> float:
    """Seconds that an attempt may take: the ticket's limit, or the policy's where that is shorter."""
    own = math.inf if ticket.timeout is None else ticket.timeout
    of_policy = retry.attempt_limit(ticket.priority, has_deadline=ticket.deadline_at != math.inf)
    return own if of_policy is None or own <= of_policy else of_policy


def _timeout(ticket: Ticket, limit: float) -> ProviderTimeout:
    origin = ticket.limit_name
    if limit != ticket.timeout:
        origin = f"the retry policy's limit for an attempt of class {ticket.priority}"
    return ProviderTimeout(f"no complete answer within {limit:g} s" + (f" ({origin})" if origin else ""))


def _words(result: Result) -> tuple[str | None, int | None]:
    if type(result) is not outcome.Error:
        return None, None
    error = result.error
    code = error.durable_code if isinstance(error, EmbedkitError) else "unknown"
    return code, getattr(error, "status", None)


def _delay_before_next(ticket: Ticket, error: ProviderError, retry: Retry) -> float | None:
    if ticket.aborted or _is_unwanted(ticket):
        return None
    delay = retry.next_delay(
        error,
        ticket.attempts,
        priority=ticket.priority,
        spent=ticket.retry_wait,
        has_deadline=ticket.deadline_at != math.inf,
    )
    if delay is not None and trio.current_time() + delay >= ticket.deadline_at:
        return None  # the next attempt could not even start
    return delay


def _is_unwanted(ticket: Ticket) -> bool:
    """Whether another attempt would be for nobody: the caller has left it to itself, or the run's circuit is open."""
    return (ticket.caller is None and not ticket.aborted) or (ticket.circuit is not None and ticket.circuit.is_open)


async def _sleep(ticket: Ticket, delay: float) -> None:
    """Sleep between attempts. A trip of the circuit, or the caller's leaving, ends the sleep."""
    assert ticket.slot is not None
    ticket.slot.rest()
    ticket.paused_at = trio.current_time()
    ticket.pause = trio.CancelScope()
    try:
        with ticket.pause:
            await trio.sleep(delay)
    finally:
        ticket.retry_wait += trio.current_time() - ticket.paused_at
        ticket.pause = ticket.paused_at = None
