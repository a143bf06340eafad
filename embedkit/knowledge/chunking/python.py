"""Python's own structure, without a parser: statements, classes, functions.

A parser would be exact where a file parses and nothing where it does not, and takes 3 to 5 s for the standard library;
the same chunks must come out on every machine, whatever is installed and whichever Python runs. What chunking needs is
little: on which lines statements begin, how far they are indented, and which of them define something. One regular
expression finds strings and comments; what brackets are left outside of them says where lines continue; the rest is
indentation. A test holds the definitions against ``ast`` for every file of the standard library.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from embedkit.knowledge.chunking.outline import Definition, Outline, nest
from embedkit.knowledge.chunking.page import Page

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Strings and comments. Possessive, so that no text makes it go back; one that is never closed goes on to the end of
# its line, or of the text.
_OPAQUE = re.compile(
    rb'("""[^"\\]*+(?:(?:\\.|"(?!""))[^"\\]*+)*+(?:""")?+'
    rb"|'''[^'\\]*+(?:(?:\\.|'(?!''))[^'\\]*+)*+(?:''')?+"
    rb'|"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"?+'
    rb"|'[^'\\\n]*+(?:\\.[^'\\\n]*+)*+'?+"
    rb"|#[^\n]*+)",
    re.DOTALL,
)
_DEFINES = re.compile(rb"(?:async[ \t]++)?+(def|class)[ \t]++([^\s(:\[#\\]++)|(@)(?!=)")
_CONTINUES = re.compile(rb"(?:else|elif|except|finally)\b")
_BRACKETS = bytes(1 if byte in b"([{" else 255 if byte in b")]}" else 0 for byte in range(256))
_DEFINING_LETTERS = (b"de", b"cl", b"as", b"@")
_CONTINUING_LETTERS = (b"el", b"ex", b"fi")

_MAX_LEVEL = 60  # columns of indentation that are told apart
_DEFINITION, _AFTER_BLANK, _PLAIN, _CONTINUATION = 0, 1, 2, 4  # what a cut costs beside its level; 3 a column


def outline(page: Page) -> Outline:
    """Where a Python text may be cut, and what it defines."""
    lines = _Statements(page)
    cuts, costs = _cuts(page, lines)
    return Outline(cuts, costs, _definitions(page, lines))


