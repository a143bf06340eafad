"""A scripted engine's vectors: a function of the text alone, and the ways in which a reply can go wrong."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from functools import lru_cache

import attrs

_NUMBER_BYTES = 2


@attrs.frozen
class Item:
    """One vector of a reply with its index, if it has one."""

    index: int | None
    vector: list[float | None]


Reshape = Callable[[list[Item]], list[Item]]


@lru_cache(maxsize=256)
def vector_of(text: str, dimension: int) -> tuple[float, ...]:
    """The unit vector that every scripted engine gives for ``text``: ``dimension`` numbers drawn from its hash."""
    raw = hashlib.shake_128(text.encode("utf-8", "replace")).digest(dimension * _NUMBER_BYTES)
    numbers = [
        int.from_bytes(raw[at : at + _NUMBER_BYTES], "little") - 32767.5 for at in range(0, len(raw), _NUMBER_BYTES)
    ]
    length = math.sqrt(sum(number * number for number in numbers))
    return tuple(number / length for number in numbers)


def items_of(texts: tuple[str, ...], dimension: int) -> list[Item]:
    """The right answer for ``texts``."""
    return [Item(index, [*vector_of(text, dimension)]) for index, text in enumerate(texts)]


def with_one_more(items: list[Item]) -> list[Item]:
    """A vector that nobody asked for, at the end."""
    return [*items, attrs.evolve(items[-1], index=len(items))]


def with_first_index_twice(items: list[Item]) -> list[Item]:
    """The last vector claims to be the first."""
    return [*items[:-1], attrs.evolve(items[-1], index=0)]


def with_a_gap(items: list[Item]) -> list[Item]:
    """The last vector's index is one too high."""
    return [*items[:-1], attrs.evolve(items[-1], index=len(items))]


def without_index(items: list[Item]) -> list[Item]:
    """No index at all."""
    return [attrs.evolve(item, index=None) for item in items]


def with_number(index: int, number: float | None) -> Reshape:
    """``number`` stands first in the vector at ``index``."""

    def reshape(items: list[Item]) -> list[Item]:
        changed = attrs.evolve(items[index], vector=[number, *items[index].vector[1:]])
        return [*items[:index], changed, *items[index + 1 :]]

    return reshape


def with_dimension(index: int, dimension: int) -> Reshape:
    """The vector at ``index`` has ``dimension`` numbers."""

    def reshape(items: list[Item]) -> list[Item]:
        changed = attrs.evolve(items[index], vector=[1.0] * dimension)
        return [*items[:index], changed, *items[index + 1 :]]

    return reshape
