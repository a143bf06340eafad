"""An engine's refusal, classified: status, headers and body become exactly one error. Pure.

Status and headers come first; the words of ``engine_table`` refine them. Engines agree on little: the reason stands in
``error``, ``error.message``, ``message`` or ``detail``, or in plain text, and some answer 200 with an error inside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import attrs

from embedkit.errors import (
    ContentRefused,
    ModelNotResident,
    ProviderAuthError,
    ProviderBusy,
    ProviderError,
    ProviderFailure,
    ProviderUnavailable,
    QuotaExhausted,
    ResponseInvalid,
)
from embedkit.providers.engine_table import STATUS_WORDS
from embedkit.providers.engine_words import EngineWords, words_of
from embedkit.providers.exchange import Reply
from embedkit.providers.json_body import load_error
from embedkit.providers.retry_after import hint_seconds

Format = Literal["base64", "float"] | None
"""How vectors are asked for; ``None``: as the engine likes."""

_BUSY = frozenset({408, 429, 503, 504})
_HINTED = frozenset({429, 503})
# Too early, a client that a proxy thinks has left, and every failure behind a proxy but those that will not pass.
_PASSING = frozenset({425, 499})
_LASTING = frozenset({501, 505, 510, 511})
_QUOTA = frozenset({400, 401, 402, 403, 429})
_MOST_STATUS = 600
# Statuses under which an engine refuses the form of its answer, whatever it says.
_REFUSES_FORMAT = frozenset({400, 406, 415, 422, 500, 501})
_INDEX = re.compile(
    r"\b(?:input|request|text|document|prompt|item)s?(?:\.|\[| |\.content\[)(\d{1,6})\b"
    r"(?! ?(?:tokens|characters|>|of\b))",
    re.IGNORECASE,
)


@attrs.frozen
class Asked:
    """What a refusal is judged against.

    Attributes:
        peer: ``host:port`` of the engine, for messages.
        inputs: The texts that were sent; never shown.
        now: The wall clock, for a hint that is a date.
        secrets: What was sent as keys; never shown.
        show: Given the engine's own words, less the keys, where somebody asked to see them.
    """

    peer: str
    inputs: Sequence[str] = attrs.field(repr=False)
    now: datetime
    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)
    show: Callable[[str], None] | None = attrs.field(default=None, repr=False)


def failure_of(reply: Reply, asked: Asked) -> ProviderError:
    """The one error that a reply with a status other than 2xx is."""
    words = words_of(load_error(reply.body), asked.inputs, asked.secrets)
    _show(asked, f"answered {reply.status}", words)
    return _classify(reply.status, reply.headers, words, asked)


def failure_inside(document: object, reply: Reply, asked: Asked) -> ProviderError:
    """The error that came with status 200, in a document that ``is_error``."""
    words = words_of(document, asked.inputs, asked.secrets)
    _show(asked, "answered 200 with an error inside", words)
    status = _status_of(words)
    if status is not None:
        return _classify(status, reply.headers, words, asked)
    guess = _classify(400, reply.headers, words, asked)
    if type(guess) is not ProviderFailure:
        return guess
    return ResponseInvalid(_message(asked, "answered 200 with an error inside", words), status=reply.status)


def is_error(document: object) -> bool:
    """Whether there is an error object, or a message where the vectors should be (SiliconFlow, DashScope)."""
    if not isinstance(document, dict):
        return False
    if document.get("error"):
        return True
    has_vectors = any(isinstance(document.get(name), list) for name in ("data", "embeddings"))
    return not has_vectors and any(isinstance(document.get(name), str) for name in ("message", "detail", "msg"))


def format_after(reply: Reply, asked_for: Format, asked: Asked) -> Format:
    """In which form vectors are to be asked for after a refusal: the same, unless the refusal may be of the form.

    An engine without base64 says so, or nothing that is known to mean something else: asking once for numbers shows
    which it is. One that does not know the field says so.
    """
    if asked_for is None or reply.status not in _REFUSES_FORMAT:
        return asked_for
    words = words_of(load_error(reply.body), asked.inputs, asked.secrets)
    if asked_for == "float":
        return None if words.means("format") else asked_for
    error = _classify(reply.status, reply.headers, words, asked)
    is_unknown = isinstance(error, ProviderFailure)
    return "float" if is_unknown or words.means("format") else asked_for


def _classify(status: int, headers: Mapping[str, str], words: EngineWords, asked: Asked) -> ProviderError:
    def error(kind: type[ProviderError], why: str = "", **more: Any) -> ProviderError:
        return kind(_message(asked, f"answered {status}{why and ': '}{why}", words), status=status, **more)

    hint = hint_seconds(headers, asked.now, words.retry_info) if status in _HINTED else None
    if _is_quota(status, words, hint):
        return error(QuotaExhausted, "a quota or a balance is used up, and waiting does not bring it back")
    if status in _BUSY:
        return error(ProviderBusy, retry_after=hint)
    if status in (401, 403):
        return error(ProviderAuthError, "it does not accept the key")
    if status == 404 or words.means("not-loaded"):
        return error(ModelNotResident, "the model is not loaded, or base_url has another path")
    if status == 400 and words.means("key") and not words.means("too-long"):
        return error(ProviderAuthError, "it does not accept the key")
    if words.means("speaks-tls"):
        return error(ProviderFailure, "it speaks TLS there; begin base_url with https://")
    if words.means("no-embeddings"):
        return error(ProviderFailure, "it gives no embeddings; start it for them, or name a model that embeds")
    refused = _content(status, words, asked)
    if refused is not None:
        return refused
    if words.means("busy"):
        return error(ProviderBusy)
    if 300 <= status < 400:
        return error(ProviderFailure, "it redirects; give base_url the final address")
    if status in _PASSING or words.means("crashed") or (500 <= status < _MOST_STATUS and status not in _LASTING):
        return error(ProviderUnavailable)
    return error(ProviderFailure)


def _is_quota(status: int, words: EngineWords, hint: float | None) -> bool:
    """Whether waiting cannot help: 402, or a refusal in such words. Google says them of a rate as well, with a hint."""
    if status == 402 or "insufficient_quota" in words.codes:
        return True
    if status not in _QUOTA or hint is not None or not words.means("quota"):
        return False
    lasting = [phrase for phrase in words.phrases if phrase.means == "quota"]
    return "RESOURCE_EXHAUSTED" not in words.codes or any("limit: 0" in phrase.says for phrase in lasting)


def _content(status: int, words: EngineWords, asked: Asked) -> ContentRefused | None:
    """One input is at fault. 500 as well: llama.cpp says an overflow with it, and Ollama a NaN."""
    if status < 400:
        return None
    what = f"answered {status}"
    index = _index(words.evidence, asked)
    if words.means("too-many") and len(asked.inputs) > 1:
        message = _message(asked, f"{what}: more inputs than it takes in one request", words)
        most = words.number_of("too-many")
        return ContentRefused(message, code="BATCH_TOO_LARGE", status=status, max_inputs=most)
    if status == 413 or (words.means("too-long") and not words.means("busy")):
        message = _message(asked, f"{what}: an input is too long", words)
        return ContentRefused(message, code="INPUT_TRUNCATED", status=status, input_index=index)
    if status >= 500 and words.means("no-vector"):
        message = _message(asked, f"{what}: an input has no vector (NaN)", words)
        return ContentRefused(message, code="INPUT_REFUSED", status=status, input_index=index)
    if status in (400, 422) and (words.names_input or words.means("one-input")):
        message = _message(asked, f"{what}: an input is refused", words)
        return ContentRefused(message, code="INPUT_REFUSED", status=status, input_index=index)
    return None


def _index(text: str, asked: Asked) -> int | None:
    """Position of the input at fault: the engine's word for it, or the only one there is."""
    if len(asked.inputs) == 1:
        return 0
    found = _INDEX.search(text)
    return int(found[1]) if found and int(found[1]) < len(asked.inputs) else None


def _status_of(words: EngineWords) -> int | None:
    for code in words.codes:
        if code.isascii() and code.isdigit() and len(code) == 3 and 400 <= int(code) < _MOST_STATUS:
            return int(code)
        if code.lower() in STATUS_WORDS:
            return STATUS_WORDS[code.lower()]
    return None


def _message(asked: Asked, what: str, words: EngineWords) -> str:
    said = words.shown
    if not said and words.raw:
        said = "its own words are not shown; --show-engine-words does"
    return f"engine {asked.peer} {what}" + (f" ({said})" if said else "")


def _show(asked: Asked, what: str, words: EngineWords) -> None:
    if asked.show is not None and words.raw:
        asked.show(f"engine {asked.peer} {what}: {words.raw}")
