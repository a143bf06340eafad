"""A text cut into lines, with what every chunker asks about a line: where it is, its indentation, its weight."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from embedkit.knowledge.chunking.tokens import byte_weights

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_BLANK = b" \t\r\f\v\n"
_TAB_WIDTH = 8
_MARKS = bytes(1 if byte in _BLANK else 0 for byte in range(256))


class Page:
    r"""The lines of one text, as bytes.

    Lines end with ``\n`` (in a text without any, with ``\r``) and nothing else: a form feed or a Unicode separator is
    part of its line, as editors and compilers count them. Bytes rather than characters, because regular expressions
    and numpy then share offsets.

    Attributes:
        data: The text in UTF-8 (lone surrogates passed through), closed by a line end.
        count: Number of lines.
        starts: Offset of each line and the end of the data, (count + 1,) int64.
        first: Offset of the first byte of each line that is not white space, or its end for a blank line, (count,).
        blank: Which lines hold white space only, (count,) bool.
    """

    def __init__(self, text: str) -> None:
        import numpy as np

        data = text.encode("utf-8", "surrogatepass")
        inner = data.rstrip(b"\r\n")
        if b"\r" in inner and b"\n" not in inner:
            data = data.replace(b"\r", b"\n")  # old Macs end lines so
        self.data = data if data.endswith(b"\n") else data + b"\n"
        raw = np.frombuffer(self.data, np.uint8)
        self.starts: NDArray[np.int64] = np.concatenate(([0], np.flatnonzero(raw == ord("\n")) + 1))
        self.count = len(self.starts) - 1
        space = np.frombuffer(self.data.translate(_MARKS), np.bool_)
        # A line's first inked byte follows white space or the line end before it: few bytes are left to search.
        turns = np.flatnonzero(space[:-1] > space[1:]) + 1
        inked = np.concatenate((turns[:0] if space[0] else [0], turns, [len(self.data)]))
        ends = self.starts[1:]
        self.first: NDArray[np.int64] = np.minimum(inked[np.searchsorted(inked, self.starts[:-1])], ends)
        self.blank: NDArray[np.bool_] = self.first == ends
        if data.startswith(b"\xef\xbb\xbf"):  # a byte order mark is ink to nobody
            self._skip_mark()

    def _skip_mark(self) -> None:
        line = self.data[3 : int(self.starts[1])]
        self.first[0] = 3 + len(line) - len(line.lstrip(_BLANK))
        self.blank[0] = not line.strip(_BLANK)

    @cached_property
    def indent(self) -> NDArray[np.int64]:
        """Width of each line's indentation in columns, (count,); of a blank line: meaningless."""
        import numpy as np

        width = self.first - self.starts[:-1]
        if self.data.startswith(b"\xef\xbb\xbf"):
            width[0] = max(0, width[0] - 3)
        raw = np.frombuffer(self.data, np.uint8)
        tabs = np.flatnonzero(raw == ord("\t"))
        if len(tabs):
            lines = np.searchsorted(self.starts, tabs, side="right") - 1
            for line in np.unique(lines[tabs < self.first[lines]]).tolist():
                head = self.data[self.starts[line] : self.first[line]]
                width[line] = len(head.expandtabs(_TAB_WIDTH))
        return width

    @cached_property
    def weight(self) -> list[int]:
        """Estimated units of all lines before each line, and of the whole: ``count + 1`` integers."""
        import numpy as np

        sums = np.add.reduceat(byte_weights(self.data), self.starts[:-1], dtype=np.int64)
        return [0, *np.cumsum(sums).tolist()]

    @cached_property
    def after_blank(self) -> NDArray[np.bool_]:
        """Which lines follow a blank one or begin the text, (count,) bool."""
        import numpy as np

        return np.concatenate(([True], self.blank[:-1]))

    def text(self, start: int, end: int) -> str:
        """The lines from ``start`` up to ``end``, as they stand in the text, without the last line end."""
        piece = self.data[self.starts[start] : self.starts[end]]
        cut = 2 if piece.endswith(b"\r\n") else 1
        return piece[:-cut].decode("utf-8", "surrogatepass")
