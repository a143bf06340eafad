"""The JSON schema of ``embedkit.toml``, made from the classes that read it."""

from __future__ import annotations

import inspect
from typing import Any

import attrs

from embedkit.settings.fields import Branch, Leaf, keys_of
from embedkit.settings.kinds import KINDS, without_use
from embedkit.settings.model import Settings
from embedkit.settings.nearest import known_tables
from embedkit.settings.tables import ProviderDefaults

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """The schema of a whole file, in draft 2020-12. Editors read it for completion; so may checks in CI.

    It refuses every unknown key and wrong type that the loader refuses. What it cannot say, it leaves to the loader:
    names that must exist or be unique, and that a float such as ``4.0`` is no whole number.
    """
    definitions = {cls.__name__: _table(cls) for cls in known_tables() if cls is not Settings}
    definitions["ProviderSettings"]["allOf"] = _needs_by_kind()
    definitions["RepositorySettings"]["oneOf"] = [{"required": ["path"]}, {"required": ["git"]}]
    definitions["RepositorySettings"]["dependentRequired"] = {"branch": ["git"]}
    root = _table(Settings)
    root["properties"]["providers"]["properties"] = {"defaults": _reference(ProviderDefaults)}
    return {"$schema": DRAFT, "title": "embedkit.toml", **root, "$defs": definitions}


def _table(cls: type[attrs.AttrsInstance]) -> dict[str, Any]:
    properties = {attribute.name: _property(attribute, told) for attribute, told in keys_of(cls)}
    needed = [attribute.name for attribute, told in keys_of(cls) if isinstance(told, Leaf) and told.required]
    return {
        "description": inspect.getdoc(cls).partition("\n")[0],  # type: ignore[union-attr]  # every class has one
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        **({"required": needed} if needed else {}),
    }


def _property(attribute: attrs.Attribute[Any], told: Leaf | Branch) -> dict[str, Any]:
    if isinstance(told, Branch):
        return _branch(told)
    described: dict[str, Any] = {"description": told.meaning, **told.rule.schema}
    if told.default is not None:
        described["description"] += f" (default: {told.default})"
    elif not told.required and attribute.default is not None:
        described["default"] = attribute.default
    return described


def _branch(told: Branch) -> dict[str, Any]:
    match told.many:
        case "array":
            return {"type": "array", "items": _reference(told.of)}
        case "table":
            return {"type": "object", "additionalProperties": _reference(told.of)}
        case "one":
            return _reference(told.of)


def _reference(cls: type[attrs.AttrsInstance]) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{cls.__name__}"}


def _needs_by_kind() -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = []
    for name, kind in KINDS.items():
        then: dict[str, Any] = {}
        if kind.needs:
            then["required"] = list(kind.needs)
        if unused := without_use(name):
            then["properties"] = dict.fromkeys(unused, False)
        if then:
            is_kind = {"properties": {"kind": {"const": name}}, "required": ["kind"]}
            rules.append({"if": is_kind, "then": then})
    return rules
