r"""git's own patterns (``wildmatch.c``) as regular expressions that cannot run away. Pure.

A pattern comes from a tenant, and so do the names it is held against. The usual translation, ``[^/]*`` for each star,
goes back over every star for every other: fourteen stars and a name of sixty letters take hours. Here a star is never
gone back to. What stands between two stars has a fixed length, and where it is found first is as good as anywhere
later, since the second star can take up what lies between; so all but the last of a component are matched as
``(?>[^/]*?piece)``, once. The same holds for what stands between two ``**``. The work is bounded by the length of the
path times that of the pattern.

Everything is in bytes, as in git: ``?`` is one byte, and classes know ASCII alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

import attrs

SPECIAL: Final = frozenset(b"*?[\\")

_STAR: Final = "star"
_SLASH: Final = "slash"
_ANY_FOLDERS: Final = "any folders"  # **/
_SOME_FOLDERS: Final = "some folders"  # **\/, which git does not let stand for none
_ANYTHING: Final = "anything"  # ** at the end

_LONGEST_NAME = 255  # bytes, on any file system that is in use: a component that needs more matches none
_LONGEST_PATH = 4096  # bytes: what git itself can look at
_ANY_BYTE = b"[^/]"

_LETTERS = frozenset(range(0x41, 0x5B)) | frozenset(range(0x61, 0x7B))
_DIGITS = frozenset(range(0x30, 0x3A))
_SPACES = frozenset(b" \t\n\r")
_PRINTED = frozenset(range(0x20, 0x7F))
_CLASSES: Final = {
    b"alnum": _LETTERS | _DIGITS,
    b"alpha": _LETTERS,
    b"blank": frozenset(b" \t"),
    b"cntrl": frozenset(range(0x20)) | {0x7F},
    b"digit": _DIGITS,
    b"graph": _PRINTED - _SPACES,
    b"lower": frozenset(range(0x61, 0x7B)),
    b"print": _PRINTED,
    b"punct": _PRINTED - _LETTERS - _DIGITS - _SPACES,
    b"space": _SPACES,
    b"upper": frozenset(range(0x41, 0x5B)),
    b"xdigit": _DIGITS | frozenset(b"abcdefABCDEF"),
}


class Malformed(Exception):
    """The pattern matches nothing: a class that is not closed or not known, or a lone backslash at the end."""


@attrs.frozen
class _Element:
    """One step of a pattern: a byte out of a set (as a regular expression), or one of the kinds above."""

    kind: str
    byte: bytes = b""


def expression(pattern: bytes, *, of_path: bool) -> bytes:
    """A regular expression, to be matched whole, for one pattern.

    Args:
        pattern: As ``wildmatch`` is given it.
        of_path: Whether slashes count (``WM_PATHNAME``). Without, it is held against a name that has none.

    Raises:
        Malformed: It matches nothing.
    """
    groups = _split(_bounded(_elements(pattern, of_path=of_path)), lambda kind: kind in (_ANY_FOLDERS, _SOME_FOLDERS))
    last = len(groups) - 1
    parts = []
    for number, (opened_by, group) in enumerate(groups):
        body = _components(group)
        if opened_by is not None:
            least = b"*?" if opened_by == _ANY_FOLDERS else b"+?"
            body = b"(?:[^/]*/)" + least + body
            if number < last:
                body = b"(?>" + body + b")"
        parts.append(body)
    return b"".join(parts)


def _bounded(elements: Iterator[_Element]) -> list[_Element]:
    """The elements, if there is a path that can match them."""
    found: list[_Element] = []
    least = 0
    for element in elements:
        least += element.kind in ("byte", _SLASH)
        if least > _LONGEST_PATH:
            raise Malformed
        found.append(element)
    return found


def _components(elements: list[_Element]) -> bytes:
    parts = []
    for number, (_, component) in enumerate(_split(elements, lambda kind: kind == _SLASH)):
        parts.append((b"/" if number else b"") + _component(component))
    return b"".join(parts)


def _component(elements: list[_Element]) -> bytes:
    """What one name has to be: pieces of fixed length between stars."""
    if elements and elements[-1].kind == _ANYTHING:
        return b"(?s:.*)"
    if sum(element.kind == "byte" for element in elements) > _LONGEST_NAME:
        raise Malformed
    pieces = [b"".join(element.byte for element in piece) for _, piece in _split(elements, lambda k: k == _STAR)]
    first, *others = pieces
    if not others:
        return first
    between = [b"(?>[^/]*?" + piece + b")" for piece in others[:-1] if piece]
    return first + b"".join(between) + b"[^/]*" + others[-1]


def _split(elements: list[_Element], is_border: Callable[[str], bool]) -> list[tuple[str | None, list[_Element]]]:
    """Lists of elements between borders, each with the kind of the border before it."""
    found: list[tuple[str | None, list[_Element]]] = [(None, [])]
    for element in elements:
        if is_border(element.kind):
            found.append((element.kind, []))
        else:
            found[-1][1].append(element)
    return found


def _elements(pattern: bytes, *, of_path: bool) -> Iterator[_Element]:
    at, end = 0, len(pattern)
    while at < end:
        sign = pattern[at]
        if sign == 0x2A:  # *
            element, at = _stars(pattern, at, of_path=of_path)
            yield element
        elif sign == 0x3F:  # ?
            yield _Element("byte", _ANY_BYTE)
            at += 1
        elif sign == 0x5B:  # [
            members, at = _class(pattern, at + 1)
            yield _Element("byte", _set(members - {0x2F}))
        else:
            if sign == 0x5C:  # \
                at += 1
                if at == end:
                    raise Malformed
                sign = pattern[at]
            yield _Element(_SLASH) if sign == 0x2F else _Element("byte", re.escape(bytes([sign])))
            at += 1


def _stars(pattern: bytes, at: int, *, of_path: bool) -> tuple[_Element, int]:
    begin, end = at, len(pattern)
    while at < end and pattern[at] == 0x2A:
        at += 1
    if at - begin > 1 and of_path and (begin == 0 or pattern[begin - 1] == 0x2F):
        if at == end:
            return _Element(_ANYTHING), at
        if pattern[at] == 0x2F:
            return _Element(_ANY_FOLDERS), at + 1
        if pattern[at : at + 2] == b"\\/":
            return _Element(_SOME_FOLDERS), at + 2
    return _Element(_STAR), at


def _class(pattern: bytes, at: int) -> tuple[frozenset[int], int]:
    """The bytes of the class whose bracket was opened before ``at``, and the offset after its end."""
    negated = pattern[at : at + 1] in (b"!", b"^")
    at += negated
    found: set[int] = set()
    before = 0  # the byte that a range would begin with
    first = True
    while first or pattern[at : at + 1] != b"]":
        first = False
        sign = _at(pattern, at)
        if sign == 0x5C:  # \
            at += 1
            sign = _at(pattern, at)
            found.add(sign)
        elif sign == 0x2D and before and pattern[at + 1 : at + 2] not in (b"", b"]"):  # -
            at += 1
            last = _at(pattern, at)
            if last == 0x5C:
                at += 1
                last = _at(pattern, at)
            found.update(range(before, last + 1))
            sign = 0
        elif pattern[at : at + 2] == b"[:":
            close = pattern.find(b"]", at + 2)
            if close < 0:
                raise Malformed
            name = pattern[at + 2 : close]
            if name.endswith(b":"):
                if name[:-1] not in _CLASSES:
                    raise Malformed
                found |= _CLASSES[name[:-1]]
                at = close
                sign = 0
            else:
                found.add(sign)
        else:
            found.add(sign)
        before = sign
        at += 1
    members = frozenset(range(1, 256)) - found if negated else frozenset(found)
    return members, at + 1


def _at(pattern: bytes, at: int) -> int:
    if at >= len(pattern):
        raise Malformed
    return pattern[at]


def _set(members: frozenset[int]) -> bytes:
    if not members:
        return b"(?!)"
    return b"[" + b"".join(b"\\x%02x" % member for member in sorted(members)) + b"]"
