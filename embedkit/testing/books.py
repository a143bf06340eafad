"""What a lane must have written down of a play, as the stage saw it: totals, clocks, attempts, errors, ledger rows.

Where two words are both right (a caller who was cancelled before it ran may have been offered or not), both are
allowed. A lane that opens no rows in its ledger is not asked for any.
"""

from __future__ import annotations

import math

from embedkit import EmbedkitError, LaneClosed, LaneFull, ProviderCircuitOpen, ProviderError
from embedkit.testing.caller import Caller
from embedkit.testing.lane_under_test import TotalsUnderTest
from embedkit.testing.stage import Stage
from embedkit.testing.trace import LawBroken, require

ENDINGS = ("succeeded", "failed", "withdrawn", "shed", "aborted", "unsettled")
_NOT_OFFERED = "not offered"
_TOLERANCE = 1e-6


def accounted(totals: TotalsUnderTest) -> int:
    """The right side of law 6."""
    return totals.queued + totals.in_flight + sum(int(getattr(totals, word)) for word in ENDINGS)


def check_books(stage: Stage) -> None:
    """The play is over and everybody is back: note what the lane has written down wrong."""
    try:
        _check_totals(stage)
        for caller in stage.everybody:
            _check_clocks(caller)
            _check_error(caller)
        _check_rows(stage)
    except LawBroken as broken:
        stage.findings.wrote(broken.law or 6, str(broken))


def endings_of(caller: Caller, stage: Stage) -> frozenset[str]:
    """The words that are right for what became of ``caller``."""
    if math.isnan(caller.offered_at) or isinstance(caller.error, LaneFull):
        return frozenset({_NOT_OFFERED})
    if not caller.calls:
        if caller.left:
            # Cancelled before it ran: it may have been refused by its own Cancelled.
            return frozenset({"withdrawn", _NOT_OFFERED} if caller.was_cancelled else {"withdrawn"})
        if isinstance(caller.error, LaneClosed | ProviderCircuitOpen):
            return frozenset({"shed", _NOT_OFFERED})
        return frozenset({"failed"} if isinstance(caller.error, ProviderError) else {_NOT_OFFERED, "failed", "shed"})
    ending = caller.endings[-1]
    has_left = caller.left and stage.settlement == "queue"
    if ending == "value":
        return frozenset({"succeeded"})
    if stage.is_over and max(caller.back_at, caller.ended_at[-1]) >= stage.over_at:
        # The end came while its call was out, or while it slept after a failure; or it had failed in that very step.
        # A limit that has passed is a failure, whatever ends in that instant; and a transport that fails as the end
        # closes it may be taken for one.
        limit = caller.ticket.timeout
        is_late = limit is not None and caller.ended_at[-1] - caller.began_at[-1] >= limit
        may_have_failed = ending == "error" or is_late or caller.last_step.if_cut is not None
        words = {"unsettled", "failed"} if may_have_failed else {"unsettled"}
        return frozenset(words | {"aborted"} if has_left else words)
    if has_left and ending == "error" and caller.back_at == caller.ended_at[-1]:
        return frozenset({"aborted", "failed"})  # it had failed, or was told to end, in one instant
    return frozenset({"aborted"} if has_left else {"failed"})


def _check_totals(stage: Stage) -> None:
    totals = stage.totals
    require((totals.queued, totals.in_flight) == (0, 0), f"all is over, and the lane says {totals}")
    require(
        totals.offered == accounted(totals),
        f"{totals.offered} tickets were offered and {accounted(totals)} are accounted for: {totals}",
    )
    all_endings = [endings_of(caller, stage) for caller in stage.everybody]
    for word in ENDINGS:
        count = getattr(totals, word)
        least = sum(endings == {word} for endings in all_endings)
        most = sum(word in endings for endings in all_endings)
        seen = f"{least}" if least == most else f"{least} to {most}"
        require(least <= count <= most, f"{seen} of the tickets {word}; the lane says {count}")


def _check_clocks(caller: Caller) -> None:
    clocks, ticket = caller.ticket.clocks, caller.ticket
    require(
        ticket.attempts == caller.calls, f"{caller.name} made {caller.calls} calls; it says {ticket.attempts}", law=7
    )
    if not caller.calls:
        require(clocks.provider_time == 0.0, f"{caller.name} made no call; its clocks are {clocks}", law=7)
        if caller.left and not math.isnan(caller.offered_at) and not caller.was_cancelled:
            waited = caller.back_at - caller.offered_at
            require(_is(clocks.queue_wait, waited), f"{caller.name} waited {waited:g} s; its clocks: {clocks}", law=7)
        return
    waited = caller.began_at[0] - caller.offered_at
    require(_is(clocks.queue_wait, waited), f"{caller.name} waited {waited:g} s; its clocks: {clocks}", law=7)
    spent = sum(end - begin for begin, end in zip(caller.began_at, caller.ended_at, strict=True))
    require(
        _is(clocks.provider_time, spent), f"the calls of {caller.name} took {spent:g} s; its clocks: {clocks}", law=7
    )
    slept = sum(begin - end for begin, end in zip(caller.began_at[1:], caller.ended_at, strict=False))
    require(
        clocks.retry_wait >= slept - _TOLERANCE,
        f"{caller.name} slept {slept:g} s between attempts; its clocks: {clocks}",
        law=7,
    )


def _check_error(caller: Caller) -> None:
    error = caller.error
    if not isinstance(error, EmbedkitError) or not (caller.calls or caller.left):
        return
    clocks = error.clocks
    require(clocks is not None, f"the error of {caller.name} carries no clocks", law=7)
    assert clocks is not None
    if not caller.left:
        require(clocks == caller.ticket.clocks, f"{caller.name}: {caller.ticket.clocks}; its error: {clocks}", law=7)
    cause = "queue" if clocks.queue_wait > clocks.provider_time + clocks.retry_wait else "provider"
    require(error.attribution == cause, f"{clocks}: {caller.name}'s failure is put down to {error.attribution}", law=7)


def _check_rows(stage: Stage) -> None:
    if stage.ledger is None:
        return
    open_rows, settled = stage.ledger.open_rows(), stage.ledger.settled_rows()
    require(not open_rows, f"all is over, and {len(open_rows)} rows of the ledger are open")
    by_name = {caller.name: caller for caller in stage.everybody}
    seen = set[str | None]()
    for row in settled:
        caller = by_name.get(row.run or "")
        if caller is None:
            continue
        require(row.run not in seen, f"{row.run} has two rows in the ledger")
        seen.add(row.run)
        words = endings_of(caller, stage)
        require(row.outcome in words, f"{row.run}: {row.outcome} in the ledger, not {', '.join(words)}")
        require(
            len(row.attempts) == caller.calls,
            f"{row.run} made {caller.calls} calls; the ledger has {len(row.attempts)}",
            law=5,
        )
        require(row.clocks == caller.ticket.clocks, f"{row.run}: {caller.ticket.clocks}; its row: {row.clocks}", law=7)
        is_detached = caller.left and bool(caller.calls) and row.outcome in ("succeeded", "failed")
        require(row.detached == is_detached, f"{row.run}: detached is {row.detached} in its row, with {caller.fate}")
        require(
            (row.code is None) == (row.outcome == "succeeded"), f"{row.run} {row.outcome}, with the code {row.code}"
        )


def _is(found: float, expected: float) -> bool:
    return abs(found - expected) <= _TOLERANCE
