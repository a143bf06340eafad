"""What a chunker knows of a text: where it may be cut, how gladly, and which definition encloses which lines."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

import attrs

from embedkit.knowledge.chunking.tokens import UNITS

MAX_DEPTH = 12  # definitions nested deeper carry the name of the one that encloses them
MAX_SCOPE = 240  # characters
LONG_COMMENT = 96 * UNITS
"""A comment from here on may be parted from what it stands above, before that itself is cut."""


@attrs.define(eq=False)
class Definition:
    """A class, function or section.

    Attributes:
        start: Its first line, 0-based: that of its first decorator, where it has any.
        opens: The line that names it.
        level: Its indentation, or a section's rank: it ends where this or a lower level is reached again.
        name: Its own name; ``nest`` makes it the full one.
        holds_members: Whether its members are worth naming (a class or a section, not a function).
        end: Its last line, inclusive.
        parent: Position of the definition that encloses it, or -1.
        depth: How many enclose it.
    """

    start: int
    opens: int
    level: int
    name: str
    holds_members: bool
    end: int = -1
    parent: int = -1
    depth: int = 0


@attrs.frozen
class Outline:
    """Where one text may be cut.

    Attributes:
        cuts: Lines (0-based, ascending) before which a cut makes sense; the first is the first line with ink.
        costs: For each cut, what it would tear apart: the least is cut first.
        definitions: In order of their start.
    """

    cuts: list[int]
    costs: list[int]
    definitions: list[Definition]


def nest(events: Iterable[tuple[int, int, Definition | None]], last_line: int, joint: str) -> list[Definition]:
    """Close each definition where its level is reached again, and give it its parent and full name.

    Args:
        events: ``(line, level, definition or None)`` in order: each line that opens a definition, and at least
            each that closes one.
        last_line: The text's last line.
        joint: What stands between the parts of a full name.

    Returns:
        The definitions in order. Their ends may still lie on blank lines.
    """
    found: list[Definition] = []
    levels: list[int] = [-1]
    open_ones: list[int] = [-1]
    for line, level, opened in events:
        while levels[-1] >= level:
            levels.pop()
            found[open_ones.pop()].end = line - 1
        if opened is None:
            continue
        opened.end = last_line
        parent = open_ones[-1]
        if parent >= 0:
            outer = found[parent]
            opened.parent, opened.depth = parent, outer.depth + 1
            opened.name = f"{outer.name}{joint}{opened.name}" if opened.depth < MAX_DEPTH else outer.name
        levels.append(level)
        open_ones.append(len(found))
        found.append(opened)
    return found


class Scopes:
    """Answers what a run of lines should be called."""

    def __init__(self, definitions: Sequence[Definition]) -> None:
        self._definitions = definitions
        self._starts = [definition.start for definition in definitions]
        self._opens = [definition.opens for definition in definitions]

    def name(self, start: int, end: int) -> str:
        """The scope of the lines ``start`` to ``end`` (inclusive).

        Inside a function: its full name. Where several definitions begin: their names, those of members rather than
        of the class around them where there is room, so that a search by name finds the chunk. Else the name of the
        class or section around the lines, or ``""``.
        """
        names = [*self._cut_off(start, end), *self._beginning(start, end)]
        if names:
            return _joined(list(dict.fromkeys(names)))
        here = self._around(start, end)
        here = here if here >= 0 else self._around(start, start)
        return self._definitions[here].name if here >= 0 else ""

    def _around(self, start: int, end: int) -> int:
        here = bisect_right(self._starts, start) - 1
        while here >= 0 and self._definitions[here].end < end:
            here = self._definitions[here].parent
        return here

    def _cut_off(self, start: int, end: int) -> list[str]:
        """The name of the function in which the lines begin, unless that function begins with them."""
        here = self._around(start, start)
        while here >= 0 and self._definitions[here].holds_members:
            here = self._definitions[here].parent
        if here < 0 or start <= self._definitions[here].opens <= end:
            return []
        return [self._definitions[here].name]

    def _beginning(self, start: int, end: int) -> list[str]:
        """Names of the definitions that begin in the lines, as deep as there is room for."""
        low, high = bisect_left(self._opens, start), bisect_right(self._opens, end)
        inside = range(low, high)
        chosen = [k for k in inside if self._definitions[k].parent not in inside]
        below: dict[int, list[int]] = {}
        for k in inside:
            below.setdefault(self._definitions[k].parent, []).append(k)
        while True:
            deeper: list[int] = []
            for k in chosen:
                inner = below.pop(k, [])
                if not inner or not self._definitions[k].holds_members:
                    deeper.append(k)
                deeper += inner
            # Of one class alone the members are named, however many: it is in each of their names.
            if deeper == chosen or (len(chosen) > 1 and not _fits(self._names(deeper))):
                return self._names(chosen)
            chosen = deeper

    def _names(self, chosen: Sequence[int]) -> list[str]:
        return [self._definitions[k].name for k in chosen]


def _fits(names: list[str]) -> bool:
    """Whether ``names`` are told in full."""
    shown, around = len(names[0]), _around(names[0])
    for name in names[1:]:
        shown += 2 + len(name) - (len(around) if around and _around(name) == around else 0)
        around = _around(name)
    return shown <= MAX_SCOPE


def _joined(names: list[str]) -> str:
    """The names in one line; what several have before their last joint is said once: ``Base.find, where``."""
    text, around = names[0][:MAX_SCOPE], _around(names[0])
    for name in names[1:]:
        shown = name.removeprefix(around) if around and _around(name) == around else name
        if len(text) + 2 + len(shown) > MAX_SCOPE:
            break
        text, around = f"{text}, {shown}", _around(name)
    return text


def _around(name: str) -> str:
    return name[: name.rfind(".") + 1]
