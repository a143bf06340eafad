"""What a schedule does next, and when. Pure: instants are numbers that the caller gives.

A repository is due when its record says so. A deferred episode arms one recovery probe, and a healthy verdict grants
each repository that waits for the engine exactly one early turn. What a sweep could not begin is held back for a while,
since its record says that it is due: another has it, or the engine does not answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import attrs

from embedkit.sweep.outcome import SweepReport

Key = tuple[str, str]

LEAST_SECONDS: Final = 1.0
"""Between two turns of a repository whatever its record says."""

LEASED_SECONDS: Final = 60.0
"""Until a repository is tried again that another process has: as long as a lease lasts."""

_LEASED = "KB_REPOSITORY_LEASED"


@attrs.define
class Agenda:
    """The one writer of what a schedule remembers between its sweeps.

    Attributes:
        pause: Seconds from a deferral to the recovery probe.
        hold: Seconds for which a repository is held back that the engine kept from beginning.
        waiting: Repositories that wait for the engine.
        probe_at: When the recovery probe is due; ``inf``: there is none.
    """

    pause: float
    hold: float
    waiting: set[Key] = attrs.field(factory=set, init=False)
    probe_at: float = attrs.field(default=math.inf, init=False)
    _early: set[Key] = attrs.field(factory=set, init=False)
    _had_early: set[Key] = attrs.field(factory=set, init=False)
    _not_before: dict[Key, float] = attrs.field(factory=dict, init=False)

    def note(self, report: SweepReport, now: float) -> None:
        """A sweep has ended."""
        for item in report.repositories:
            key = (item.tenant, item.name)
            self._early.discard(key)
            self._not_before[key] = now + LEAST_SECONDS
            if item.outcome == "deferred" and item.code == _LEASED:
                self._not_before[key] = now + LEASED_SECONDS
            elif item.outcome == "deferred":
                self.waiting.add(key)
                self.probe_at = min(self.probe_at, now + self.pause)
                if not item.next_due_in:
                    self._not_before[key] = now + self.hold
            elif item.outcome in ("complete", "partial-progress", "failed"):
                self.waiting.discard(key)
                self._had_early.discard(key)

    def probed(self, *, healthy: bool) -> None:
        """The recovery probe has come back: of a deferred episode there is no other."""
        self.probe_at = math.inf
        if healthy:
            self._early |= self.waiting - self._had_early
            self._had_early |= self.waiting
            self.waiting.clear()

    def due(self, records: Mapping[Key, float | None], now: float) -> set[Key]:
        """Which repositories have their turn.

        Args:
            records: When each is due by its record; ``None``: at once.
            now: The instant.
        """
        return {key for key, due_at in records.items() if self._turn_at(key, due_at) <= now}

    def next_at(self, records: Mapping[Key, float | None]) -> float:
        """When there is something to do next; ``inf``: never, unless something changes."""
        return min((*(self._turn_at(key, due_at) for key, due_at in records.items()), self.probe_at), default=math.inf)

    def _turn_at(self, key: Key, due_at: float | None) -> float:
        if key in self._early:
            return -math.inf
        return max(-math.inf if due_at is None else due_at, self._not_before.get(key, -math.inf))
