"""What real work says about an engine: seen call by call, on the hot path, and told to others now and then. No trio."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from embedkit.probing.rules import NEVER, WINDOW_MINUTES

if TYPE_CHECKING:
    from embedkit.activity.rows import TicketRow

_RECENT = 64


@attrs.frozen
class News:
    """What one process tells the others, on the wall clock.

    Attributes:
        success_at: See ``ProbeState``.
        slowest: See ``ProbeState``.
        busy_until: See ``ProbeState``.
        dispatches: Real dispatches by minute since the epoch. Whole counts, so that telling them twice adds nothing.
    """

    success_at: float = NEVER
    slowest: float = 0.0
    busy_until: float = NEVER
    dispatches: Mapping[int, int] = attrs.field(factory=dict)


class Work:
    """The real work of one lane.

    Instants are on trio's clock, as rows have them; minutes are of the wall clock, which all processes share.

    Args:
        timeout: Seconds that one call may take; ``math.inf`` where nothing bounds it.
    """

    __slots__ = ("_calls", "_minutes", "_timeout", "_times", "success_at")

    def __init__(self, timeout: float) -> None:
        self.success_at = NEVER
        self._timeout = timeout
        self._calls: dict[int, float] = {}
        self._minutes: dict[int, int] = {}
        self._times: deque[float] = deque(maxlen=_RECENT)

    def changed(self, row: TicketRow) -> bool:
        """``row``, which is no probe's, changed; whether that is news. Called at every step of every ticket."""
        if row.dispatched_at is None:
            return False
        if row.settled_at is not None:
            self._settled(row, row.settled_at)
            return True
        if not row.attempts:
            minute = int((row.opened_wall + row.dispatched_at - row.enqueued_at) // 60)
            if minute in self._minutes:
                self._minutes[minute] += 1
            else:
                self._begin(minute)
            return True
        if row.priority == "batch":
            attempt = row.attempts[-1]
            if attempt.ended_at is None:
                self._calls[row.id] = attempt.started_at
            else:
                self._calls.pop(row.id, None)  # it may sleep before the next: the engine is free meanwhile
        return False

    def busy_until(self) -> float:
        """See ``ProbeState``."""
        return max(self._calls.values(), default=NEVER) + self._timeout if self._calls else NEVER

    def slowest(self) -> float:
        """Seconds: p95 (nearest rank) of the newest calls."""
        times = sorted(self._times)
        return times[math.ceil(0.95 * len(times)) - 1] if times else 0.0

    def dispatches(self, wall: float) -> int:
        """Real dispatches within the window that ends at ``wall``."""
        oldest = window_start(wall)
        return sum(count for minute, count in self._minutes.items() if minute >= oldest)

    def news(self, ahead: float) -> News:
        """All of it. ``ahead`` is how far the wall clock is ahead of trio's."""
        return News(self.success_at + ahead, self.slowest(), self.busy_until() + ahead, dict(self._minutes))

    def _begin(self, minute: int) -> None:
        """The first dispatch of a minute: old ones are forgotten here, so that the others cost nothing."""
        self._minutes[minute] = 1
        if len(self._minutes) > 2 * WINDOW_MINUTES:
            oldest = minute - WINDOW_MINUTES
            self._minutes = {m: count for m, count in self._minutes.items() if m >= oldest}

    def _settled(self, row: TicketRow, now: float) -> None:
        self._calls.pop(row.id, None)
        # An answer of a chat model says nothing of the model that embeds, nor of how long that one takes.
        if row.outcome == "succeeded" and row.stage != "ask":
            self.success_at = now
            self._times.append(row.clocks.provider_time)


def window_start(wall: float) -> int:
    """The oldest minute of the window that ends at ``wall``."""
    return int(wall // 60) - WINDOW_MINUTES + 1
