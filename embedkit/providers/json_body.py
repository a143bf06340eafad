"""Request bodies written and reply bodies read as JSON.

orjson, because Ollama gives vectors as JSON numbers only: 32 vectors of 768 take it 0.8 ms, the standard
library 7.7.
"""

from __future__ import annotations

import json

from embedkit.errors import ResponseInvalid


def dump_json(document: dict[str, object]) -> bytes:
    """``document`` as UTF-8 JSON. A lone surrogate in a string, which UTF-8 cannot carry, becomes ``?``."""
    import orjson

    try:
        return orjson.dumps(document)
    except orjson.JSONEncodeError:
        return orjson.dumps(_without_surrogates(document))


def load_json(body: bytes) -> object:
    """What ``body`` says.

    Raises:
        ResponseInvalid: it is not JSON: empty, HTML, cut short, or not text. The message quotes none of it.
    """
    import orjson

    try:
        document: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        return _load_lenient(body)
    return document


def _load_lenient(body: bytes) -> object:
    # Some engines write NaN as Python does. Reading it lets validation name the input that it stands for.
    try:
        document: object = json.loads(body)
    except (ValueError, RecursionError):
        raise ResponseInvalid(f"the reply is {_looks_like(body)}, not JSON") from None
    return document


def _looks_like(body: bytes) -> str:
    start = body[:64].lstrip().lower()
    if not start:
        return "empty"
    if start.startswith((b"<!doctype", b"<html", b"<?xml", b"<head", b"<body")):
        return "an HTML page"
    return "cut short" if start.startswith((b"{", b"[")) else "something else"


def _without_surrogates(value: object) -> object:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode("utf-8")
        case dict():
            return {key: _without_surrogates(item) for key, item in value.items()}
        case list() | tuple():
            return [_without_surrogates(item) for item in value]
    return value
