"""The interleaving of one run, as it happened: what a broken law shows of itself."""

from __future__ import annotations

import attrs
import trio


class LawBroken(AssertionError):
    """A lane broke a law. Its text is the report.

    Attributes:
        law: Which, where it is not the law of the scenario that found it.
    """

    def __init__(self, what: str, law: int | None = None) -> None:
        super().__init__(what)
        self.law = law


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


@attrs.frozen
class Finding:
    """One broken law.

    Attributes:
        law: 1 to 7.
        what: What was seen.
    """

    law: int
    what: str


@attrs.define
class Findings:
    """What one play found. The first of each kind counts: the rest may follow from it.

    Attributes:
        does: What the lane did wrong.
        writes: What it wrote down wrong: totals, clocks, attempts, attribution, rows.
    """

    does: Finding | None = None
    writes: Finding | None = None

    def did(self, law: int, what: str) -> None:
        """The lane did something wrong."""
        if self.does is None:
            self.does = Finding(law, what)

    def wrote(self, law: int, what: str) -> None:
        """It wrote something down that is not so. What follows from a wrong deed is not held against its books."""
        if self.writes is None and self.does is None:
            self.writes = Finding(law, what)


def require(holds: bool, otherwise: str, law: int | None = None) -> None:
    """Raise ``LawBroken(otherwise)`` unless it ``holds``."""
    if not holds:
        raise LawBroken(otherwise, law)
