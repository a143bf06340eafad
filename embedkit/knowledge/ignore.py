"""Ignore files: ``.gitignore`` and ``.ignore`` in every folder, read as git reads them.

A deeper folder's file overrules its parents', the last pattern that matches decides, and a folder that is ignored is
not entered, so nothing in it can be taken back. ``.ignore`` comes after ``.gitignore`` of the same folder. Ignore files
above the root and git's own settings are not read: a repository means the same wherever it lies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILES = (".gitignore", ".ignore")


@attrs.frozen
class Ignored:
    """The ignore rules that hold in one folder: its own and its parents'.

    Attributes:
        rules: ``(length of the folder's path with its slash, patterns)``, from the root down.
    """

    rules: tuple[tuple[int, GitIgnoreSpec], ...] = ()

    def within(self, folder: str, texts: Sequence[bytes]) -> Ignored:
        """The rules that hold in ``folder`` (``""`` or ending in ``/``), whose ignore files hold ``texts``."""
        spec = _compiled(line for text in texts for line in _lines(text))
        return self if spec is None else Ignored((*self.rules, (len(folder), spec)))

    def covers(self, path: str) -> bool:
        """Whether ``path`` (relative to the root; a folder's ends in ``/``) is ignored."""
        for depth, spec in reversed(self.rules):
            verdict = spec.check_file(path[depth:]).include
            if verdict is not None:
                return verdict
        return False


def _lines(text: bytes) -> list[str]:
    # Surrogates, as in the paths they are held against.
    return text.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape").split("\n")


def _compiled(lines: Iterable[str]) -> GitIgnoreSpec | None:
    from pathspec import GitIgnoreSpec
    from pathspec.patterns.gitignore import GitIgnorePatternError

    kept: list[str] = []
    for line in lines:
        line = line.removesuffix("\r")
        if not line.strip() or line.startswith("#"):
            continue
        try:
            GitIgnoreSpec.from_lines([line])
        except GitIgnorePatternError:
            continue  # git, too, passes over a pattern that makes no sense
        kept.append(line)
    return GitIgnoreSpec.from_lines(kept) if kept else None
