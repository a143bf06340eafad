"""Halves of a chunk that an engine finds too long: cut between lines, and a line between characters. Pure.

Chunks are cut by an estimate of their tokens, and a window is known to its engine alone. What the engine refuses is
halved, and its halves again where they are refused too; so the same text is always cut at the same places, and all of
its ink is in the parts.
"""

from __future__ import annotations

from itertools import accumulate

import attrs

from embedkit.knowledge.chunking.tokens import estimate_tokens
from embedkit.knowledge.model import Chunk

LEAST_CHARACTERS = 16
"""A text below it is not halved: an engine that finds it too long has another reason."""


def halves(chunk: Chunk) -> list[Chunk]:
    """The halves of ``chunk``, each with its own lines, and with its scope and ordinal.

    Returns:
        Two chunks, each shorter than ``chunk``; one where the other half would be blank; none of a text of less than
        ``LEAST_CHARACTERS``.
    """
    if len(chunk.text) < LEAST_CHARACTERS:
        return []
    lines = chunk.text.split("\n")
    inked = [number for number, line in enumerate(lines) if line.strip()]
    if len(inked) < 2:
        return [_part(chunk, number, number, text) for number in inked for text in _of_line(lines[number])]
    cut = _between_lines(lines, inked)
    ranges = ((inked[0], inked[cut - 1]), (inked[cut], inked[-1]))
    return [_part(chunk, first, last, "\n".join(lines[first : last + 1])) for first, last in ranges]


def _between_lines(lines: list[str], inked: list[int]) -> int:
    """Position among the inked lines of the one that begins nearest to the middle; not the first."""
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    return min(range(1, len(inked)), key=lambda k: abs(2 * starts[inked[k]] - starts[-1]))


def _of_line(line: str) -> list[str]:
    """The line, cut after the white space nearest to its middle, or there; without a blank half."""
    middle = len(line) // 2
    spaces = (at + 1 for at in range(len(line) // 4, len(line) * 3 // 4) if line[at].isspace())
    cut = min(spaces, key=lambda at: abs(at - middle), default=middle)
    return [half for half in (line[:cut], line[cut:]) if half.strip()]


def _part(chunk: Chunk, first: int, last: int, text: str) -> Chunk:
    text = text.removesuffix("\r")
    start = chunk.start_line
    return attrs.evolve(chunk, start_line=start + first, end_line=start + last, text=text, tokens=estimate_tokens(text))
