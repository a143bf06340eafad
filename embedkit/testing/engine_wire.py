"""The languages a scripted engine speaks: requests read, replies written. Pure.

=============================================  ===========================================
``POST /v1/embeddings``                        OpenAI's, with base64 where it is asked for
``GET /v1/models``                             OpenAI's list
``POST /api/embed``                            Ollama's
``GET /api/tags``                              Ollama's list
``POST /v1/chat/completions``                  OpenAI's, whole or as a stream
``POST /api/chat``                             Ollama's, the same; a stream where it asks for one
``POST /v1beta/models/...:batchEmbedContents`` Gemini's
``POST /v1beta/models/...:embedContent``       Gemini's for one text
``GET /v1beta/models``                         Gemini's list
``GET /health``                                llama.cpp's
=============================================  ===========================================
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Mapping
from typing import Literal

import attrs

from embedkit.testing.engine_answers import Item

Dialect = Literal["openai", "ollama", "gemini"]
Base64 = Literal["gives", "ignores", "refuses"]

GEMINI_BATCH = 100
_GOOGLE_WORDS = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}
_GEMINI_PATH = re.compile(r"/v1beta/models/(?P<model>[^/:]+):(?P<verb>embedContent|batchEmbedContents)")
_EMBEDDING_PATHS: dict[str, Dialect] = {"/v1/embeddings": "openai", "/api/embed": "ollama"}
_CHAT_PATHS: dict[str, Dialect] = {"/v1/chat/completions": "openai", "/api/chat": "ollama"}


@attrs.frozen
class EngineRequest:
    """An embedding request, or a question to a chat model, as it arrived.

    Attributes:
        number: Counted from 1 in order of arrival.
        dialect: The language it came in.
        model: The model it names.
        texts: Its inputs; of a question, what its messages say.
        wants_base64: Whether it asks for base64.
        headers: Names in lower case.
        document: The parsed body, whole.
    """

    number: int
    dialect: Dialect
    model: str
    texts: tuple[str, ...]
    wants_base64: bool
    headers: Mapping[str, str] = attrs.field(repr=False)
    document: Mapping[str, object] = attrs.field(repr=False)
    is_chat: bool = False

    @property
    def streams(self) -> bool:
        """Whether the reply is to come in pieces."""
        return self.is_chat and self.document.get("stream") is True


@attrs.frozen
class Refusal(Exception):
    """A request that the engine cannot read or will not take, with the status and words it answers."""

    status: int
    message: str


def dialect_of(method: str, path: str) -> Dialect | None:
    """The language of an embedding request, or of a question; ``None`` for any other request."""
    if method != "POST":
        return None
    return "gemini" if _GEMINI_PATH.fullmatch(path) else (_EMBEDDING_PATHS | _CHAT_PATHS).get(path)


def read_request(number: int, dialect: Dialect, path: str, headers: Mapping[str, str], body: bytes) -> EngineRequest:
    """The request that ``body`` is.

    Raises:
        Refusal: it is none; as a real engine would say it.
    """
    try:
        document = json.loads(body)
    except ValueError:
        raise Refusal(400, "the body is not JSON") from None
    if not isinstance(document, dict):
        raise Refusal(400, "the body is not an object")
    gemini = _GEMINI_PATH.fullmatch(path)
    is_chat = path in _CHAT_PATHS
    if is_chat:
        texts = _messages(document)
    else:
        texts = _inputs(document) if gemini is None else _gemini_inputs(document, gemini["verb"])
    return EngineRequest(
        number=number,
        dialect=dialect,
        model=str(document.get("model")) if gemini is None else gemini["model"],
        texts=texts,
        wants_base64=document.get("encoding_format") == "base64",
        headers=headers,
        document=document,
        is_chat=is_chat,
    )


def _inputs(document: dict[str, object]) -> tuple[str, ...]:
    given = document.get("input")
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise Refusal(400, "input must be a string or a list of strings")
    return tuple(texts)


def _messages(document: dict[str, object]) -> tuple[str, ...]:
    messages = document.get("messages")
    try:
        texts = [message["content"] for message in messages]  # type: ignore[attr-defined]  # what is none is refused
    except (KeyError, TypeError):
        texts = []
    if not texts or not all(isinstance(text, str) for text in texts):
        raise Refusal(400, "messages must be a list of objects with role and content")
    return tuple(texts)


def _gemini_inputs(document: dict[str, object], verb: str) -> tuple[str, ...]:
    """One input a content: the parts of one content are embedded as one text."""
    requests = document.get("requests") if verb == "batchEmbedContents" else [document]
    if not isinstance(requests, list) or not 1 <= len(requests) <= GEMINI_BATCH:
        raise Refusal(400, f"at most {GEMINI_BATCH} requests can be in one batch")
    try:
        return tuple("\n".join(part["text"] for part in request["content"]["parts"]) for request in requests)
    except (KeyError, TypeError):
        raise Refusal(400, "requests[0].content: contents is not specified") from None


def write_vectors(request: EngineRequest, items: list[Item], *, in_base64: bool) -> bytes:
    """The reply's body."""
    if request.dialect == "ollama":
        document: dict[str, object] = {
            "model": request.model,
            "embeddings": [item.vector for item in items],
            "total_duration": 1,
            "load_duration": 1,
            "prompt_eval_count": _tokens(request),
        }
    elif request.dialect == "gemini":
        vectors = [{"values": item.vector} for item in items]
        document = {"embeddings": vectors} if "requests" in request.document else {"embedding": vectors[0]}
    else:
        document = {
            "object": "list",
            "data": [_openai_item(item, in_base64) for item in items],
            "model": request.model,
            "usage": {"prompt_tokens": _tokens(request), "total_tokens": _tokens(request)},
        }
    return json.dumps(document).encode()


