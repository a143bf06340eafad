"""Request bodies written and reply bodies read as JSON.

orjson, because Ollama gives vectors as JSON numbers only: 32 vectors of 768 take it 0.8 ms, the standard
library 7.7.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import attrs

from embedkit.errors import ResponseInvalid

_LARGEST_ERROR = 1 << 16
_TEXT_READ = 4_096
_FLOOR = 1 << 20
_WIDEST = 16_384
_BYTES_A_NUMBER = 40  # all digits of a double, and the blanks of an indented document
_BYTES_AN_ITEM = 4_096
_CONTAINERS_AN_ITEM = 16
_COMMAS_AN_ITEM = 64
_SPARE = 1_024
NOT_COUNTED = 1 << 18


def dump_json(document: dict[str, object]) -> bytes:
    """``document`` as UTF-8 JSON. A lone surrogate in a string, which UTF-8 cannot carry, becomes ``?``."""
    import orjson

    try:
        return orjson.dumps(document)
    except orjson.JSONEncodeError:
        return orjson.dumps(_without_surrogates(document))


def load_json(body: bytes, bound: Bound | None = None) -> object:
    """What ``body`` says.

    Args:
        body: The bytes of a reply.
        bound: How many values it may hold. Counting what begins them takes a thousandth of the time of making them.

    Raises:
        ResponseInvalid: it is not JSON: empty, HTML, cut short, or not text; or it holds more than its bound. The
            message quotes none of it.
    """
    import orjson

    if bound is not None and not bound.holds(body):
        raise ResponseInvalid("the reply holds more values than the batch can need")
    try:
        document: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        return _load_lenient(body)
    return document


def load_error(body: bytes) -> object:
    """What the body of a refusal says: parsed where it is JSON of a bearable size, else the beginning of its text."""
    if len(body) <= _LARGEST_ERROR:
        try:
            return load_json(body)
        except ResponseInvalid:
            pass
    return body[:_TEXT_READ].decode("utf-8", "replace")


@attrs.frozen
class Bound:
    """How large a reply may be, by what was asked.

    Attributes:
        size: Of the body, in bytes.
        containers: Lists and objects in it.
        commas: In it, which are as many as its values.
    """

    size: int
    containers: int
    commas: int

    def holds(self, body: bytes) -> bool:
        """Whether ``body`` stays within the bound. What stands in strings is counted too.

        A small one is not counted, whatever is in it: it can cost a few milliseconds and ten megabytes at most, and
        counting would be a third of what reading a good one takes.
        """
        if len(body) > self.size:
            return False
        if len(body) <= NOT_COUNTED:
            return True
        return body.count(b"[") + body.count(b"{") <= self.containers and body.count(b",") <= self.commas


LISTING = Bound(size=8 << 20, containers=200_000, commas=1_000_000)
"""For a list of models; a large gateway's has hundreds, each described at length."""


def bound_of(texts: Sequence[str], dimension: int | None) -> Bound:
    """What a reply for ``texts`` can need, their echo included.

    Args:
        texts: The inputs of the request.
        dimension: Of a vector; unless it is known, the largest that is believed.
    """
    width = _WIDEST if dimension is None else dimension
    echo = sum(map(len, texts))
    return Bound(
        size=max(_FLOOR, len(texts) * (width * _BYTES_A_NUMBER + _BYTES_AN_ITEM) + 8 * echo),
        containers=_SPARE + _CONTAINERS_AN_ITEM * len(texts) + echo,
        commas=_SPARE + len(texts) * (width + _COMMAS_AN_ITEM) + echo,
    )


def _load_lenient(body: bytes) -> object:
    # Some engines write NaN as Python does. Reading it lets validation name the input that it stands for.
    if b"NaN" in body or b"Infinity" in body:
        try:
            document: object = json.loads(body.decode("utf-8"))  # not in any other encoding, as it would
        except (ValueError, RecursionError):
            pass
        else:
            return document
    raise ResponseInvalid(f"the reply is {_looks_like(body)}, not JSON")


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
