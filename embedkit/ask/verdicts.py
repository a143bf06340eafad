"""The verdict in a reply, where it gives one. Pure; linear in the reply.

Read, in this order, from what is not in a fenced block: a ``VERDICT:`` line; the word verdict next to its token on one
line; a heading followed by a bare token; a bare first or last line. The last of several of a rank counts. Where a line
names two different tokens, or first and last line differ, nothing was decided by it.

An approval under a condition is a revision: whoever has yet to change something has not been approved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, Literal

Verdict = Literal["APPROVE", "REVISE", "REJECT"]

_FORMS: Final[tuple[tuple[Verdict, str], ...]] = (
    ("REJECT", r"(?:do not|don['\u2019]t|cannot|can['\u2019]t|not) approved?|rejected|reject"),
    ("REVISE", r"request[ _-]changes|changes[ _-]requested|needs?[ _-](?:changes|work|revision)|revised?"),
    ("APPROVE", r"approved?"),
)
_TOKEN = "|".join(form for _, form in _FORMS)
_MARKS = r"[\s*_`\"'>#:.!=\u2014\u2013\u2192\u2705\u274c-]{0,20}"
_EDGES = " \t*_`\"'>#:.!-\u2014\u2013\u2705\u274c"
_CONDITION = re.compile(
    r"[\s*_`,;:(\u2014\u2013-]{0,8}(?:if|only|once|after|unless|provided|providing|pending|subject to|but"
    r"|conditional(?:ly)?"
    r"|(?:and|with)(?: \w+)? (?:changes|conditions?|reservations?|fixes|modifications))\b",
    re.IGNORECASE,
)
_LINE = re.compile(rf"{_MARKS}(?:final |my |overall )?verdict[\s*_`]{{0,4}}[:=]{_MARKS}(?P<token>{_TOKEN})\b", re.I)
_BESIDE = re.compile(
    rf"\bverdict\b{_MARKS}(?:(?:is|remains|stays|would be)\b{_MARKS}){{0,2}}(?:an? )?(?P<token>{_TOKEN})\b", re.I
)
_BEFORE = re.compile(
    rf"\b(?P<token>{_TOKEN})\b[*_`]{{0,3}} (?:is|remains|as) (?:my|the|our)(?: final)? verdict\b", re.I
)
_EACH = re.compile(rf"\b(?:{_TOKEN})\b", re.I)
_BARE = re.compile(_TOKEN, re.I)
_HEADING = re.compile(
    r"\s{0,3}#{1,6}\s+\S|\s*(?:\*\*|__)[^*_]{1,80}(?:\*\*|__):?\s*$|\s*[\w ]{0,40}verdict\s*:\s*$", re.I
)
_FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})")
_LONGEST_LINE = 2_000


def verdict_of(reply: str) -> Verdict | None:
    """The verdict of ``reply``; ``None``, which is no approval, where it gives none."""
    lines = [line[:_LONGEST_LINE] for line in _outside_fences(reply) if line.strip()]
    found = _last(_in_line(line, _LINE) for line in lines)
    if found is None:
        found = _last(_in_line(line, _BESIDE) or _in_line(line, _BEFORE) for line in lines)
    if found is None:
        pairs = pairwise(lines)
        found = _last(bare_token(line) for heading, line in pairs if _HEADING.match(heading))
    return _at_an_end(lines) if found is None else found


def bare_token(line: str) -> Verdict | None:
    """The verdict of a line that is nothing else; marks around it do not count."""
    stripped = line.strip(_EDGES)
    return _meaning(stripped) if _BARE.fullmatch(stripped) else None


def _at_an_end(lines: list[str]) -> Verdict | None:
    ends = {bare_token(line) for line in (*lines[:1], *lines[-1:])} - {None}
    return ends.pop() if len(ends) == 1 else None


def _in_line(line: str, pattern: re.Pattern[str]) -> Verdict | None:
    found = pattern.search(line) if pattern is not _LINE else pattern.match(line)
    if found is None:
        return None
    meaning = _meaning(found["token"])
    if any(_meaning(other[0]) != meaning for other in _EACH.finditer(line)):
        return None  # "VERDICT: APPROVE or REJECT" is the form that was asked for, not a choice
    if meaning == "APPROVE" and _CONDITION.match(line, found.end("token")):
        return "REVISE"
    return meaning


def _meaning(token: str) -> Verdict | None:
    return next((verdict for verdict, form in _FORMS if re.fullmatch(form, token, re.I)), None)


def _last(verdicts: Iterator[Verdict | None]) -> Verdict | None:
    last = None
    for verdict in verdicts:
        last = verdict or last
    return last


def _outside_fences(reply: str) -> Iterator[str]:
    fence = ""
    for line in reply.splitlines():
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif mark:
            fence = mark[1]
        else:
            yield line
