"""The budget lane: for engines that take a budget of tasks at once (OpenAI-compatible servers).

One request with n inputs is n tasks to such a server, so tickets have weights. The queue task owns the outcome: when
a caller leaves, the transport is closed, and *that* is the settlement (``aborted``). The lane then knows nothing of the
engine: a closed socket is never called a stopped computation.
"""

from __future__ import annotations

from typing import TypeVar

from embedkit.admission.lane import Lane
from embedkit.admission.passage import Passage

C = TypeVar("C")


class BudgetLane(Lane[C]):
    """Slots whose settlement is the final outcome of their own task, a closed transport included."""

    def leave_call(self, passage: Passage) -> None:
        """Close the transport; the slot settles as ``aborted`` once it is closed."""
        passage.abort()
