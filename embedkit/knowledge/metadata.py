"""Metadata of a document: small JSON, what it is known by, and when it is equal. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from embedkit.errors import UsageError

MOST_BYTES: Final = 4096
"""Of one document's metadata, as JSON: it is read with each hit."""


def canonical(value: object) -> str:
    """The one JSON text of ``value``: keys sorted, a number that is whole without a fraction.

    Raises:
        UsageError: It is no JSON.
    """
    try:
        return json.dumps(_plain(value), sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"metadata is JSON, and this is not ({error})") from error


def checked(metadata: Mapping[str, object]) -> str:
    """The canonical JSON of a document's metadata.

    Raises:
        UsageError: It is no JSON object, or too large.
    """
    if not isinstance(metadata, Mapping):
        raise UsageError(f"metadata is an object of names and values, not {type(metadata).__name__}")
    text = canonical(metadata)
    if len(text) > MOST_BYTES:
        raise UsageError(f"metadata takes {len(text):,} bytes as JSON; at most {MOST_BYTES:,} are kept")
    return text


def pieces(metadata: Mapping[str, object]) -> list[str]:
    """What the canonical JSON of a document holds if its metadata has these values; it may hold them elsewhere too."""
    return [f"{canonical(key)}:{canonical(value)}" for key, value in metadata.items()]


def has(held: Mapping[str, object], wanted: Mapping[str, object]) -> bool:
    """Whether ``held`` has all of ``wanted``: the same JSON under the same name. 1 is 1.0, and not true."""
    return all(key in held and canonical(held[key]) == canonical(value) for key, value in wanted.items())


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        odd = [key for key in value if not isinstance(key, str)]
        if odd:
            raise TypeError(f"the name {odd[0]!r} is no text")
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
