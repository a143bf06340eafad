"""What is in force, key by key, and where each value came from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from embedkit.settings.added import VARIABLE_IN_TEXT
from embedkit.settings.fields import Branch, KeyPath, Leaf, keys_of, written
from embedkit.settings.model import Settings
from embedkit.settings.redaction import names_a_secret, redacted_url
from embedkit.settings.tables import ProviderSettings


@attrs.frozen
class InForce:
    """One value that is in force.

    Attributes:
        at: The key's path.
        value: A string, number, boolean, array of strings, or ``None`` where nothing is set; never a credential.
        origin: ``embedkit.toml:9``, ``default``, ``code``, ``--store``, or the rung of the ladder that serves.
    """

    at: KeyPath
    value: str | int | float | bool | tuple[str, ...] | None
    origin: str

    @property
    def key(self) -> str:
        """The key as a person writes it."""
        return written(self.at)


def in_force(settings: Settings) -> Iterator[InForce]:
    """Every key's value in force, in the order of the file's reference; defaults that depend on a kind are resolved."""
    for item in _below(settings, (), settings):
        yield attrs.evolve(item, value=_plain(item.value))


def _below(instance: Any, at: KeyPath, settings: Settings) -> Iterator[InForce]:
    for attribute, told in keys_of(type(instance)):
        value = getattr(instance, attribute.name)
        place = (*at, attribute.name)
        if isinstance(told, Leaf) and isinstance(value, Mapping):
            whole = _leaf(settings, instance, attribute, place, value)
            yield from _within(settings, place, value, whole.origin)
        elif isinstance(told, Leaf):
            yield _leaf(settings, instance, attribute, place, value)
        else:
            for path, inner in _children(settings, told, place, value):
                yield from _below(inner, path, settings)


def _within(settings: Settings, at: KeyPath, table: Mapping[str, Any], origin: str) -> Iterator[InForce]:
    """The fields of a table that is one key's value. A value that may hold what is secret is shown as ``***``."""
    for name, value in table.items():
        place = (*at, name)
        here = (settings.origins or {}).get(written(place), origin)
        if isinstance(value, Mapping):
            yield from _within(settings, place, value, here)
        else:
            is_plain = isinstance(value, str | int | float) and not names_a_secret(name)
            yield InForce(place, value if is_plain or VARIABLE_IN_TEXT.search(str(value)) else _in_words(value), here)


def _in_words(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | tuple) else "***"


def _children(settings: Settings, told: Branch, at: KeyPath, value: Any) -> Iterator[tuple[KeyPath, Any]]:
    match told.many:
        case "one":
            yield at, value
        case "array":
            yield from (((*at, index), item) for index, item in enumerate(value))
        case "table":
            if at == ("providers",):
                yield (*at, "defaults"), settings.provider_defaults
                value = _providers_in_force(settings)
            yield from (((*at, name), item) for name, item in value.items())


def _providers_in_force(settings: Settings) -> Mapping[str, ProviderSettings]:
    used = settings.embedding.provider
    return settings.providers if used in settings.providers else {**settings.providers, used: settings.provider(used)}


def _leaf(settings: Settings, instance: Any, attribute: attrs.Attribute[Any], at: KeyPath, value: Any) -> InForce:
    origin = _origin(settings, instance, attribute, at, value)
    match at:
        case ("providers", str(name), "timeout") if name != "defaults":
            limit = settings.timeout_for(name)
            served_here = limit.rung.partition(" (")[0] == written(at)
            return InForce(at, limit.seconds, origin if served_here else limit.rung)
        case ("providers", str(name), "reserve"):
            return InForce(at, settings.reserve_for(name), origin)
        case ("embedding", "batch"):
            return InForce(at, settings.batch_for(), origin)
        case ("tenants", int(), "repositories", int(), "cadence") if value is None:
            return InForce(at, settings.sweep.cadence, f"sweep.cadence ({_cadence_origin(settings)})")
        case ("tenants", int(), "repositories", int(), "include") if not value:
            return InForce(at, settings.sweep.include, "sweep.include")
        case ("gateway", "keys", int(), "tenant") if value is None:
            return InForce(at, instance.name, origin)
    return InForce(at, value, origin)


def _cadence_origin(settings: Settings) -> str:
    attribute = attrs.fields_dict(type(settings.sweep))["cadence"]
    return _origin(settings, settings.sweep, attribute, ("sweep", "cadence"), settings.sweep.cadence)


def _origin(settings: Settings, instance: Any, attribute: attrs.Attribute[Any], at: KeyPath, value: Any) -> str:
    if (set_at := (settings.origins or {}).get(written(at))) is not None:
        return set_at
    if settings.origins is not None:
        return "default"
    return "default" if value == _default(instance, attribute) else "code"


def _default(instance: Any, attribute: attrs.Attribute[Any]) -> object:
    default: Any = attribute.default
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]  # a class at run time, a function to its stubs
        return default.factory(instance) if default.takes_self else default.factory()
    return default


def _plain(value: Any) -> str | int | float | bool | tuple[str, ...] | None:
    if isinstance(value, tuple):
        return tuple(map(str, value))
    if isinstance(value, Path):
        return str(value)
    return redacted_url(value) if isinstance(value, str) else value
