"""Every key there is, and which of them a mistyped one was meant to be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Final

import attrs

from embedkit.settings.fields import Branch, KeyPath, Leaf, keys_of, section_of, written
from embedkit.settings.model import Settings
from embedkit.settings.tables import ProviderDefaults, ProviderSettings

# Keys of earlier versions, and what to write instead. Without this, "the nearest known key" of max_overtakes would be
# max_retry_after.
_LEAD = 'people go first until they are "lead" seconds ahead; write lead = 30.0'
_RETIRED: Final[Mapping[tuple[type[attrs.AttrsInstance], str], str]] = {
    (ProviderSettings, "max_overtakes"): _LEAD,
    (ProviderSettings, "max_age"): _LEAD,
}


def known_keys() -> Iterator[tuple[str, attrs.Attribute[object], Leaf]]:
    """Every key that holds a value, in the order of the classes: its pattern, its field and what is said of it."""
    for cls in known_tables():
        for attribute, told in keys_of(cls):
            if isinstance(told, Leaf):
                yield section_of(cls) + attribute.name, attribute, told


def known_tables(cls: type[attrs.AttrsInstance] = Settings) -> Iterator[type[attrs.AttrsInstance]]:
    """``cls`` and every class below it, each table before those inside it."""
    yield cls
    for attribute, told in keys_of(cls):
        if isinstance(told, Branch):
            if cls is Settings and attribute.name == "providers":
                yield ProviderDefaults
            yield from known_tables(told.of)


@cache
def _patterns() -> tuple[str, ...]:
    return tuple(pattern for pattern, _attribute, _leaf in known_keys())


def retired(cls: type[attrs.AttrsInstance], name: str) -> str | None:
    """What replaced the key ``name``, which earlier versions had in ``cls``; ``None`` if there was no such key."""
    replacement = _RETIRED.get((cls, name))
    return None if replacement is None else f"{name} is no longer a key: {replacement}"


def nearest(cls: type[attrs.AttrsInstance], table: KeyPath, name: str) -> str:
    """What to do about the unknown key ``name`` in ``table``, which is read as ``cls``."""
    here = [attribute.name for attribute, _told in keys_of(cls)]
    if close := get_close_matches(name, here, n=1):
        return f"the nearest known key is {written((*table, close[0]))}"
    elsewhere = [pattern for pattern in _patterns() if pattern.rpartition(".")[2] == name]
    if elsewhere:
        return f"the nearest known key is {elsewhere[0]}"
    return f"the keys known here are {', '.join(here)}"
