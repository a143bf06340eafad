"""The three times of a ticket, kept apart, and which of them a failure is put down to."""

from __future__ import annotations

from typing import Literal, NamedTuple

Attribution = Literal["queue", "provider"]


# A named tuple, and not a frozen attrs class: one is made for every ticket, and this costs a quarter as much.
class Clocks(NamedTuple):
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

    def __add__(self, other: Clocks) -> Clocks:  # type: ignore[override]  # sums, as times do
        return Clocks(
            self.queue_wait + other.queue_wait,
            self.provider_time + other.provider_time,
            self.retry_wait + other.retry_wait,
        )

    def as_json(self) -> dict[str, float]:
        """The shape that reports and errors print."""
        return self._asdict()


ZERO = Clocks(0.0, 0.0, 0.0)


def attribution(clocks: Clocks) -> Attribution:
    """Whom a failure is put down to: ``queue`` where waiting took longer than all the rest."""
    return "queue" if clocks.queue_wait > clocks.provider_time + clocks.retry_wait else "provider"
