"""What the gateway reads of a body: the model, how many inputs, and whether it streams. Pure.

Everything else passes as it came. The name of a model is replaced only where a client uses a name of the gateway's own;
then the bytes around it stay, unless the name stands in them twice.
"""

from __future__ import annotations

import json
import re
from typing import Any

import attrs
import orjson

from embedkit.gateway.paths import Queued
from embedkit.gateway.refusals import Refusal, bad

AT_ONCE = 1 << 18
"""Bytes that are parsed where they are; more would hold up everybody else for more than a millisecond."""

_MOST_CONTAINERS = 1_000_000
_MOST_COMMAS = 4_000_000
_MODEL = re.compile(rb'"model"\s*:\s*"(?:[^"\\]|\\.)*"')


@attrs.frozen
class Asked:
    """What a request's body says.

    Attributes:
        model: The name of the model.
        inputs: How many inputs it carries; 1 where it is no list of them.
        streams: Whether its answer is to come in pieces.
        document: The whole of it, for who has to translate it.
    """

    model: str
    inputs: int
    streams: bool
    document: dict[str, Any] = attrs.field(repr=False)


def read_body(body: bytes, queued: Queued) -> Asked:
    """What ``body`` asks for.

    Raises:
        Refusal: It is no JSON object, or names no model.
    """
    if len(body) > AT_ONCE and (
        body.count(b"[") + body.count(b"{") > _MOST_CONTAINERS or body.count(b",") > _MOST_COMMAS
    ):
        raise Refusal(413, "too_many_values", "the body holds more values than any request needs")
    document = json_object(body)
    streams = document.get("stream", queued.streams)
    if not isinstance(streams, bool | None):
        raise bad("stream must be true or false")
    inputs = 1
    if queued.inputs is not None:
        inputs = max(_count(document.get(queued.inputs)), 1)
    return Asked(_model_in(document), inputs, queued.may_stream and bool(streams), document)


def json_object(body: bytes) -> dict[str, Any]:
    """The object that ``body`` is.

    Raises:
        Refusal: It is none.
    """
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise bad("the body is not JSON", code="invalid_json") from None
    if not isinstance(document, dict):
        raise bad("the body is not a JSON object", code="invalid_json")
    return document


def model_name(document: dict[str, Any]) -> str:
    """The model that a request about a model names: Ollama's ``show`` says it as ``model``, or as ``name``.

    Raises:
        Refusal: It names none.
    """
    return _model_in({"model": document.get("model") or document.get("name")})


def with_model(body: bytes, document: dict[str, Any], model: str) -> bytes:
    """``body`` with ``model`` as its model. Only the name's own bytes change, where it stands there once."""
    places = _MODEL.findall(body)
    if len(places) == 1:
        named = b'"model":' + json.dumps(model, ensure_ascii=False).encode()
        return body.replace(places[0], named, 1)
    return orjson.dumps({**document, "model": model})


def _model_in(document: dict[str, Any]) -> str:
    model = document.get("model")
    if not isinstance(model, str) or not model.strip():
        raise bad("the body names no model; the field model is missing or no string", code="model_missing")
    return model


def _count(value: Any) -> int:
    """How many inputs: a list of strings, of lists of tokens or of objects has one an item, a list of tokens is one."""
    if not isinstance(value, list) or not value:
        return 1
    return 1 if isinstance(value[0], int) else len(value)
