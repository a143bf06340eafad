"""Flat data: rows, one a line, that say nothing about where to cut. Borders are found in the content.

Cut by size alone, a row that is put into the middle of a table shifts every border behind it, and half the file is
bought again. So a range that is too large is cut before the row with the lowest hash in it, and its halves again: the
cuts form a treap, whose shape hangs on the rows and not on their history. A new row changes the chunk that it is in.
"""

from __future__ import annotations

import zlib
from itertools import pairwise
from typing import TYPE_CHECKING

from embedkit.knowledge.chunking.packing import Sizes
from embedkit.knowledge.chunking.page import Page

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_TABLES = frozenset({"csv", "tsv", "psv", "tab"})
_ROWS = frozenset({"jsonl", "ndjson", "log"})
_MAX_HEAD = 120  # bytes
_DUMPED = (b"INSERT", b"insert", b"(", b"COPY", b"REPLACE")
_LOOKED_AT = 400  # lines of a script, to see whether it is a dump


def is_flat(page: Page, suffix: str) -> bool:
    """Whether a text is rows of data."""
    if suffix in _TABLES or suffix in _ROWS:
        return True
    if suffix != "sql":
        return False
    lines = [line for line in range(min(page.count, _LOOKED_AT)) if not page.blank[line]]
    dumped = sum(page.data.startswith(_DUMPED, int(page.first[line])) for line in lines)
    return len(lines) > 20 and dumped > 0.7 * len(lines)


def head(page: Page, suffix: str) -> str:
    """The names of a table's columns, which go with each of its chunks; empty for other rows."""
    if suffix not in _TABLES:
        return ""
    line = page.data[int(page.starts[0]) : int(page.starts[1])].removeprefix(b"\xef\xbb\xbf")
    return " ".join(line[:_MAX_HEAD].decode("utf-8", "ignore").split())


def rows(page: Page, sizes: Sizes) -> list[tuple[int, int]]:
    """Ranges of lines, none above a quarter more than the target, unless one line alone is larger."""
    import numpy as np

    starts = page.starts.tolist()
    hashes = np.fromiter((zlib.crc32(page.data[low:high]) for low, high in pairwise(starts)), np.int64, page.count)
    weight = np.asarray(page.weight, np.int64)
    margin = sizes.target // 4
    found: list[tuple[int, int]] = []
    pending = [(0, page.count)]
    while pending:
        start, end = pending.pop()
        if end - start == 1 or weight[end] - weight[start] <= sizes.whole:
            found.append((start, end))
            continue
        cut = _cut(hashes, weight, start, end, margin)
        pending += [(cut, end), (start, cut)]  # the left one first
    return found


def _cut(hashes: NDArray[np.int64], weight: NDArray[np.int64], start: int, end: int, margin: int) -> int:
    """The line of lowest hash that leaves a margin on both sides; of several, the one nearest to the middle."""
    import numpy as np

    low = max(int(np.searchsorted(weight, weight[start] + margin)), start + 1)
    high = min(int(np.searchsorted(weight, weight[end] - margin, side="right")) - 1, end - 1)
    middle = (weight[start] + weight[end]) // 2
    if low > high:  # a line that is larger than all the rest together
        low, high = start + 1, end - 1
        return low + int(np.argmin(np.abs(weight[low : high + 1] - middle)))
    least = np.flatnonzero(hashes[low : high + 1] == hashes[low : high + 1].min()) + low
    return int(least[np.argmin(np.abs(weight[least] - middle))])
