"""Prose: Markdown and reStructuredText by their headings, any other text by its paragraphs."""

from __future__ import annotations

import re

from embedkit.knowledge.chunking.outline import Definition, Outline, nest
from embedkit.knowledge.chunking.page import Page

_MARKDOWN = frozenset({"md", "markdown", "mdx", "mkd", "qmd", "rmd"})
_RESTRUCTURED = frozenset({"rst", "rest"})
_PLAIN = frozenset({"txt", "text", "adoc", "asciidoc", "org", "textile"})
_BARE_NAMES = frozenset(
    {"readme", "license", "licence", "copying", "authors", "contributors", "notice", "install"}
    | {"changelog", "changes", "news", "history", "todo"}
)

# As CommonMark has it: what opens a block with backticks has none in its info, else it is an inline code span.
_FENCE = re.compile(rb"(`{3,}(?=[^`]*+\Z)|~{3,})")
_DELIMITER = re.compile(rb"\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t\r]*")
_FRONT_MATTER = {b"---": (b"---", b"..."), b"+++": (b"+++",)}
_TABLE_LEVEL = 50  # below every heading
_RULE = re.compile(rb"([!-/:-@\[-`{-~])\1{2,}[ \t\r]*$")
_MARKDOWN_RULES = {b"=": 1, b"-": 2}
_MAX_TITLE = 120  # bytes
_MOST_FRONT_MATTER = 400  # lines
_PARAGRAPH, _LINE, _ROW, _FENCED = 10, 40, 45, 60  # costs; a heading's is its level


def speaks(suffix: str, name: str) -> bool:
    """Whether a file of this name holds prose."""
    return suffix in _MARKDOWN or suffix in _RESTRUCTURED or suffix in _PLAIN or name in _BARE_NAMES


def outline(page: Page, suffix: str) -> Outline:
    """Where a text may be cut: before its sections, then its paragraphs, then its lines."""
    reader = _Reader(page, suffix)
    lines, costs = reader.read()
    events: list[tuple[int, int, Definition | None]] = [
        (opening.start, opening.level, opening) for opening in reader.headings
    ]
    events += reader.tables
    events.sort(key=lambda event: event[0])
    return Outline(lines, costs, nest(events, page.count - 1, " > "))


