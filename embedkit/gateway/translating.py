"""Embeddings asked for in Ollama's words of an engine that speaks OpenAI's. Pure.

Only what says the same in both is translated: the model, the inputs, the dimensions. A field that the other dialect has
no word for is refused by name, for an answer that ignored it would be an answer to another question.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from typing import Any

import orjson

from embedkit.gateway.refusals import Refusal, bad

OPENAI_PATH = "/embeddings"

# ``truncate`` false is what engines that speak OpenAI's dialect do anyway; ``keep_alive`` is a wish about memory.
_IGNORED: Mapping[str, tuple[object, ...] | None] = {
    "truncate": (False, None),
    "keep_alive": None,
    "options": ({}, None),
}
_SAME = ("input", "dimensions")


def to_openai(document: dict[str, Any], path: str, model: str) -> bytes:
    """The body of OpenAI's request that asks for what Ollama's ``document`` asks for.

    Raises:
        Refusal: It says something that OpenAI's dialect cannot.
    """
    asked = dict(document)
    asked.pop("model")
    if path == "/api/embeddings":
        asked["input"] = asked.pop("prompt", None)
    for name, plain in _IGNORED.items():
        value = asked.pop(name, None)
        if plain is not None and value not in plain:
            raise _untranslatable(name)
    for name in asked:
        if name not in _SAME:
            raise _untranslatable(name)
    return orjson.dumps({"model": model, **{name: value for name, value in asked.items() if value is not None}})


def from_openai(body: bytes, path: str, model: str) -> bytes:
    """Ollama's answer that says what OpenAI's ``body`` says, under the name by which the model was asked for.

    Raises:
        Refusal: The engine's answer is none.
    """
    try:
        document = orjson.loads(body)
        items = sorted(document["data"], key=lambda item: int(item["index"]))
        vectors = [_numbers(item["embedding"]) for item in items]
    except (orjson.JSONDecodeError, LookupError, TypeError, ValueError):
        raise Refusal(502, "response_invalid", "the engine's answer holds no embeddings") from None
    if path == "/api/embeddings":
        return orjson.dumps({"embedding": vectors[0] if vectors else []})
    usage = document.get("usage")
    tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    counted = {"prompt_eval_count": tokens} if isinstance(tokens, int) else {}
    return orjson.dumps({"model": model, "embeddings": vectors, **counted})


def _numbers(embedding: Any) -> list[float]:
    if isinstance(embedding, str):
        raw = base64.b64decode(embedding, validate=True)
        return list(struct.unpack(f"<{len(raw) // 4}f", raw))
    return [float(number) for number in embedding]


def _untranslatable(name: str) -> Refusal:
    message = f"the field {name[:40]!a} has no word in OpenAI's dialect, which this model's engine speaks"
    return bad(message, code="other_dialect")
