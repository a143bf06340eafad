"""An engine's refusal, classified: status, headers and body become exactly one error. Pure.

Engines agree on little: the reason stands in ``error``, ``error.message``, ``message`` or ``detail``, or in
plain text, and some answer 200 with an error inside. What is matched here are the words of real engines,
named at each pattern.

An engine may echo what it was asked, so its own words are shown only if they hold none of the inputs, in one
line and bounded; and the inputs are taken out before any pattern is looked for, or a text about API keys
would be an authentication failure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime

import attrs

from embedkit.errors import (
    ContentRefused,
    ModelNotResident,
    ProviderAuthError,
    ProviderBusy,
    ProviderError,
    ProviderFailure,
    ResponseInvalid,
)
from embedkit.providers.engine_words import EngineWords, words_of
from embedkit.providers.exchange import Reply
from embedkit.providers.json_body import load_json
from embedkit.providers.retry_after import retry_after_seconds

_BUSY = frozenset({408, 429, 503, 504})
_HINTED = frozenset({429, 503})
_REFUSALS = frozenset({400, 413, 422, 500})

# What stands for a status in an error that came with 200, or in words beside one (OpenAI, Google,
# OpenRouter).
_STATUS_WORDS = {
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "resource_exhausted": 429,
    "too_many_requests": 429,
    "overloaded_error": 503,
    "unavailable": 503,
    "unavailable_error": 503,
    "invalid_api_key": 401,
    "authentication_error": 401,
    "unauthenticated": 401,
    "permission_denied": 403,
    "not_found_error": 404,
    "model_not_found": 404,
}

# llama.cpp: "exceed_context_size_error", "input is too large to process"; OpenAI and vLLM: "maximum context
# length"; Ollama: "input length exceeds the context length"; TEI: "must have less than 512 tokens"; Gemini:
# "input token count".
_OVERFLOW = re.compile(
    r"(exceed|max|larger|longer|greater|fit).{0,40}context.{0,3}(length|size|window)|exceed_context"
    r"|too (large|long) to process|(input|prompt|text|sequence).{0,20} too long|too many tokens"
    r"|must have less than \d+ tokens|token (count|limit).{0,40}exceed|exceed.{0,40}tokens"
    r"|(maximum|max)\.?.{0,20} (sequence length|tokens|input length)",
    re.IGNORECASE,
)
# Ollama: "failed to encode response: json: unsupported value: NaN".
_NOT_A_NUMBER = re.compile(r"\bNaN\b|not a number")
# LM Studio: "Model was unloaded while the request was still in queue", "Failed to load model ... Operation
# canceled".
_UNLOADED = re.compile(r"model was unloaded|failed to load model.*operation cancell?ed", re.IGNORECASE | re.DOTALL)
# OpenAI: "Incorrect API key provided"; Gemini: "API key not valid", API_KEY_INVALID.
_KEY = re.compile(r"\bapi[ _-]?key\b|API_KEY|invalid.{0,10}credential|bearer token", re.IGNORECASE)
# OpenAI: "'$.input' is invalid", param "input"; vLLM: "input.3"; Gemini: "requests[3].content"; content
# filters say so in their code.
_ONE_INPUT = re.compile(
    r"\binputs?\b.{0,60}\b(invalid|must|should|cannot|empty|not allowed|refused|rejected)"
    r"|requests?\[\d+\]\.content|content.?(filter|policy)|safety",
    re.IGNORECASE | re.DOTALL,
)
# An engine without base64: the one refusal that is answered by asking again, for floats.
_FORMAT = re.compile(r"encoding_?format|base64", re.IGNORECASE)


@attrs.frozen
class Asked:
    """What a refusal is judged against.

    Attributes:
        peer: ``host:port`` of the engine, for messages.
        inputs: The texts that were sent; never shown.
        now: The wall clock, for a hint that is a date.
        key: What was sent as the key, if anything; never shown.
    """

    peer: str
    inputs: Sequence[str] = attrs.field(repr=False)
    now: datetime
    key: str | None = attrs.field(default=None, repr=False)


def failure_of(reply: Reply, asked: Asked) -> ProviderError:
    """The one error that a reply with a status other than 2xx is."""
    words = words_of(_document_or_text(reply.body), asked.inputs, asked.key)
    return _classify(reply.status, reply.headers, words, asked)


def failure_inside(document: object, reply: Reply, asked: Asked) -> ProviderError | None:
    """The error that a 2xx reply holds instead of vectors, or ``None`` where it holds none."""
    if not isinstance(document, dict) or not document.get("error"):
        return None
    words = words_of(document, asked.inputs, asked.key)
    status = _status_of(words)
    if status is not None:
        return _classify(status, reply.headers, words, asked)
    guess = _classify(400, reply.headers, words, asked)
    if not isinstance(guess, ProviderFailure):
        return guess
    return ResponseInvalid(_message(asked, "200 with an error inside", words), status=reply.status)


def refuses_base64(reply: Reply, inputs: Sequence[str]) -> bool:
    """Whether the engine refuses nothing but the encoding that the vectors were asked for in."""
    if reply.status not in (400, 422, 501):
        return False
    return _FORMAT.search(words_of(_document_or_text(reply.body), inputs).evidence) is not None


def _classify(status: int, headers: Mapping[str, str], words: EngineWords, asked: Asked) -> ProviderError:
    text = words.evidence
    what = f"answered {status}"
    if status in _BUSY:
        hint = _hint(headers, words, asked) if status in _HINTED else None
        return ProviderBusy(_message(asked, what, words), status=status, retry_after=hint)
    if status in (401, 403):
        return ProviderAuthError(_message(asked, f"{what}: it does not accept the key", words), status=status)
    if status == 404 or (status == 400 and _UNLOADED.search(text)):
        known = "the model is not loaded, or base_url has another path"
        return ModelNotResident(_message(asked, f"{what}: {known}", words), status=status)
    if status == 400 and _KEY.search(text):
        return ProviderAuthError(_message(asked, f"{what}: it does not accept the key", words), status=status)
    refused = _content(status, text, what, words, asked)
    if refused is not None:
        return refused
    if 300 <= status < 400:
        where = "it redirects; give base_url the final address"
        return ProviderFailure(_message(asked, f"{what}: {where}", words), status=status)
    return ProviderFailure(_message(asked, what, words), status=status)


def _hint(headers: Mapping[str, str], words: EngineWords, asked: Asked) -> float | None:
    seconds = retry_after_seconds(headers.get("retry-after"), asked.now)
    return words.retry_info if seconds is None else seconds


def _content(status: int, text: str, what: str, words: EngineWords, asked: Asked) -> ContentRefused | None:
    """One input is at fault. 500 as well: llama.cpp says an overflow with it, and Ollama a NaN."""
    if status not in _REFUSALS:
        return None
    if status == 413 or _OVERFLOW.search(text):
        message = _message(asked, f"{what}: an input is too long", words)
        return ContentRefused(message, code="INPUT_TRUNCATED", status=status, input_index=_index(text, asked))
    if status == 500 and _NOT_A_NUMBER.search(text):
        message = _message(asked, f"{what}: an input has no vector (NaN)", words)
        return ContentRefused(message, code="INPUT_REFUSED", status=status, input_index=_index(text, asked))
    if status in (400, 422) and (words.names_input or _ONE_INPUT.search(text)):
        message = _message(asked, f"{what}: an input is refused", words)
        return ContentRefused(message, code="INPUT_REFUSED", status=status, input_index=_index(text, asked))
    return None


def _index(text: str, asked: Asked) -> int | None:
    """Position of the input at fault: the engine's word for it, or the only one there is."""
    if len(asked.inputs) == 1:
        return 0
    found = re.search(r"\b(?:input|request)s?(?:\.|\[| )(\d{1,6})\b", text, re.IGNORECASE)
    return int(found[1]) if found and int(found[1]) < len(asked.inputs) else None


def _status_of(words: EngineWords) -> int | None:
    for code in words.codes:
        if code.isascii() and code.isdigit() and len(code) == 3 and 400 <= int(code) < 600:
            return int(code)
        if code.lower() in _STATUS_WORDS:
            return _STATUS_WORDS[code.lower()]
    return None


def _document_or_text(body: bytes) -> object:
    try:
        return load_json(body)
    except ResponseInvalid:
        return body[:4096].decode("utf-8", "replace")


def _message(asked: Asked, what: str, words: EngineWords) -> str:
    return f"engine {asked.peer} {what}" + (f" ({words.shown})" if words.shown else "")