class _Reader:
    """One walk over the lines, with the fence that is open and the ranks that underlines have had so far."""

    def __init__(self, page: Page, suffix: str) -> None:
        self._page = page
        # Plain lists and one slice a line: looked up in numpy's arrays, each of half a million short lines costs 5 us.
        self._indent: list[int] = page.indent.tolist()
        bounds = zip(page.first.tolist(), page.starts[1:].tolist(), strict=True)
        self._texts = [page.data[begin : min(end - 1, begin + 2 * _MAX_TITLE)] for begin, end in bounds]
        self._texts.append(b"")  # after the last line
        self._markdown = suffix in _MARKDOWN
        self._restructured = suffix in _RESTRUCTURED
        self._fence = b""
        self._ranks: dict[tuple[bytes, bool], int] = {}
        self._table = False
        self._table_head = -1
        self.headings: list[Definition] = []
        self.tables: list[tuple[int, int, Definition | None]] = []

    def read(self) -> tuple[list[int], list[int]]:
        page = self._page
        lines = [line for line, blank in enumerate(page.blank.tolist()) if not blank]
        after_blank, indent = page.after_blank.tolist(), self._indent
        costs = []
        skip_before = 0
        data_before = self._after_front_matter()
        for line in lines:
            if line < data_before:
                costs.append(_FENCED + (0 if line == 0 else 1))
                continue
            if self._fenced(line):
                costs.append(_FENCED + (0 if after_blank[line] else 1))
                continue
            heading, skip = (None, 0) if line < skip_before else self._heading(line)
            if heading is not None:
                self.headings.append(heading)
                costs.append(heading.level)
                skip_before = skip
            elif self._in_table(line, after_blank[line]):
                costs.append(_ROW if self._table_head != line else _PARAGRAPH)
            elif after_blank[line] and line >= skip_before:
                costs.append(_PARAGRAPH + min(indent[line] // 2, 8))
            else:
                costs.append(_FENCED + 2 if line < skip_before else _LINE)
        return lines, costs

    def _text(self, line: int) -> bytes:
        """The line's ink, up to what a title may have."""
        return self._texts[line]

    def _fenced(self, line: int) -> bool:
        """Whether the line lies in a fenced block of Markdown, whose opening line may be cut before."""
        if not self._markdown:
            return False
        text = self._text(line)
        match = _FENCE.match(text) if self._indent[line] < 4 and text[:1] in (b"`", b"~") else None
        if not self._fence:
            self._fence = match[1] if match else b""
            return False
        if match and match[1].startswith(self._fence) and not self._text(line)[match.end() :].strip():
            self._fence = b""
        return True

    def _after_front_matter(self) -> int:
        """The line after the data that a text of Markdown begins with, or 0."""
        ends = _FRONT_MATTER.get(self._text(0).rstrip()) if self._markdown and self._indent[0] == 0 else None
        if ends is None:
            return 0
        lines = range(1, min(self._page.count, _MOST_FRONT_MATTER))
        return next((line + 1 for line in lines if self._text(line).rstrip() in ends), 0)

    def _in_table(self, line: int, after_blank: bool) -> bool:
        """Whether the line is a row of a table of Markdown; its head is a scope, which goes with each of its chunks."""
        if not self._markdown:
            return False
        text = self._text(line)
        if self._table and (after_blank or b"|" not in text):
            self._table = False
            self.tables.append((line, _TABLE_LEVEL, None))
        if (
            not self._table
            and b"|" in text
            and _DELIMITER.fullmatch(self._text(line + 1))
            and b"|" in self._text(line + 1)
        ):
            self._table = True
            self._table_head = line
            self.tables.append((line, _TABLE_LEVEL, self._opening(line, _TABLE_LEVEL, text.strip(b"| \t\r"))))
        return self._table

    def _heading(self, line: int) -> tuple[Definition | None, int]:
        """The heading that begins on the line, and the line after it."""
        if self._markdown:
            found = _hashed(self._text(line)) if self._indent[line] < 4 else None
            if found:
                return self._opening(line, *found), line + 1
            level = self._underlined(line)
            if level and level[0] in _MARKDOWN_RULES:
                return self._opening(line, _MARKDOWN_RULES[level[0]], self._text(line)), line + 2
        if self._restructured and self._indent[line] < 2:
            return self._section(line)
        return None, 0

    def _section(self, line: int) -> tuple[Definition | None, int]:
        """A title of reStructuredText: underlined, or between two rules; ranks are in order of appearance."""
        over = _RULE.match(self._text(line))
        title = line + 1 if over else line
        under = self._underlined(title) if title < self._page.count and not self._page.blank[title] else None
        if not under or (over and over[1] != under[0]):
            return None, 0
        rank = self._ranks.setdefault((under[0], bool(over)), min(len(self._ranks) + 1, _PARAGRAPH - 1))
        return self._opening(line, rank, self._text(title)), title + 2

    def _underlined(self, line: int) -> tuple[bytes, int] | None:
        """The sign and length of the rule under a line of text that begins a paragraph."""
        rule = _RULE.match(self._text(line + 1))  # first, since few lines are one
        title = self._text(line).strip()
        if rule is None or not title or len(title) > _MAX_TITLE or _RULE.match(title):
            return None
        if self._restructured and len(rule[0].strip()) < len(title.decode("utf-8", "replace")):
            return None
        return rule[1], len(rule[0].strip())

    def _opening(self, line: int, level: int, title: bytes) -> Definition:
        name = " ".join(title[:_MAX_TITLE].decode("utf-8", "replace").split())
        return Definition(line, line, level, name, True)


def _hashed(text: bytes) -> tuple[int, bytes] | None:
    """Level and title of a heading that begins with ``#``; an expression for it would go back over every blank."""
    rest = text.lstrip(b"#")
    level = len(text) - len(rest)
    if not 1 <= level <= 6 or rest[:1] not in (b" ", b"\t"):
        return None
    title = rest.strip(b" \t\r")
    return level, title.rstrip(b"#").rstrip(b" \t")
