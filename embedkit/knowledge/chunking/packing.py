"""From an outline to pieces of the right size: cut where it tears least, merge small neighbours, split what is left.

A range of lines that is too large is cut at all its cheapest cuts; pieces that are still too large are cut again, at
their own cheapest; small pieces that lie side by side are merged up to the target. So a chunk is a whole function
where it can be, several short methods of one class where they fit, and never the tail of one class with the head of
the next. Every level of cutting looks at each cut once, and the number of levels is bounded by the number of costs, so
the work grows in proportion to the text.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from embedkit.knowledge.chunking.outline import Outline

Span = tuple[int, int]  # positions in the list of cuts: from, up to


@attrs.frozen
class Sizes:
    """What sizes are wanted, in units.

    Attributes:
        target: Pieces are merged up to it.
        whole: A piece up to it is left whole.
        most: None is larger.
    """

    target: int
    whole: int
    most: int

    @property
    def tiny(self) -> int:
        """Pieces below it are glued to a neighbour: a lone header or brace says nothing to an embedding."""
        return self.target // 8

    @property
    def loose(self) -> int:
        """What a piece may have come to when tiny ones are glued to it."""
        return min(self.whole + self.tiny, self.most)


def pack(outline: Outline, weight: Sequence[int], sizes: Sizes, end: int) -> list[tuple[int, int]]:
    """Cut the lines from the first cut up to ``end``.

    Args:
        outline: Where to cut.
        weight: Units before each line.
        sizes: How large.
        end: The line after the last.

    Returns:
        Ranges of lines ``(start, end)`` in order, without a gap. One is above ``sizes.whole`` only if no cut of the
        outline lies inside it.
    """
    if not outline.cuts:
        return []
    packer = _Packer(outline, weight, sizes, end)
    spans: list[Span] = []
    packer.cut(0, len(outline.cuts), spans)
    return [(packer.lines[low], packer.lines[high]) for low, high in packer.glued(spans)]


class _Packer:
    def __init__(self, outline: Outline, weight: Sequence[int], sizes: Sizes, end: int) -> None:
        self.lines = [*outline.cuts, end]
        self._costs = outline.costs
        self._before = [weight[line] for line in self.lines]
        self._sizes = sizes

    def _size(self, low: int, high: int) -> int:
        return self._before[high] - self._before[low]

    def cut(self, low: int, high: int, spans: list[Span]) -> None:
        """Append the pieces of a range to ``spans``."""
        before, whole = self._before, self._sizes.whole
        if high - low == 1 or before[high] - before[low] <= whole:
            spans.append((low, high))
            return
        inner = self._costs[low + 1 : high]
        least = min(inner)
        run = [low]  # borders of the small pieces that wait to be merged
        left = low
        borders = [k for k, cost in enumerate(inner, low + 1) if cost == least]
        for right in [*borders, high]:
            if before[right] - before[left] > whole:
                self._merge(run, spans)
                self.cut(left, right, spans)
                run = [right]
            else:
                run.append(right)
            left = right
        self._merge(run, spans)

    def _merge(self, borders: list[int], spans: list[Span]) -> None:
        """Merge small pieces that lie side by side into even shares, none above the target where that can be."""
        if len(borders) < 2:
            return
        before, target = self._before, self._sizes.target
        start, end = borders[0], borders[-1]
        total = before[end] - before[start]
        share = total // max(1, -(-total // target))
        left = start
        for right in borders[1:]:
            if left > start and before[right] - before[start] > target:
                spans.append((start, left))
                start = left
            if right < end and before[right] - before[start] >= share:
                spans.append((start, right))
                start = right
            left = right
        spans.append((start, end))

    def glued(self, spans: list[Span]) -> list[Span]:
        """Glue tiny pieces to the neighbour from which the cheaper cut does not part them."""
        done: list[Span] = []
        for position, (low, high) in enumerate(spans):
            if done and self._joins(done[-1], (low, high), last=position + 1 == len(spans)):
                done[-1] = (done[-1][0], high)
            else:
                done.append((low, high))
        return done

    def _joins(self, left: Span, right: Span, *, last: bool) -> bool:
        if self._size(left[0], right[1]) > self._sizes.loose:
            return False
        tiny = self._sizes.tiny
        cost = self._costs[right[0]]
        if self._size(*left) < tiny and (left[0] == 0 or cost >= self._costs[left[0]]):
            return True
        return self._size(*right) < tiny and (last or cost >= self._costs[right[1]])
