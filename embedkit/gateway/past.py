"""Two minutes of each lane: how much of it was in use, and how long somebody had waited.

A point is taken when something changes, two a second at most: between changes a lane stands still, so nothing polls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import attrs

SPAN = 120.0
_INTERVAL = 0.5


@attrs.frozen
class Point:
    """A lane at an instant.

    Attributes:
        at: Instant.
        used: Units in flight.
        wait: Seconds that the longest waiting ticket had waited.
    """

    at: float
    used: int
    wait: float


class Past:
    """See the module.

    Args:
        look: Looks at every lane: its provider, units in use, and the longest wait.
    """

    def __init__(self, look: Callable[[], Iterable[tuple[str, int, float]]]) -> None:
        self._look = look
        self._points: dict[str, deque[Point]] = {}
        self._next_at = 0.0

    def changed(self, now: float) -> None:
        """Something has changed."""
        if now < self._next_at:
            return
        self._next_at = now + _INTERVAL
        for provider, used, wait in self._look():
            points = self._points.setdefault(provider, deque())
            points.append(Point(now, used, wait))
            while points[0].at < now - SPAN:
                points.popleft()

    def of(self, provider: str, now: float) -> list[tuple[float, int, float]]:
        """Seconds ago, units in use and longest wait, the oldest first."""
        points = self._points.get(provider, ())
        return [(round(now - one.at, 2), one.used, round(one.wait, 3)) for one in points if one.at >= now - SPAN]
