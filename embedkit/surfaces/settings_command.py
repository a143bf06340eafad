"""What ``embedkit settings`` prints: what is in force and where it came from, or the schema of the file."""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING, Any

from embedkit.settings.schema import schema
from embedkit.settings.show import InForce, in_force

if TYPE_CHECKING:
    from embedkit.settings import Settings

_WIDEST = 72


def render(settings: Settings) -> str:
    """One line a key: ``providers.box.timeout = 120.0   # embedkit.toml:9``, grouped by table.

    What has no value is written ``(not set)``; what follows the ``#`` is where the value came from.
    """
    groups = [list(group) for _table, group in groupby(in_force(settings), key=lambda item: item.at[:-1])]
    file = f"# {settings.file}" if settings.file is not None else "# no settings file: defaults"
    if settings.file is None and settings.origins is None:
        file = "# settings made in code"
    return "\n\n".join([file, *("\n".join(_lines(group)) for group in groups)]) + "\n"


def _lines(group: list[InForce]) -> list[str]:
    texts = [f"{item.key} = {_value(item)}" for item in group]
    width = max(len(text) for text in texts if len(text) <= _WIDEST or text is min(texts, key=len))
    return [f"{text:{width}}   # {item.origin}" for text, item in zip(texts, group, strict=True)]


def _value(item: InForce) -> str:
    return "(not set)" if item.value is None else json.dumps(item.value, ensure_ascii=False)


def render_json(settings: Settings) -> str:
    """One document: ``{"settings": {...}, "origins": {key: origin}}``.

    ``settings`` has the shape of the file, with what is in force filled in and what is not set left out, so that the
    schema of the file holds for it.
    """
    items = list(in_force(settings))
    document = {
        "settings": _nested([item for item in items if item.value is not None]),
        "origins": {item.key: item.origin for item in items},
    }
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def render_schema() -> str:
    """The JSON schema of ``embedkit.toml``."""
    return json.dumps(schema(), ensure_ascii=False, indent=2, default=str) + "\n"


def _nested(items: list[InForce]) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for item in items:
        place: Any = root
        for part, following in zip(item.at, item.at[1:], strict=False):
            place = _step(place, part, [] if isinstance(following, int) else {})
        place[item.at[-1]] = item.value
    return root


def _step(place: Any, part: str | int, empty: list[Any] | dict[str, Any]) -> Any:
    if isinstance(place, list):
        assert isinstance(part, int)
        if part == len(place):
            place.append(empty)
        return place[part]
    return place.setdefault(part, empty)