def write_chat(request: EngineRequest, text: str) -> bytes:
    """The body of a reply that says ``text``."""
    message = {"role": "assistant", "content": text}
    words = len(text.split())
    if request.dialect == "ollama":
        document: dict[str, object] = {
            "model": request.model,
            "message": message,
            "done": True,
            "done_reason": "stop",
            "prompt_eval_count": _tokens(request),
            "eval_count": words,
        }
    else:
        document = {
            "object": "chat.completion",
            "model": request.model,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": _tokens(request), "completion_tokens": words},
        }
    return json.dumps(document).encode()


def write_stream(request: EngineRequest, text: str) -> list[bytes]:
    """The pieces of a reply that says ``text``, a word each."""
    words = [word + " " for word in text.split()]
    if request.dialect == "ollama":
        documents: list[dict[str, object]] = [
            {"model": request.model, "message": {"role": "assistant", "content": word}, "done": False} for word in words
        ]
        last = {"model": request.model, "message": {"role": "assistant", "content": ""}, "done": True}
        return [json.dumps(document).encode() + b"\n" for document in (*documents, last)]
    deltas: list[tuple[dict[str, object], str | None]] = [({"content": word}, None) for word in words]
    pieces = [
        {
            "id": "scripted",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": request.model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
        }
        for delta, reason in (*deltas, ({}, "stop"))
    ]
    return [*(b"data: " + json.dumps(piece).encode() + b"\n\n" for piece in pieces), b"data: [DONE]\n\n"]


def write_error(dialect: Dialect | None, status: int, message: str) -> bytes:
    """An error as the engine of this language words it."""
    error: object = {"message": message, "code": status, "type": "error"}
    if dialect == "ollama":
        error = message
    elif dialect == "gemini":
        error = {"message": message, "code": status, "status": _GOOGLE_WORDS.get(status, "UNKNOWN")}
    return json.dumps({"error": error}).encode()


def write_listing(path: str, models: tuple[str, ...]) -> bytes | None:
    """The body of a request that computes nothing, or ``None`` for a path that is not there."""
    listings: dict[str, object] = {
        "/v1/models": {
            "object": "list",
            "data": [{"id": name, "object": "model", "created": 0, "owned_by": "script"} for name in models],
        },
        "/api/tags": {"models": [{"name": _tagged(name), "model": _tagged(name)} for name in models]},
        "/v1beta/models": {"models": [{"name": f"models/{name}"} for name in models]},
        "/health": {"status": "ok"},
    }
    return json.dumps(listings[path]).encode() if path in listings else None


def _openai_item(item: Item, in_base64: bool) -> dict[str, object]:
    embedding: object = item.vector
    if in_base64 and None not in item.vector:
        embedding = base64.b64encode(struct.pack(f"<{len(item.vector)}f", *item.vector)).decode("ascii")
    index = {} if item.index is None else {"index": item.index}
    return {"object": "embedding", **index, "embedding": embedding}


def _tagged(name: str) -> str:
    return name if ":" in name else f"{name}:latest"


def _tokens(request: EngineRequest) -> int:
    return sum(len(text.split()) for text in request.texts)