class _Statements:
    """The lines on which statements and whole-line comments begin.

    Attributes:
        lines: Where statements begin, (n,) int64, ascending.
        comments: Which lines of the page hold a comment only, (page.count,) bool.
        openings: For each definition, its position in ``lines``, that of its first decorator, and what it opens.
    """

    def __init__(self, page: Page) -> None:
        import numpy as np

        # Of what ``split`` returns every other part is a string or comment: offsets without a Python step for each.
        parts = _OPAQUE.split(page.data)
        edges = np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)))
        self._begins, self._ends = edges[:-1:2], edges[1::2]
        self._visible = b"".join(parts[::2])
        self._raw = np.frombuffer(page.data, np.uint8)
        inked = np.flatnonzero(~page.blank)
        # The line end before a line that continues a string lies within that string.
        fresh = inked[~self._hidden(page.starts[inked] - 1)]
        is_comment = self._raw[page.first[fresh]] == ord("#")
        self.comments: NDArray[np.bool_] = np.zeros(page.count, np.bool_)
        self.comments[fresh[is_comment]] = True
        fresh = fresh[~is_comment]
        if b"\\\n" in page.data or b"\\\r\n" in page.data:
            fresh = fresh[~self._after_backslash(page, fresh)]
        depth = self._depth(page, fresh)
        within = depth > 0
        # No definition can stand within brackets: where one does, a bracket was never closed and they say nothing.
        if within.any() and not _openings(page, fresh[within], self._raw):
            fresh = fresh[~within]
        self.lines: NDArray[np.int64] = fresh
        self.openings = _openings(page, fresh, self._raw)

    def _hidden(self, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which offsets lie inside a string or comment."""
        import numpy as np

        if not len(self._begins):
            return np.zeros(len(offsets), np.bool_)
        nearest = np.searchsorted(self._begins, offsets, side="right") - 1
        hidden: NDArray[np.bool_] = (nearest >= 0) & (offsets < self._ends[nearest])
        return hidden

    def _after_backslash(self, page: Page, lines: NDArray[np.int64]) -> NDArray[np.bool_]:
        import numpy as np

        before = page.starts[lines] - 2
        before -= self._raw[np.maximum(before, 0)] == ord("\r")
        joined: NDArray[np.bool_] = (before >= 0) & (self._raw[np.maximum(before, 0)] == ord("\\"))
        joined[joined] = ~self._hidden(before[joined])
        return joined

    def _depth(self, page: Page, lines: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many brackets are open at the start of each line."""
        import numpy as np

        signs = np.frombuffer(self._visible.translate(_BRACKETS), np.int8)
        brackets = np.flatnonzero(signs != 0)
        open_ones = np.concatenate(([0], np.cumsum(signs[brackets], dtype=np.int64)))
        hidden = np.concatenate(([0], np.cumsum(self._ends - self._begins)))
        starts = page.starts[lines]
        starts -= hidden[np.searchsorted(self._begins, starts)]
        depth: NDArray[np.int64] = open_ones[np.searchsorted(brackets, starts)]
        return depth


_Mark = tuple[int, int, str, bool]  # position of the statement, of its first decorator, name, whether a class


def _openings(page: Page, lines: NDArray[np.int64], raw: NDArray[np.uint8]) -> list[_Mark]:
    """The definitions among the statements that begin on ``lines``."""
    positions = _beginning_with(page, lines, raw, _DEFINING_LETTERS)
    offsets = page.first[lines[positions]].tolist()
    found: list[_Mark] = []
    decorated_at = expected = -1
    for position, offset in zip(positions.tolist(), offsets, strict=True):
        match = _DEFINES.match(page.data, offset)
        if match is None:
            continue
        start = decorated_at if position == expected else position
        kind, name, decorator = match.groups()
        if decorator:
            decorated_at, expected = start, position + 1
        else:
            found.append((position, start, name.decode("utf-8", "surrogatepass"), kind == b"class"))
            expected = -1
    return found


def _beginning_with(
    page: Page, lines: NDArray[np.int64], raw: NDArray[np.uint8], heads: tuple[bytes, ...]
) -> NDArray[np.int64]:
    """Positions of those ``lines`` whose ink begins with one of ``heads`` (one or two bytes each)."""
    import numpy as np

    begins = page.first[lines]
    one, two = raw[begins], raw[begins + 1]
    chosen = np.zeros(len(lines), np.bool_)
    for head in heads:
        chosen |= (one == head[0]) & (two == head[1]) if len(head) == 2 else one == head[0]
    return np.flatnonzero(chosen)


def _definitions(page: Page, statements: _Statements) -> list[Definition]:
    import numpy as np

    if not statements.openings:
        return []
    marks = statements.openings
    lines, indent = statements.lines, page.indent[statements.lines]
    places = np.array([(start, position) for position, start, _, _ in marks])
    opens = lines[places].tolist()
    levels = indent[places[:, 1]].tolist()
    opening_at = {
        start: Definition(first, line, level, name, is_class)
        for (_, start, name, is_class), (first, line), level in zip(marks, opens, levels, strict=True)
    }
    # Only a statement less indented than the one before it can close a definition, or one that follows a definition
    # of a single line.
    closes = np.concatenate(([False], indent[1:] < indent[:-1], [True]))
    closes[places[:, 0]] = True
    closes[np.minimum(places[:, 1] + 1, len(lines))] = True
    events = np.flatnonzero(closes[:-1])
    opened = [opening_at.get(position) for position in events.tolist()]
    found = nest(zip(lines[events].tolist(), indent[events].tolist(), opened, strict=True), page.count - 1, ".")
    _trim(page, statements, found)
    return found


def _trim(page: Page, statements: _Statements, found: list[Definition]) -> None:
    """Let definitions end on their last line of code: what blanks and comments follow belong to what follows."""
    import numpy as np

    code = np.where(page.blank | statements.comments, 0, np.arange(page.count))
    last = np.maximum.accumulate(code).tolist()
    for definition in found:
        definition.end = last[definition.end]


def _cuts(page: Page, statements: _Statements) -> tuple[list[int], list[int]]:
    """A cut before each statement, moved up over the comment that stands right above it, and before lone comments."""
    import numpy as np

    lines, comments = statements.lines, statements.comments
    level = np.minimum(page.indent, _MAX_LEVEL) * 3
    cost = np.full(page.count, -1, np.int64)
    starts = lines
    if comments.any():
        above = np.maximum.accumulate(np.where(comments, -1, np.arange(page.count)))  # last line that is no comment
        starts = lines.copy()
        attached = (lines > 0) & comments[np.maximum(lines - 1, 0)]
        starts[attached] = above[lines[attached] - 1] + 1
        heads = np.flatnonzero(comments & ~np.concatenate(([False], comments[:-1])))
        cost[heads] = level[heads] + np.where(page.after_blank[heads], _AFTER_BLANK, _PLAIN)
    costs = level[lines] + np.where(page.after_blank[starts], _AFTER_BLANK, _PLAIN)
    costs[_continuations(page, lines)] += _CONTINUATION
    keep = np.ones(len(lines), np.bool_)
    for position, start, _, _ in statements.openings:
        costs[start] = level[lines[start]] + _DEFINITION
        keep[start + 1 : position + 1] = False
    cost[starts[keep]] = costs[keep]
    first = int(np.argmin(page.blank))
    cost[first] = max(0, int(cost[first]))
    cuts = np.flatnonzero(cost >= 0)
    cuts = cuts[cuts >= first]
    return cuts.tolist(), cost[cuts].tolist()


def _continuations(page: Page, lines: NDArray[np.int64]) -> list[int]:
    """Positions of the statements that go on with the one before: ``else`` and its kin."""
    import numpy as np

    positions = _beginning_with(page, lines, np.frombuffer(page.data, np.uint8), _CONTINUING_LETTERS)
    offsets = page.first[lines[positions]].tolist()
    return [
        position
        for position, offset in zip(positions.tolist(), offsets, strict=True)
        if _CONTINUES.match(page.data, offset)
    ]
