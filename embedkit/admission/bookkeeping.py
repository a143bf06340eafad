"""What the ledger, the circuit and the caller are told of a ticket's begin and end; the same whoever makes the call."""

from __future__ import annotations

from typing import Literal

from embedkit.activity.recorder import Recorder
from embedkit.admission.ticket import Ticket
from embedkit.clocks import Clocks, attribution
from embedkit.errors import EmbedkitError

Settled = Literal["succeeded", "failed", "aborted", "unsettled"]
Ending = Settled | Literal["withdrawn", "shed"]


def open_row(
    ledger: Recorder, ticket: Ticket, now: float, *, lane: str, provider: str, model: str, disposition: str
) -> None:
    """``ticket`` is about to be offered: its row begins, so that a wait of zero is a measured zero."""
    ticket.offered_at = now
    ticket.row = ledger.open(
        lane=lane,
        service=ticket.ids.service,
        stage=ticket.ids.stage,
        role=ticket.ids.role,
        provider=provider,
        model=model,
        priority=ticket.priority,
        tenant=ticket.tenant,
        run=ticket.ids.run,
        weight=ticket.weight,
        inputs=ticket.inputs,
        now=now,
        disposition=disposition,
    )


def close_row(ledger: Recorder, ticket: Ticket, word: Ending, error: BaseException | None, now: float) -> None:
    """``ticket`` is over: its clocks, its error's clocks, its circuit, its row."""
    stage = _failure_stage(ticket) if error is not None else None
    ticket.clocks = ticket.measure(now)
    ticket.state = "settled"
    if isinstance(error, EmbedkitError):
        describe(error, ticket, ticket.clocks)
    if ticket.circuit is not None:
        ticket.circuit.unbind(ticket)
    assert ticket.row is not None
    ledger.settled(
        ticket.row,
        now,
        outcome=word,
        clocks=ticket.clocks,
        code=_code(error),
        failure_stage=stage,
        attribution=attribution(ticket.clocks) if error is not None else None,
        detached=word in ("succeeded", "failed") and ticket.caller is None,
    )


def describe(error: EmbedkitError, ticket: Ticket, clocks: Clocks) -> None:
    """Give ``error`` the ticket's times and attempts, and say whether the queue or the provider caused it."""
    error.clocks = clocks
    error.attempts = ticket.attempts
    error.attribution = attribution(clocks)


def _code(error: BaseException | None) -> str | None:
    if error is None:
        return None
    return error.durable_code if isinstance(error, EmbedkitError) else "unknown"


def _failure_stage(ticket: Ticket) -> str:
    if ticket.state != "in-flight":
        return "queue"
    return "provider" if ticket.attempts else "dispatch"
