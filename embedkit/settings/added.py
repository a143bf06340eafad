"""Rules of the keys that add something to each request of a provider: headers, parameters, fields, a proxy."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from embedkit.settings.redaction import kind_of, names_a_secret, shown
from embedkit.settings.rules import Rule

VARIABLE_IN_TEXT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]{0,63})\}")

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
# embedkit writes these by what it sends; anybody else's would break the exchange.
_OUR_HEADERS = frozenset(
    {"host", "connection", "content-length", "content-type", "transfer-encoding", "accept-encoding", "te", "upgrade"}
)
# These have keys of their own in the settings, or are what is sent.
_OUR_FIELDS = frozenset({"model", "input", "requests", "content", "dimensions", "outputDimensionality", "options"})
_DEEPEST = 8


def _frozen(value: Any) -> Any:
    return MappingProxyType(dict(value)) if isinstance(value, Mapping) else value


def _is_line(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and value.isprintable() and value == value.strip() and value != ""


def _header_faults(value: object) -> Iterator[str]:
    for name, text in value.items() if isinstance(value, Mapping) else ():
        if not isinstance(name, str) or not _HEADER.fullmatch(name):
            yield "one of its names can be no header's name"
        elif name.lower() in _OUR_HEADERS:
            yield f"embedkit writes the header {name} itself; leave it out"
        elif not _is_line(text):
            yield f"the value of {name} (not shown here) is no printable ASCII in one line"
        elif names_a_secret(name) and not VARIABLE_IN_TEXT.search(str(text)):
            yield (
                f"the value of {name} (not shown here) may be a key, which never stands here; put it into a variable "
                'and write "${NAME}" for it'
            )


def _query_faults(value: object) -> Iterator[str]:
    for name, text in value.items() if isinstance(value, Mapping) else ():
        if not _is_line(name) or not _is_line(text):
            yield "a parameter's name and value are strings of printable ASCII in one line"
        elif names_a_secret(name) and not VARIABLE_IN_TEXT.search(str(text)):
            yield (
                f"the value of {name} (not shown here) may be a key, which never stands here; put it into a variable "
                'and write "${NAME}" for it'
            )


def _body_faults(value: object) -> Iterator[str]:
    for name, field in value.items() if isinstance(value, Mapping) else ():
        if name in _OUR_FIELDS:
            yield f"embedkit sends the field {name} itself; leave it out"
        elif not _is_json(field):
            yield f"the value of {shown(name)} ({kind_of(field)}) cannot be sent as JSON"


def _option_faults(value: object) -> Iterator[str]:
    for name, option in value.items() if isinstance(value, Mapping) else ():
        if not isinstance(option, str | int | float) or not _is_json(option):
            yield f"the option {shown(name)} is {kind_of(option)}; a number, a string, or true or false is wanted"


def _is_json(value: object, depth: int = _DEEPEST) -> bool:
    match value:
        case str() | bool() | int():
            return True
        case float():
            return math.isfinite(value)
        case Mapping():
            return depth > 0 and all(isinstance(k, str) and _is_json(v, depth - 1) for k, v in value.items())
        case list() | tuple():
            return depth > 0 and all(_is_json(item, depth - 1) for item in value)
    return False


def _table_rule(expects: str, example: str, faults: Any, schema: Mapping[str, object]) -> Rule:
    return Rule(
        expects=expects,
        example=example,
        accepts=lambda value: isinstance(value, Mapping) and next(faults(value), None) is None,
        schema={"type": "object", **schema},
        convert=_frozen,
        explain=lambda value: next(faults(value), None),
    )


_LINE = {"type": "string", "pattern": r"^[!-~]([ -~]*[!-~])?$"}

HEADERS = _table_rule(
    "a table of headers",
    '{ x-team = "search" }',
    _header_faults,
    {"additionalProperties": _LINE},
)
QUERY = _table_rule(
    "a table of strings", '{ api-version = "2024-10-21" }', _query_faults, {"additionalProperties": _LINE}
)
BODY = _table_rule(
    "a table of fields",
    '{ input_type = "passage" }',
    _body_faults,
    {"propertyNames": {"not": {"enum": sorted(_OUR_FIELDS)}}},
)
OPTIONS = _table_rule(
    "a table of options",
    "{ num_batch = 512 }",
    _option_faults,
    {"additionalProperties": {"type": ["number", "string", "boolean"]}},
)


def _is_prefix(value: object) -> bool:
    return isinstance(value, str) and value != "" and all(c.isprintable() or c in "\n\t" for c in value)


PREFIX = Rule(
    expects="a string that is not empty",
    example='"search_document: "',
    accepts=_is_prefix,
    schema={"type": "string", "minLength": 1},
)


def _proxy_fault(value: object) -> str | None:
    if not isinstance(value, str) or VARIABLE_IN_TEXT.fullmatch(value):
        return None
    try:
        parts = urlsplit(value)
        host, _port = parts.hostname, parts.port
    except ValueError:
        return "the address (not shown here) is not a URL"
    if "@" in value:
        return 'the address (not shown here) holds credentials; put it into a variable and write "${NAME}" for it'
    if parts.scheme not in ("http", "https") or not host or not _is_line(value) or " " in value:
        return f"{shown(value)} is not a URL that begins with http:// or https:// and a host"
    return None


PROXY = Rule(
    expects="a proxy's URL, or a variable that holds it",
    example='"http://proxy.example:3128"',
    accepts=lambda value: isinstance(value, str) and _proxy_fault(value) is None,
    schema={
        "type": "string",
        "pattern": r"^([Hh][Tt][Tt][Pp][Ss]?://[^/@\s]+[^@\s]*|\$\{[A-Za-z_][A-Za-z0-9_]{0,63}\})$",
    },
    explain=_proxy_fault,
)
