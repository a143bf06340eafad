"""Chunking: a text becomes the pieces that are embedded, each with its lines, its scope and an estimate of its tokens.

The kind of text is told by its name. Python, other code, prose and data each have an outline of their own (where it may
be cut, and how gladly); the packing is the same for all. Nothing is ever truncated: the chunks of a text hold every
line with ink on it, in order, once. What comes out depends on the text, its path and the limits alone, never on what
is installed.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from embedkit.knowledge.chunking import flat, indented, prose, python
from embedkit.knowledge.chunking.outline import Outline, Scopes
from embedkit.knowledge.chunking.oversize import split_characters, split_lines
from embedkit.knowledge.chunking.packing import Sizes, pack
from embedkit.knowledge.chunking.page import Page
from embedkit.knowledge.chunking.tokens import UNITS, estimate_tokens, in_tokens
from embedkit.knowledge.model import Chunk

__all__ = ["CHUNKING_GENERATION", "ChunkLimits", "chunk", "estimate_tokens"]

CHUNKING_GENERATION: int = 3
"""Raised whenever the same text, with the same limits, gives other chunks than before."""

_LEAST_TARGET = 16
_LIMIT_BITS = 20
_PYTHON = frozenset({"py", "pyi", "pyw", "ipynb"})


@attrs.frozen
class ChunkLimits:
    """How large chunks are, in estimated tokens.

    Attributes:
        target_tokens: Small neighbours are merged up to it. A function a quarter larger is still left whole.
        max_tokens: No chunk is larger.
    """

    target_tokens: int = attrs.field(default=240, validator=attrs.validators.ge(_LEAST_TARGET))
    max_tokens: int = attrs.field(default=512, validator=attrs.validators.lt(1 << _LIMIT_BITS))

    def __attrs_post_init__(self) -> None:
        if self.max_tokens < self.target_tokens:
            raise ValueError(
                f"max_tokens={self.max_tokens} is below target_tokens={self.target_tokens}: raise the first"
            )

    @property
    def generation(self) -> int:
        """What names the cutting: a document that was cut under another number is cut again. It fits SQLite's integer.

        Texts whose chunks come out the same keep their vectors, which belong to the chunks' inputs.
        """
        return (CHUNKING_GENERATION << 2 * _LIMIT_BITS) + (self.target_tokens << _LIMIT_BITS) + self.max_tokens

    @property
    def sizes(self) -> Sizes:
        """The limits in units."""
        target, most = self.target_tokens * UNITS, self.max_tokens * UNITS
        return Sizes(target, min(target * 5 // 4, most), most)


_DEFAULT_LIMITS = ChunkLimits()


def chunk(path: str, text: str, *, limits: ChunkLimits = _DEFAULT_LIMITS) -> list[Chunk]:
    """Cut a text into chunks.

    Args:
        path: The document's path; its suffix decides how structure is found.
        text: The whole text.
        limits: How large chunks are.

    Returns:
        The chunks in order, numbered from 0. Every line that is not blank lies in exactly one of them, but for a line
        too large for one, whose pieces follow one another with its number. Empty for a text without ink.
    """
    if not text or text.isspace():
        return []
    page = Page(text)
    if page.blank.all():
        return []
    sizes = limits.sizes
    chunks: list[Chunk] = []
    for start, end, scope in _scoped(path, page, sizes):
        for piece, units in _texts(page, start, end, sizes):
            chunks.append(Chunk(len(chunks), start + 1, end, piece, scope, max(1, in_tokens(units))))
    return chunks


def _scoped(path: str, page: Page, sizes: Sizes) -> Iterator[tuple[int, int, str]]:
    """Ranges of lines, without blank lines at their ends, each with its scope."""
    suffix = _suffix(path)
    if flat.is_flat(page, suffix):
        scope = flat.head(page, suffix)
        for start, end in flat.rows(page, sizes):
            inked = [line for line in range(start, end) if not page.blank[line]]
            if inked:
                yield inked[0], inked[-1] + 1, scope if start else ""
        return
    outline = outline_of(path, page)
    scopes = Scopes(outline.definitions)
    for start, end in _pieces(page, outline, sizes):
        yield start, end, scopes.name(start, end - 1)


def _suffix(path: str) -> str:
    name = path.rsplit("/", 1)[-1].lower()
    return name.rsplit(".", 1)[-1] if "." in name else ""


def outline_of(path: str, page: Page) -> Outline:
    """The outline of a text, by the suffix of its path."""
    name, suffix = path.rsplit("/", 1)[-1].lower(), _suffix(path)
    if suffix in _PYTHON or (page.data.startswith(b"#!") and b"python" in page.data[: page.starts[1]]):
        return python.outline(page)
    if prose.speaks(suffix, name):
        return prose.outline(page, suffix)
    return indented.outline(page, suffix)


def _pieces(page: Page, outline: Outline, sizes: Sizes) -> Iterator[tuple[int, int]]:
    """Ranges of lines, without blank lines at their ends."""
    import numpy as np

    last = np.maximum.accumulate(np.where(page.blank, -1, np.arange(page.count))).tolist()
    weight = page.weight
    for start, end in pack(outline, weight, sizes, page.count, split_later=True):
        if end - start > 1 and weight[end] - weight[start] > sizes.loose:
            for low, high in split_lines(page, start, end, sizes):
                yield low, last[high - 1] + 1
        else:
            yield start, last[end - 1] + 1


def _texts(page: Page, start: int, end: int, sizes: Sizes) -> Iterator[tuple[str, int]]:
    """The text of a range of lines and its units: one, or several of a line that is too large."""
    units = page.weight[end] - page.weight[start]
    if units <= sizes.most:
        piece = page.text(start, end)
        if not piece.isspace():
            yield piece, units
        return
    for piece in split_characters(page, start, sizes):
        if not piece.isspace():
            yield piece, estimate_tokens(piece) * UNITS
