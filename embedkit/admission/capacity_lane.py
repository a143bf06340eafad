"""The capacity lane: for engines whose provider call owns the settlement (Ollama, the local model).

Such an engine goes on computing though its client has left, or cannot be stopped at all. So a caller's leaving frees
nothing: the call is *detached*, and its slot is held until the call itself ends.
"""

from __future__ import annotations

from typing import TypeVar

from embedkit.admission.lane import Lane
from embedkit.admission.passage import Passage

C = TypeVar("C")


class CapacityLane(Lane[C]):
    """Slots whose settlement is the end of the provider call, though its caller has long gone."""

    def leave_call(self, passage: Passage) -> None:
        """Detach the call: it holds its slot until it ends. It makes no further attempt: nobody waits for one."""
        passage.end_pause()
