"""The interleaving of one run, as it happened: what a broken law shows of itself."""

from __future__ import annotations

import attrs
import trio


class LawBroken(AssertionError):
    """A lane broke a law. Its text names law, scenario and seed, and shows the interleaving."""


@attrs.frozen
class Event:
    """One line of a trace.

    Attributes:
        at: Virtual seconds since the scenario began.
        what: For example ``A: call 1 begins``.
    """

    at: float
    what: str


@attrs.define(eq=False)
class Trace:
    """What happened, in order."""

    events: list[Event] = attrs.field(factory=list)

    def note(self, what: str) -> None:
        """``what`` happens now."""
        self.events.append(Event(trio.current_time(), what))

    def __str__(self) -> str:
        return "\n".join(f"  {event.at:9.3f} s  {event.what}" for event in self.events)


def require(holds: bool, otherwise: str) -> None:
    """Raise ``LawBroken(otherwise)`` unless it ``holds``."""
    if not holds:
        raise LawBroken(otherwise)
