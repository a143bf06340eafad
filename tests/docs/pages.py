"""The pages as a test reads them: fenced blocks, each with the comment before it that says how it is meant.

A page is one story in one folder: its blocks run from top to bottom, and its python blocks share a namespace.

- ``console``: each line after ``$`` is a command, and the lines below it are what it prints.
- ``python``: runs; ``<!-- prints -->`` before a later block says what it printed.
- ``toml``: is a settings file.
- ``<!-- file: NAME -->``: the block is written to that file instead.
- ``<!-- exit: N -->``: the commands end with N; else with 0.
- ``<!-- shape -->``: the keys of this JSON are those of the command before.
- ``<!-- not run: WHY -->``.
"""

from __future__ import annotations

import re
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])

_BLOCK = re.compile(r"^(?:<!-- (?P<note>[^\n]+) -->\n)?```(?P<language>[\w{}-]+)\n(?P<text>.*?)^```$", re.M | re.S)


@attrs.frozen
class Block:
    """One fenced block."""

    line: int
    language: str
    text: str
    note: str

    def noted(self, word: str) -> str | None:
        """What the comment says after ``word``, or ``None``."""
        found, _, rest = self.note.partition(":")
        return rest.strip() if found == word else None


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text("utf-8")
    return [
        Block(text.count("\n", 0, match.start()) + 1, match["language"], match["text"], match["note"] or "")
        for match in _BLOCK.finditer(text)
    ]


def commands_of(console: str) -> list[tuple[str, str]]:
    """Each command of a console block, with what it prints."""
    parts = re.split(r"^\$ ", console, flags=re.M)[1:]
    return [(command, printed) for command, _, printed in (part.partition("\n") for part in parts)]


def same(written: str, printed: str) -> bool:
    """Whether the page shows what was printed, but for numbers, hashes and spacing; ``...`` stands for anything."""
    pattern = ".*".join(re.escape(part) for part in _plain(written).split("..."))
    return re.fullmatch(pattern, _plain(printed), re.S) is not None


def shape(value: object) -> object:
    """The keys and kinds of a JSON document; of a list, those of its first item."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if isinstance(value, int | float) else type(value).__name__


def _plain(text: str) -> str:
    text = re.sub(r" \([\d,]+ a second\)", "", text)
    text = re.sub(r"\d[\d,]*\.\d+(e-\d+)?", "0.0", text)
    text = re.sub(r"\b\d+ (s|min)\b", r"0 \1", text)
    text = re.sub(r"\b(?=\w*\d)[0-9a-f]{12,}\b", "HASH", text)
    return " ".join(text.split())
