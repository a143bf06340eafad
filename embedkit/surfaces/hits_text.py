"""Hits for people: a line each, that opens the place it names. Pure.

``path:line  what stands there``. The line is the one that tells most: of code the first definition, else the one with
most words of the query, else the first that is not blank.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from embedkit.knowledge.searching.search import Hit

_DEFINITION = re.compile(
    r"\s{0,40}(?:(?:export|default|public|private|protected|internal|static|final|abstract|async|unsafe|pub) ){0,5}"
    r"(?:def|class|fn|func|function|interface|struct|enum|trait|impl|type|module|namespace|object) [\w(<]"
)
_WORD = re.compile(r"\w{2,60}")
_PROSE = frozenset({".md", ".markdown", ".rst", ".txt", ".text"})
_FIELDS_WIDTH = 110
_READ = 2_000  # characters of a line that are looked at


@attrs.frozen
class View:
    """How hits are shown.

    Attributes:
        here: The folder that paths are relative to.
        roots: Where repositories lie that are folders, by tenant and name.
        query: What was looked for.
        context: Lines of the chunk around the telling one.
        width: Signs of a line at most; ``None`` for no bound.
        mark: What stands at the end of a line that was cut.
        scores: Say score, tenant and repository of each.
    """

    here: Path
    roots: Mapping[tuple[str, str], str]
    query: str
    context: int = 0
    width: int | None = None
    mark: str = "..."
    scores: bool = False


def hits_text(hits: Sequence[Hit], view: View) -> str:
    """All hits, best first."""
    return "".join(f"{line}\n" for hit in hits for line in _entry(hit, view))


def files_text(hits: Sequence[Hit], view: View) -> str:
    """The paths of the hits, best first, each once."""
    return "".join(f"{path}\n" for path in dict.fromkeys(place_of(hit, view) for hit in hits))


def place_of(hit: Hit, view: View) -> str:
    """A path that opens from ``view.here``; of a text that is in no folder, tenant, repository and its own path."""
    root = view.roots.get((hit.tenant, hit.repository))
    if root is None:
        return harmless(f"[{hit.tenant}/{hit.repository}] {hit.path}")
    whole = os.path.join(root, hit.path)
    near = os.path.relpath(whole, view.here)
    return harmless(near if len(near) < len(whole) else whole)


def telling_line(hit: Hit, query: str) -> int:
    """Index of the line of ``hit.text`` that says most of it."""
    lines = [line[:_READ] for line in hit.text.splitlines()]
    if os.path.splitext(hit.path)[1].lower() not in _PROSE:
        for index, line in enumerate(lines):
            if _DEFINITION.match(line):
                return index
    words = set(_WORD.findall(query.lower()))
    counts = [len(words.intersection(_WORD.findall(line.lower()))) for line in lines]
    best = max(counts, default=0)
    if best:
        return counts.index(best)
    return next((index for index, line in enumerate(lines) if line.strip()), 0)


def harmless(line: str) -> str:
    """``line`` without what a terminal would obey instead of showing."""
    return "".join(sign if sign.isprintable() else " " for sign in line.expandtabs(4))


def _entry(hit: Hit, view: View) -> list[str]:
    lines = hit.text.splitlines() or [""]
    index = telling_line(hit, view.query)
    # A part of a long line, or of a table with its head, has other lines than the file: then its first is named.
    is_whole = len(lines) == hit.lines[1] - hit.lines[0] + 1
    number = hit.lines[0] + (index if is_whole else 0)
    shown = [_cut(f"{place_of(hit, view)}:{number}  {harmless(lines[index]).strip()}", view)]
    if view.scores:
        cosine = "" if hit.cosine is None or hit.cosine == hit.score else f" (cosine {hit.cosine:.3f})"
        shown.append(f"    {hit.score:.3f}{cosine}  {hit.tenant}/{hit.repository}  lines {hit.lines[0]}-{hit.lines[1]}")
    if hit.also:
        more = ", ..." if len(hit.also) > 1 else ""
        shown.append(_cut(f"    and in {len(hit.also)} more: {harmless(hit.also[0].path)}{more}", view))
    if hit.metadata:
        shown.append("    " + harmless(json.dumps(dict(hit.metadata), ensure_ascii=False))[:_FIELDS_WIDTH])
    if view.context:
        first, last = max(index - view.context, 0), min(index + view.context + 1, len(lines))
        numbered = zip(range(first, last), lines[first:last], strict=True)
        shown += [
            _cut(f"  {hit.lines[0] + at if is_whole else '':>6}  {harmless(line)}", view) for at, line in numbered
        ]
    return shown


def _cut(line: str, view: View) -> str:
    line = line.rstrip()
    if view.width is None or len(line) <= view.width:
        return line
    return line[: view.width - len(view.mark)] + view.mark
