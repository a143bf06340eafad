"""The capacity lane: for engines whose provider call owns the settlement (Ollama, the local model).

Such an engine goes on computing though its client has left, or cannot be stopped at all. So a caller's leaving frees
nothing: the call is *detached*, and its slot is held until the call itself ends.
"""

from __future__ import annotations

from typing import TypeVar

import outcome

from embedkit.admission.lane import Lane
from embedkit.admission.notifier import notify_provider_timeout
from embedkit.admission.slot import Result
from embedkit.admission.ticket import Ticket

C = TypeVar("C")


class CapacityLane(Lane[C]):
    """Slots whose settlement is the end of the provider call, though its caller has long gone."""

    def settle(self, ticket: Ticket, result: Result | None) -> None:
        """The provider call has ended."""
        assert result is not None  # only the attempt's own limit ends a call here
        error = result.error if type(result) is outcome.Error else None
        self.record("failed" if error is not None else "succeeded", ticket, error)
        self.hand_over(ticket, result)
        notify_provider_timeout(error, ticket.on_provider_timeout)

    def caller_left(self, ticket: Ticket) -> None:
        """Detach the call: it holds its slot until it ends. It makes no further attempt: nobody waits for one."""
        if ticket.pause is not None:
            ticket.pause.cancel()
