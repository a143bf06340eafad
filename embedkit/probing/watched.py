"""What one process knows of an engine that it watches, and the question about it that is out. Instants are trio's."""

from __future__ import annotations

from typing import Any

import attrs
import trio

from embedkit.probing.call import Target
from embedkit.probing.rules import NEVER, WINDOW_MINUTES, Finding, ProbeResult, ProbeState
from embedkit.probing.tables import Writer
from embedkit.probing.work import Work

_WINDOW = 60.0 * WINDOW_MINUTES
_CUT_OFF = Finding("unknown", "cut-off")


@attrs.define(eq=False)
class Flight:
    """A question that is out.

    Attributes:
        landed: Set when it has its answer, or was cut off.
        finding: The answer.
        asked: Whether a call was made for it here.
    """

    landed: trio.Event = attrs.field(factory=trio.Event)
    finding: Finding = _CUT_OFF
    asked: bool = False


@attrs.define(eq=False)
class Watched:
    """One engine, as this process knows it.

    Attributes:
        target: How it is probed.
        work: Its real work in this process.
        writer: Under which name this process writes of it.
        result: The newest probe's, whoever made it.
        calls: When this process probed it.
        success_elsewhere: See ``ProbeState``; as the file was last read.
        slowest_elsewhere: See ``ProbeState``; as the file was last read.
        flight: The question that is out here.
    """

    target: Target[Any]
    work: Work
    writer: Writer
    result: ProbeResult | None = None
    calls: list[float] = attrs.field(factory=list)
    success_elsewhere: float = NEVER
    slowest_elsewhere: float = 0.0
    flight: Flight | None = None

    def state(self, now: float, wall: float) -> ProbeState:
        """As far as this process knows. Batch calls are its own: what others have out is read, not remembered."""
        self.calls = [call for call in self.calls if now - call < _WINDOW]
        return ProbeState(
            result=self.result,
            success_at=max(self.work.success_at, self.success_elsewhere),
            slowest=max(self.work.slowest(), self.slowest_elsewhere),
            busy_until=self.work.busy_until(),
            dispatches=self.work.dispatches(wall),
            calls=len(self.calls),
            called_at=self.calls[-1] if self.calls else NEVER,
        )

    def learn(self, told: ProbeState) -> None:
        """Take over what the file said, already on trio's clock."""
        self.success_elsewhere = told.success_at
        self.slowest_elsewhere = told.slowest
        if told.result is not None and (self.result is None or told.result.ended_at > self.result.ended_at):
            self.result = told.result
