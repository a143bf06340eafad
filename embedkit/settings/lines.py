"""Which line of a TOML text a key stands on. ``tomllib`` does not say.

This reads only text that ``tomllib`` has accepted, so it looks for where keys and values begin and end, and decides
nothing about them. Keys are paths of names and array positions, as in the document that ``tomllib`` returns.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left

KeyPath = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[^\s.=\]\"'#]+")
# At most two quotes may stand directly before the three that end a multi-line string.
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})' r"|'''.*?'''(?:'{0,2})" r'|"(?:\\.|[^"\\])*"' r"|'[^']*'", re.DOTALL
)
_BARE_VALUE = re.compile(r"[^,\]}\n#]+")


def key_lines(text: str) -> dict[KeyPath, int]:
    """The 1-based line on which every table, key and array element of ``text`` begins.

    Args:
        text: A TOML document that ``tomllib.loads`` accepts.
    """
    scanner = _Scanner(text.replace("\r\n", "\n"))
    scanner.document()
    return scanner.lines


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[KeyPath, int] = {}
        self._breaks = [found.start() for found in re.finditer("\n", text)]
        # How many tables each array of tables has so far: a later `[array.table]` belongs to its last one.
        self._arrays: dict[KeyPath, int] = {}

    def document(self) -> None:
        table: KeyPath = ()
        while self._next():
            if self.text.startswith("[", self.at):
                table = self._header()
            else:
                self._pair(table)

    def _line(self) -> int:
        return bisect_left(self._breaks, self.at) + 1

    def _skip(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        assert found is not None, "tomllib accepted what this does not know"
        self.at = found.end()
        return found.group()

    def _next(self) -> str:
        """The character at which the next token begins; empty at the end."""
        self._skip(_BLANK)
        return self.text[self.at : self.at + 1]

    def _header(self) -> KeyPath:
        line = self._line()
        brackets = 2 if self.text.startswith("[[", self.at) else 1
        self.at += brackets
        *parents, last = self._key()
        self.at += brackets
        path: KeyPath = ()
        for part in parents:
            path = self._last_of((*path, part), line)
        path = (*path, last)
        if brackets == 1:
            self.lines[path] = line
            return path
        self.lines.setdefault(path, line)
        count = self._arrays.get(path, 0)
        self._arrays[path] = count + 1
        self.lines[(*path, count)] = line
        return (*path, count)

    def _last_of(self, path: KeyPath, line: int) -> KeyPath:
        self.lines.setdefault(path, line)
        return (*path, self._arrays[path] - 1) if path in self._arrays else path

    def _pair(self, table: KeyPath) -> None:
        line = self._line()
        path = table
        for part in self._key():
            path = (*path, part)
            self.lines.setdefault(path, line)
        self.at += 1  # the equals sign
        self._skip(_SPACE)
        self._value(path)

    def _key(self) -> list[str]:
        parts: list[str] = []
        while True:
            self._skip(_SPACE)
            if self.text[self.at] in "\"'":
                parts.append(tomllib.loads(f"key = {self._skip(_STRING)}")["key"])
            else:
                parts.append(self._skip(_BARE_KEY))
            self._skip(_SPACE)
            if self.text[self.at] != ".":
                return parts
            self.at += 1

    def _value(self, path: KeyPath) -> None:
        match self.text[self.at]:
            case "[":
                self._array(path)
            case "{":
                self._inline_table(path)
            case '"' | "'":
                self._skip(_STRING)
            case _:
                self._skip(_BARE_VALUE)

    def _array(self, path: KeyPath) -> None:
        self.at += 1
        index = 0
        while (character := self._next()) != "]":
            if character == ",":
                self.at += 1
                continue
            self.lines[(*path, index)] = self._line()
            self._value((*path, index))
            index += 1
        self.at += 1

    def _inline_table(self, path: KeyPath) -> None:
        self.at += 1
        while (character := self._next()) != "}":
            if character == ",":
                self.at += 1
            else:
                self._pair(path)
        self.at += 1
