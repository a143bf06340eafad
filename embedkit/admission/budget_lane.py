"""The budget lane: for engines that take a budget of tasks at once (OpenAI-compatible servers).

One request with n inputs is n tasks to such a server, so tickets have weights. The queue task owns the outcome: when
a caller leaves, the transport is closed, and *that* is the settlement (``aborted``). The lane then knows nothing of the
engine: a closed socket is never called a stopped computation.
"""

from __future__ import annotations

from typing import TypeVar

import outcome

from embedkit.admission.lane import Lane
from embedkit.admission.notifier import notify_provider_timeout
from embedkit.admission.slot import Result
from embedkit.admission.ticket import Ticket

C = TypeVar("C")


class BudgetLane(Lane[C]):
    """Slots whose settlement is the final outcome of their own task, a closed transport included."""

    def settle(self, ticket: Ticket, result: Result | None) -> None:
        """The queue task has its final outcome."""
        if result is None:
            self.record("aborted", ticket, ticket.parting)
            return
        error = result.error if type(result) is outcome.Error else None
        self.record("failed" if error is not None else "succeeded", ticket, error)
        self.hand_over(ticket, result)
        notify_provider_timeout(error, ticket.on_provider_timeout)

    def caller_left(self, ticket: Ticket) -> None:
        """Close the transport; the slot settles as ``aborted`` once it is closed."""
        ticket.abort_call()
