"""What no structure divides: a literal of a thousand lines, a line of a million characters."""

from __future__ import annotations

from collections.abc import Iterator

from embedkit.knowledge.chunking.outline import Outline
from embedkit.knowledge.chunking.packing import Sizes, pack
from embedkit.knowledge.chunking.page import Page
from embedkit.knowledge.chunking.tokens import HEAVIEST_PAIR, byte_weights

_SPACE = b" \t\r\f\v"
_MAX_LEVEL = 16
_ENDS = (b"},", b"};")


def split_lines(page: Page, start: int, end: int, sizes: Sizes) -> list[tuple[int, int]]:
    """Cut the lines ``start`` up to ``end`` between any two, least indented and after blank lines first."""
    lines = [line for line in range(start, end) if not page.blank[line]]
    costs = [min(int(page.indent[line]) // 2, _MAX_LEVEL) * 2 + (0 if page.after_blank[line] else 1) for line in lines]
    return pack(Outline(lines, costs, []), page.weight, sizes, end)


def split_characters(page: Page, line: int, sizes: Sizes) -> Iterator[str]:
    """Cut one line into pieces of at most ``sizes.target``: between objects, else at white space near their ends."""
    import numpy as np

    data = page.data[page.starts[line] : page.starts[line + 1]].rstrip(b"\r\n")
    limit = min(sizes.target, sizes.most - 2 * HEAVIEST_PAIR)
    before = np.concatenate(([0], np.cumsum(byte_weights(data), dtype=np.int64)))
    start = 0
    while start < len(data):
        end = max(start + 1, int(np.searchsorted(before, before[start] + limit, side="right")) - 1)
        if end < len(data):
            end = (
                _between_objects(data, start + (end - start) // 4, end)
                or _at_space(data, end - (end - start) // 4, end)
                or _at_character(data, start, end)
            )
        yield data[start:end].decode("utf-8", "surrogatepass")
        start = end


def _between_objects(data: bytes, low: int, high: int) -> int:
    """The offset after the last end of an object in ``data[low:high]``, or 0."""
    at = max(data.rfind(end, low, high) for end in _ENDS)
    if at < 0:
        return 0
    return at + 2 + (data[at + 2 : at + 3] == b" " and at + 3 <= high)


def _at_space(data: bytes, low: int, high: int) -> int:
    """The offset after the last white space in ``data[low:high]``, or 0."""
    return 1 + max(data.rfind(sign, low, high) for sign in (b" ", b"\t"))


def _at_character(data: bytes, start: int, end: int) -> int:
    """The nearest offset to ``end`` that does not tear a character, after ``start``."""
    here = end
    while here > start and data[here] & 0xC0 == 0x80:
        here -= 1
    while here == start or (here < len(data) and data[here] & 0xC0 == 0x80):
        here += 1
    return here
