"""The JSON schema of what ``search --json`` prints. Pure."""

from __future__ import annotations

from typing import Any, Final

VERSION: Final = 1
"""Of the document. Fields may be added to it; another meaning of one is another version."""

_LINES = {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 2, "maxItems": 2}
_PLACE = {"repository": {"type": "string"}, "path": {"type": "string"}, "lines": _LINES}
_HIT: dict[str, Any] = {
    "score": {"type": "number"},
    "tenant": {"type": "string"},
    "root": {"type": ["string", "null"], "description": "the folder that path is below, where it is one"},
    **_PLACE,
    "text": {"type": "string"},
    "cosine": {"type": ["number", "null"], "description": "null in mode text"},
    "metadata": {"type": "object"},
    "also": {"type": "array", "items": {"type": "object", "properties": _PLACE, "required": list(_PLACE)}},
}


def hits_schema() -> dict[str, Any]:
    """The schema, as ``search --schema`` prints it."""
    hit = {"type": "object", "properties": _HIT, "required": list(_HIT)}
    properties = {
        "version": {"const": VERSION},
        "query": {"type": "string"},
        "mode": {"enum": ["hybrid", "vector", "text"]},
        "hits": {"type": "array", "items": hit},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "embedkit search --json",
        "type": "object",
        "properties": properties,
        "required": list(properties),
    }
