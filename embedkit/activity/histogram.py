"""Durations counted in buckets: percentiles over everything that ever happened, in bounded memory.

A bucket is a sixteenth of an octave, so a percentile is within 1/32 of the exact one. The alternative, exact
percentiles over the newest tickets, would forget the one long wait that a day of short ones followed.

Three durations of every ticket are added, between two steps of a lane. So ``add`` only keeps them, and a few hundred at
a time are put into their buckets, by numpy, which takes for all of them what Python takes for ten.

Tests: tests/activity/test_histogram.py.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from itertools import accumulate
from math import ceil, exp2

_PER_OCTAVE = 16
# About a microsecond and thirty years. Anything shorter counts as zero, anything longer as the longest.
_FIRST_OCTAVE, _LAST_OCTAVE = -20, 30
_SHORTEST, _LONGEST = 2.0**_FIRST_OCTAVE, 2.0**_LAST_OCTAVE
_BUCKETS = (_LAST_OCTAVE - _FIRST_OCTAVE) * _PER_OCTAVE + 1
# Durations that are kept before they are put into their buckets.
_PORTION = 256


class Histogram:
    """How long things took, in seconds.

    Attributes:
        zeros: Durations of zero that were counted here, instead of calling ``add`` with a zero: a wait of zero is a
            measured zero.
    """

    __slots__ = ("_buckets", "_fresh", "_longest", "_total", "zeros")

    def __init__(self) -> None:
        self.zeros = 0
        self._total = 0.0
        self._longest = 0.0
        # Number k counts durations from the shortest times 2 ** (k / 16) up to that times 2 ** ((k + 1) / 16).
        self._buckets = array("q", bytes(8 * _BUCKETS))
        # Not in their buckets yet.
        self._fresh = array("d")

    def add(self, seconds: float) -> None:
        """Count one duration; what is negative or no number counts as zero."""
        self._fresh.append(seconds)
        if len(self._fresh) >= _PORTION:
            self._sort_in()

    @property
    def count(self) -> int:
        """The number of durations, zeros included."""
        self._sort_in()
        return self.zeros + sum(self._buckets)

    @property
    def longest(self) -> float:
        """The exact maximum; 0.0 if there is none."""
        self._sort_in()
        return self._longest

    @property
    def mean(self) -> float | None:
        """The exact mean, or ``None`` if nothing was counted."""
        count = self.count
        return self._total / count if count else None

    def quantile(self, q: float) -> float | None:
        """The value that a share ``q`` of all values does not exceed (nearest rank), within 1/32 of itself.

        Returns:
            Seconds, or ``None`` if nothing was counted.
        """
        rank = max(ceil(q * self.count), 1) - self.zeros
        if rank <= 0:
            return 0.0
        bucket = bisect_left(list(accumulate(self._buckets)), rank)
        if bucket == _BUCKETS:
            return None
        return min(exp2((bucket + 0.5) / _PER_OCTAVE + _FIRST_OCTAVE), self._longest)

    def _sort_in(self) -> None:
        """Put what is fresh into its buckets."""
        if not self._fresh:
            return
        import numpy as np  # here: whoever only imports embedkit does not wait for it

        fresh, self._fresh = np.asarray(self._fresh), array("d")
        measured = np.minimum(fresh[fresh >= _SHORTEST], _LONGEST)  # neither what is negative nor what is no number
        self.zeros += len(fresh) - len(measured)
        self._total += float(measured.sum())
        self._longest = max(self._longest, float(measured.max(initial=0.0)))
        keys = ((np.log2(measured) - _FIRST_OCTAVE) * _PER_OCTAVE).astype(np.intp)
        np.frombuffer(self._buckets, np.int64)[:] += np.bincount(keys, minlength=_BUCKETS)
