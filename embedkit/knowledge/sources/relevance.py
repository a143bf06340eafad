"""Whether a change below a folder can matter: what is ignored wakes nobody. Plain, blocking code for a worker thread.

Ignore files are read when they are first needed, and again once one of them has changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from embedkit.knowledge.sources.filters import NEVER_INDEXED
from embedkit.knowledge.sources.ignore import IGNORE_FILES, Ignored
from embedkit.knowledge.sources.selection import Selection

_MOST_BYTES = 1 << 20


class Relevance:
    """Tells for one repository's folder.

    Args:
        root: The folder, as changes in it are told.
        selection: What of it is looked at.
    """

    def __init__(self, root: Path, selection: Selection) -> None:
        self.root = root
        self._selection = selection
        self._rules: dict[str, Ignored] = {}

    def any_of(self, changed: Iterable[Path]) -> bool:
        """Whether one of ``changed`` may change what is indexed."""
        inner = [path.relative_to(self.root).parts for path in changed if path.is_relative_to(self.root)]
        if any(parts and parts[-1] in IGNORE_FILES for parts in inner):
            self._rules.clear()
        return any(self._matters(parts) for parts in inner)

    def _matters(self, parts: tuple[str, ...]) -> bool:
        if not NEVER_INDEXED.isdisjoint(parts):
            return False
        folder = ""
        is_included = False
        for part in parts[:-1]:
            rules = self._rules_of(folder)
            folder += f"{part}/"
            if self._selection.covers(folder, rules):
                return False
            is_included = self._selection.names(folder, above=is_included)
        if not parts:
            return True
        rules = self._rules_of(folder)
        path = folder + parts[-1]
        if parts[-1] in IGNORE_FILES:
            return True
        if (self.root / path).is_dir():
            return not self._selection.covers(path + "/", rules)
        if self._selection.covers(path, rules) or self._selection.is_secret(path):
            return False
        # What is gone may have been a folder.
        if not os.path.lexists(self.root / path) and self._selection.covers(path + "/", rules):
            return False
        return self._selection.names(path, above=is_included)

    def _rules_of(self, folder: str) -> Ignored:
        """What holds in ``folder`` (``""`` or ending in ``/``)."""
        if folder not in self._rules:
            above = folder.rstrip("/").rpartition("/")[0]
            outer = self._rules_of(above + "/" if above else "") if folder else self._selection.rules()
            texts = [text for name in IGNORE_FILES if (text := _read(self.root / folder / name))]
            self._rules[folder] = outer.within(folder, texts) if texts else outer
        return self._rules[folder]


def _read(file: Path) -> bytes:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with open(descriptor, "rb") as stream:
        try:
            return stream.read(_MOST_BYTES) or b""
        except OSError:
            return b""
