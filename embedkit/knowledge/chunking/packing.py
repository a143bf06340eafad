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
        return self.target // 6

    @property
    def loose(self) -> int:
        """What a piece may have come to when tiny ones are glued to it."""
        return min(self.whole + self.tiny, self.most)


def pack(
    outline: Outline, weight: Sequence[int], sizes: Sizes, end: int, *, split_later: bool = False
) -> list[tuple[int, int]]:
    """Cut the lines from the first cut up to ``end``.

    Args:
        outline: Where to cut.
        weight: Units before each line.
        sizes: How large.
        end: The line after the last.
        split_later: Whether a piece of several lines without a cut will be cut between them. A tiny piece before it
            then goes with it: so a class header stays with the first lines of a docstring that has to be split.

    Returns:
        Ranges of lines ``(start, end)`` in order, without a gap. One is above ``sizes.loose`` only if no cut of the
        outline lies inside it.
    """
    if not outline.cuts:
        return []
    packer = _Packer(outline, weight, sizes, end)
    spans: list[Span] = []
    packer.cut(0, len(outline.cuts), spans)
    return [(packer.lines[low], packer.lines[high]) for low, high in packer.glued(spans, split_later)]


class _Packer:
    def __init__(self, outline: Outline, weight: Sequence[int], sizes: Sizes, end: int) -> None:
        self.lines = [*outline.cuts, end]
        self._costs = outline.costs
        self._before = [weight[line] for line in self.lines]
        self._sizes = sizes

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

    def glued(self, spans: list[Span], split_later: bool) -> list[Span]:
        """Glue tiny pieces to the neighbour from which the cheaper cut does not part them."""
        before, tiny, loose = self._before, self._sizes.tiny, self._sizes.loose
        done = spans[:1]
        for low, high in spans[1:]:
            start = done[-1][0]
            left, right = before[low] - before[start], before[high] - before[low]
            fits = left + right <= loose or (split_later and left < tiny and self._is_large_atom(low, high))
            if fits and (left < tiny or right < tiny) and self._belong(start, low, high, left < tiny):
                done[-1] = (start, high)
            else:
                done.append((low, high))
        return done

    def _is_large_atom(self, low: int, high: int) -> bool:
        large = self._before[high] - self._before[low] > self._sizes.loose
        return large and high - low == 1 and self.lines[high] - self.lines[low] > 1

    def _belong(self, start: int, low: int, high: int, left_is_tiny: bool) -> bool:
        """Whether the cut at ``low`` tears more than the one on the tiny piece's other side."""
        other = start if left_is_tiny else high
        at_the_edge = other == 0 or other == len(self._costs)
        return at_the_edge or self._costs[low] >= self._costs[other]
