"""The attempts of one dispatched ticket. Retries belong to the ticket and hold its slot; only the last failure counts.

Each attempt has a scope of its own, from dispatch to the last byte, parsing included: transport timeouts are not
relied on. Nothing here tells anybody of an intermediate failure.
"""

from __future__ import annotations

import math

import outcome
import trio

from embedkit.admission.hold import Hold
from embedkit.admission.passage import Passage
from embedkit.admission.policy import Retry, ask, ask_limit
from embedkit.admission.slot import Result
from embedkit.errors import ProviderError, ProviderTimeout


async def make_attempts(
    passage: Passage, connection: object, retry: Retry, hold: Hold, clock: trio.abc.Clock
) -> Result | None:
    """Call until it succeeds, or fails for good.

    Args:
        passage: In flight.
        connection: The slot's own.
        retry: Says which failures are followed by another attempt, and when.
        hold: Until when the engine asked us to stay away; told of each hint, and waited for before each retry.
        clock: Trio's.

    Returns:
        The value, or the error of the last attempt (one that is not embedkit's is passed on as it is); ``None`` if
        the ticket was aborted.

    Cancellation:
        The attempt in progress was cut off; the ledger's row of it says so.
    """
    ticket, slot = passage.ticket, passage.slot
    assert slot is not None
    while not passage.is_aborted:
        # A first attempt begins in the step of its dispatch.
        started = clock.current_time() if ticket.attempts else passage.dispatched_at
        # The ticket's limit, or the policy's where that is shorter.
        limit = math.inf if ticket.timeout is None else ticket.timeout
        of_policy = ask_limit(retry, ticket.priority, has_deadline=ticket.deadline_at != math.inf)
        if of_policy and of_policy < limit:
            limit = of_policy
        passage.begin_attempt(started)
        result: Result | None = None
        try:
            # A listener may have cancelled the caller just now: then there is nobody to make the call for.
            if not passage.is_aborted:
                result = await slot.attempt(passage.call, connection, started + limit)
            if passage.is_aborted:
                # What came in spite of that is an answer. A failure is no more than the provider's reply to the cut.
                if type(result) is outcome.Error:
                    result = None
            elif result is None:
                result = outcome.Error(_timeout(passage, limit))
        finally:
            passage.end_attempt(clock.current_time(), result)
        if type(result) is not outcome.Error or not isinstance(result.error, ProviderError):
            return result
        error = result.error
        away = ask(retry, "stay_away", error)
        if away is not None:
            hold.extend(trio.current_time() + away)
        delay = _delay_before_next(passage, error, retry)
        if delay is None or not await _sleep(passage, trio.current_time() + delay, hold):
            return result
    return None


def _timeout(passage: Passage, limit: float) -> ProviderTimeout:
    origin = passage.ticket.limit_name
    if limit != passage.ticket.timeout:
        origin = f"the retry policy's limit for an attempt of class {passage.priority}"
    return ProviderTimeout(f"no complete answer within {limit:g} s" + (f" ({origin})" if origin else ""))


def _delay_before_next(passage: Passage, error: ProviderError, retry: Retry) -> float | None:
    if passage.is_unwanted:
        return None
    ticket = passage.ticket
    return ask(
        retry,
        "next_delay",
        error,
        ticket.attempts,
        priority=ticket.priority,
        spent=passage.retry_wait,
        has_deadline=ticket.deadline_at != math.inf,
    )


async def _sleep(passage: Passage, until: float, hold: Hold) -> bool:
    """Sleep until then, and for as long as the engine wants to be left alone; whether there is to be an attempt.

    A trip of the circuit, or the caller's leaving, ends the sleep. One that would end no earlier than the deadline is
    not begun: the next attempt could not even start.
    """
    assert passage.slot is not None
    passage.slot.rest()
    with_hint = max(until, hold.until)
    while with_hint < passage.deadline_at:
        scope = passage.pause(trio.current_time())
        try:
            with scope:
                await trio.sleep_until(with_hint)
        finally:
            passage.resume(trio.current_time())
        if passage.is_aborted or passage.is_unwanted:
            return passage.is_aborted
        if hold.until <= trio.current_time():
            return True
        with_hint = hold.until  # a longer hint came meanwhile
    return False
