"""Statements about many keys: in batches that SQLite takes, with a question mark for each. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

# SQLite takes at least 32,766 parameters in a statement; a smaller number keeps its statement cache useful.
_AT_ONCE = 500


def in_batches(items: Iterable[T], size: int = _AT_ONCE) -> Iterator[tuple[T, ...]]:
    """``items`` in order, in tuples of ``size``; without one, of what one statement takes."""
    rest = iter(items)
    while some := tuple(islice(rest, size)):
        yield some


def placeholders(some: Sequence[object]) -> str:
    """The right side of ``IN`` for ``some``."""
    return f"({','.join('?' * len(some))})"
