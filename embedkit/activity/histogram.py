"""Durations counted in buckets: percentiles over everything that ever happened, in bounded memory.

A bucket is a sixteenth of an octave, as in HDR histograms, so a percentile is within 1/32 of the exact one.
The alternative, exact percentiles over the newest tickets, would forget the one long wait that a day of short
ones followed.
"""

from __future__ import annotations

from collections import defaultdict
from math import ceil, frexp

_PER_OCTAVE = 16
_STEPS = 2 * _PER_OCTAVE
# About a microsecond and thirty years; what is outside counts as the nearest of them.
_SHORTEST, _LONGEST = 2.0**-20, 2.0**30
_ZERO = -(10**6)


class Histogram:
    """How long things took, in seconds.

    Attributes:
        count: Of values, zeros included: a wait of zero is a measured zero.
        total: Their sum.
        longest: The exact maximum; 0.0 where there is none.
    """

    __slots__ = ("_buckets", "count", "longest", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.longest = 0.0
        self._buckets: defaultdict[int, int] = defaultdict(int)

    def add(self, seconds: float) -> None:
        """Count one duration; what is negative or no number counts as zero."""
        self.count += 1
        if not seconds >= _SHORTEST:
            self._buckets[_ZERO] += 1
            return
        if seconds > self.longest:
            if seconds > _LONGEST:
                seconds = _LONGEST
            self.longest = seconds
        self.total += seconds
        mantissa, octave = frexp(seconds)  # mantissa in [0.5, 1)
        self._buckets[octave * _PER_OCTAVE + int(mantissa * _STEPS)] += 1

    def quantile(self, q: float) -> float | None:
        """The value that a share ``q`` of all values does not exceed (nearest rank), within 1/32 of itself.

        Returns:
            Seconds, or ``None`` where nothing was counted.
        """
        rank = max(ceil(q * self.count), 1)
        for bucket in sorted(self._buckets):
            rank -= self._buckets[bucket]
            if rank <= 0:
                return min(_middle(bucket), self.longest)
        return None

    @property
    def mean(self) -> float | None:
        """Exact, or ``None`` where nothing was counted."""
        return self.total / self.count if self.count else None


def _middle(bucket: int) -> float:
    if bucket == _ZERO:
        return 0.0
    # The bucket holds octave * 16 + s with s from 16 to 31, so the octave is the quotient less one.
    octave, step = divmod(bucket - _PER_OCTAVE, _PER_OCTAVE)
    width = 2.0**octave / (2 * _PER_OCTAVE)
    return (step + _PER_OCTAVE + 0.5) * width
