"""A document of plain values becomes settings; everything that is wrong with it is found in one go.

cattrs walks the tables and notes where it was when something was refused; each key's own rule decides. What comes out
wrong is a list of faults with their key paths, which the loader places on lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import attrs
import cattrs
from cattrs.gen import make_dict_structure_fn, override

from embedkit.settings.fields import Branch, Fault, KeyPath, KeyRefused, Leaf, keys_of
from embedkit.settings.model import Settings
from embedkit.settings.nearest import known_tables, nearest, retired
from embedkit.settings.redaction import kind_of, names_a_secret, shown
from embedkit.settings.tables import ProviderDefaults

_Hook = Callable[[Any, Any], Any]
_Notes = (cattrs.AttributeValidationNote, cattrs.IterableValidationNote)


class _Refused(Exception):
    """One value is refused; cattrs notes where it was found."""


def settings_from(document: Mapping[str, Any], **extra: Any) -> Settings | list[Fault]:
    """The settings that ``document`` says, or everything that is wrong with it, unordered.

    Args:
        document: What ``tomllib`` returned, less the rungs of the timeout ladder that are no limits.
        extra: Fields of ``Settings`` that are no keys.
    """
    parts, faults = _parts(document)
    if faults:
        return faults
    try:
        return Settings(**parts, **extra)
    except KeyRefused as error:
        return list(error.faults)


def _parts(document: Mapping[str, Any]) -> tuple[dict[str, Any], list[Fault]]:
    parts: dict[str, Any] = {}
    faults: list[Fault] = []

    def take(name: str, at: KeyPath, value: object, hook: _Hook) -> None:
        try:
            parts[name] = hook(value, None)
        except Exception as error:
            faults.extend(_faults_of(error, at, document))

    sections = dict(document)
    if isinstance(providers := sections.get("providers"), dict) and "defaults" in providers:
        sections["providers"] = {name: table for name, table in providers.items() if name != "defaults"}
        defaults = _hook(_converter(), "providers.defaults", Branch(ProviderDefaults))
        take("provider_defaults", ("providers", "defaults"), providers["defaults"], defaults)
    for attribute, told in keys_of(Settings):
        if attribute.name in sections:
            hook = _hook(_converter(), attribute.name, told)
            take(attribute.name, (attribute.name,), sections.pop(attribute.name), hook)
        elif isinstance(told, Leaf) and told.required:
            faults.append(_missing(Settings, (), attribute.name))
    faults += [_unknown(Settings, (), name, value) for name, value in sections.items()]
    return parts, faults


@cache
def _converter() -> cattrs.Converter:
    # Made on first use: the functions that cattrs writes for a class cost more than importing it.
    converter = cattrs.Converter(detailed_validation=True)
    for cls in reversed(list(known_tables())):
        if cls is not Settings:
            converter.register_structure_hook(cls, _table(converter, cls))
    return converter


def _table(converter: cattrs.Converter, cls: type[attrs.AttrsInstance]) -> _Hook:
    """How a table becomes an instance of ``cls``."""
    hooks: dict[str, Any] = {
        attribute.name: override(struct_hook=_hook(converter, attribute.name, told)) for attribute, told in keys_of(cls)
    }
    make = make_dict_structure_fn(cls, converter, _cattrs_forbid_extra_keys=True, **hooks)

    def structure(value: Any, _type: object) -> Any:
        return make(_be(dict, "a table", value), cls)

    return structure


def _hook(converter: cattrs.Converter, name: str, told: Leaf | Branch) -> _Hook:
    """How the value of one key becomes an attribute's."""

    def leaf(value: Any, _type: object) -> Any:
        assert isinstance(told, Leaf)
        converted = told.rule.convert(value)
        if (refusal := told.rule.refusal(name, converted)) is not None:
            raise _Refused(refusal)
        return converted

    def branch(value: Any, _type: object) -> Any:
        assert isinstance(told, Branch)
        of: Any = told.of
        match told.many:
            case "array":
                return converter.structure(_be(list, "an array of tables", value), list[of])
            case "table":
                return converter.structure(_be(dict, "a table of tables", value), dict[str, of])
            case "one":
                return converter.structure(value, of)

    return leaf if isinstance(told, Leaf) else branch


def _be(kind: type, expected: str, value: Any) -> Any:
    if not isinstance(value, kind):
        mend = "write [[...]] headers or [{ ... }]" if kind is list else "write a [...] header or { ... }"
        raise _Refused(f"{shown(value)} ({kind_of(value)}) is not {expected}; {mend}")
    return value


def _faults_of(error: Exception, at: KeyPath, document: Mapping[str, Any]) -> Iterator[Fault]:
    """What cattrs gathered below ``at``, with the full path of each.

    Raises:
        Exception: ``error`` itself, if it is not about the document but a defect of ours.
    """
    match error:
        case KeyRefused():
            yield from (Fault((*at, *fault.at), fault.message) for fault in error.faults)
        case _Refused():
            yield Fault(at, str(error))
        case cattrs.ForbiddenExtraKeysError():
            for name in error.extra_fields:
                yield _unknown(error.cl, at, name, _value_at(document, (*at, name)))
        case cattrs.BaseValidationError():
            for inner in error.exceptions:
                step = _step(inner)
                if isinstance(inner, KeyError):
                    yield _missing(error.cl, at, str(step[0]))
                else:
                    yield from _faults_of(inner, (*at, *step), document)
        case _:
            raise error


def _step(error: Exception) -> KeyPath:
    """From where cattrs was to where ``error`` was met: one attribute, index or name, or nothing."""
    for note in getattr(error, "__notes__", ()):
        if isinstance(note, _Notes):
            return (note.name,) if isinstance(note, cattrs.AttributeValidationNote) else (note.index,)
    return ()


def _value_at(document: Any, path: KeyPath) -> object:
    for part in path:
        document = document[part]
    return document


def _missing(cls: type[attrs.AttrsInstance], at: KeyPath, name: str) -> Fault:
    told = next(told for attribute, told in keys_of(cls) if attribute.name == name)
    assert isinstance(told, Leaf)
    return Fault((*at, name), f"missing; write for example {name} = {told.rule.example}")


def _unknown(cls: type[attrs.AttrsInstance], at: KeyPath, name: str, value: object) -> Fault:
    if (message := retired(cls, name)) is not None:
        return Fault((*at, name), message)
    what = "" if names_a_secret(name) else f" (= {shown(value)})"
    return Fault((*at, name), f"unknown key{what}; {nearest(cls, at, name)}")
