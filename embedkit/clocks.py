"""The three times of a ticket, kept apart, and which of them a failure is put down to."""

from __future__ import annotations

from typing import Literal

import attrs

Attribution = Literal["queue", "provider"]


# Frozen by its setters and not by its making: one is made for every ticket, and this costs half as much.
@attrs.define(unsafe_hash=True, on_setattr=attrs.setters.frozen)
class Clocks:
    """Where a ticket's time went, in seconds.

    Attributes:
        queue_wait: From offer to dispatch; for a ticket that was never dispatched, from offer to its end.
        provider_time: From dispatch to settlement, less ``retry_wait``. It may include the engine's own
            queue, so it is not execution time.
        retry_wait: Slept between attempts, the slot held.
    """

    queue_wait: float
    provider_time: float
    retry_wait: float

    def __add__(self, other: Clocks) -> Clocks:
        return Clocks(
            self.queue_wait + other.queue_wait,
            self.provider_time + other.provider_time,
            self.retry_wait + other.retry_wait,
        )

    def as_json(self) -> dict[str, float]:
        """The shape that reports and errors print."""
        return {
            "queue_wait": self.queue_wait,
            "provider_time": self.provider_time,
            "retry_wait": self.retry_wait,
        }


ZERO = Clocks(0.0, 0.0, 0.0)


def attribution(clocks: Clocks) -> Attribution:
    """Whom a failure is put down to: ``queue`` where waiting took longer than all the rest."""
    return "queue" if clocks.queue_wait > clocks.provider_time + clocks.retry_wait else "provider"
