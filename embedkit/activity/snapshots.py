"""What each lane looks like as its rows are written, for those who read the file. A lane is known by its name only.

Whoever makes the writer hands down a function from a lane's name to what is to be stored of it. What that cannot make,
or what is too large to be stored, costs this snapshot and is counted. The rows are written all the same.

Tests: tests/activity/test_snapshots.py.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import attrs

from embedkit.activity.rows import name

logger = logging.getLogger(__name__)

OfLane = Callable[[str], Mapping[str, Any] | None]
"""What is to be stored of a lane, as JSON has it; ``None`` if there is no such lane."""

# Characters of a snapshot's JSON, which is ASCII.
LARGEST: Final = 32_768
# Lanes that a snapshot is owed of, besides those of the rows that wait: a few. Names may be anything, so it is bounded.
_MOST_DUE = 100


@attrs.frozen
class StoredLane:
    """A lane of a process that lives, as that process last wrote it down.

    Attributes:
        lane: Its name.
        host: The machine of the process.
        pid: The process.
        at: When, in seconds since the epoch by that machine's clock.
        snapshot: What was stored.
    """

    lane: str
    host: str
    pid: int
    at: float
    snapshot: Mapping[str, Any]


class Snapshots:
    """Makes the snapshots of one writer.

    Args:
        of_lane: Called in the event loop, at most once for a lane and a batch of rows.

    Attributes:
        lost: Snapshots that could not be made or stored.
    """

    def __init__(self, of_lane: OfLane | None) -> None:
        self.lost = 0
        self._of_lane = of_lane
        # Lanes that changed, though none of the rows that wait to be written says so.
        self._due: set[str] = set()

    def owe(self, lanes: Iterable[object]) -> None:
        """These lanes changed, and no row may be left to say so: a change was dropped, or a batch failed."""
        if self._of_lane is None:
            return
        for lane in lanes:
            if len(self._due) < _MOST_DUE:
                self._due.add(name(lane))

    def take(self, lanes: Iterable[object]) -> dict[str, str]:
        """The snapshots, by lane, that go with a batch: of ``lanes`` and of those that are owed."""
        if self._of_lane is None:
            return {}
        due, self._due = self._due.union(map(name, lanes)), set()
        made = ((lane, self._make(lane, self._of_lane)) for lane in sorted(due))
        return {lane: text for lane, text in made if text is not None}

    def lose(self, error: Exception) -> None:
        """One could not be made or stored."""
        self.lost += 1
        if self.lost == 1:
            # Without the error's text, which may quote a value.
            logger.warning(
                "the ledger: a lane's snapshot cannot be stored (%s); the rows are, and further ones are only counted",
                type(error).__name__,
            )

    def _make(self, lane: str, of_lane: OfLane) -> str | None:
        try:
            found = of_lane(lane)
            if found is None:
                return None
            text = json.dumps(found, allow_nan=False)
            if len(text) > LARGEST:
                raise ValueError(f"{len(text)} characters, more than {LARGEST}")  # counted as the rest
        except Exception as error:
            self.lose(error)
            return None
        return text


def stored_lane(lane: str, host: str, pid: int, at: float, text: str) -> StoredLane | None:
    """A row of the file; ``None`` if its snapshot is not one that any version writes."""
    try:
        snapshot = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None
    return StoredLane(lane, host, pid, at, snapshot) if isinstance(snapshot, dict) else None
