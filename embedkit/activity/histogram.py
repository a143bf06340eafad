"""Durations counted in buckets: percentiles over everything that ever happened, in bounded memory.

A bucket is a sixteenth of an octave, so a percentile is within 1/32 of the exact one. The alternative, exact
percentiles over the newest tickets, would forget the one long wait that a day of short ones followed.

Three durations of every ticket are added, between two steps of a lane. So ``add`` does as little as it can, and what
can be worked out later is: the count, and which bucket lies where.

Tests: tests/activity/test_histogram.py.
"""

from __future__ import annotations

from math import ceil, exp2, log2

_PER_OCTAVE = 16
# About a microsecond and thirty years. Anything shorter counts as zero, anything longer as the longest.
_SHORTEST, _LONGEST = 2.0**-20, 2.0**30


class Histogram:
    """How long things took, in seconds.

    Attributes:
        zeros: The number of durations of zero: a wait of zero is a measured zero. May be increased instead of calling
            ``add`` with a zero.
        total: The sum of all durations.
        longest: The exact maximum; 0.0 if there is none.
    """

    __slots__ = ("_buckets", "longest", "total", "zeros")

    def __init__(self) -> None:
        self.zeros = 0
        self.total = 0.0
        self.longest = 0.0
        # Key k counts durations from 2 ** (k / 16) up to 2 ** ((k + 1) / 16); keys are whole, and floats.
        self._buckets: dict[float, int] = {}

    def add(self, seconds: float) -> None:
        """Count one duration; what is negative or no number counts as zero."""
        if not seconds >= _SHORTEST:
            self.zeros += 1
            return
        if seconds > self.longest:
            if seconds > _LONGEST:
                seconds = _LONGEST
            self.longest = seconds
        self.total += seconds
        bucket = log2(seconds) * _PER_OCTAVE // 1.0
        try:
            self._buckets[bucket] += 1
        except KeyError:
            self._buckets[bucket] = 1

    @property
    def count(self) -> int:
        """The number of durations, zeros included."""
        return self.zeros + sum(self._buckets.values())

    def quantile(self, q: float) -> float | None:
        """The value that a share ``q`` of all values does not exceed (nearest rank), within 1/32 of itself.

        Returns:
            Seconds, or ``None`` if nothing was counted.
        """
        rank = max(ceil(q * self.count), 1) - self.zeros
        if rank <= 0:
            return 0.0
        for bucket in sorted(self._buckets):
            rank -= self._buckets[bucket]
            if rank <= 0:
                return min(exp2((bucket + 0.5) / _PER_OCTAVE), self.longest)
        return None

    @property
    def mean(self) -> float | None:
        """The exact mean, or ``None`` if nothing was counted."""
        count = self.count
        return self.total / count if count else None
