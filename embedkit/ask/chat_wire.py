"""The languages of chat engines: requests written, replies read. Pure.

=====================  ===============================  ============================================================
language               request                          reply
=====================  ===============================  ============================================================
OpenAI's               ``POST {base}/chat/completions`` ``choices[0].message.content``, ``finish_reason``, ``usage``
Ollama's               ``POST {base}/api/chat``         ``message.content``, ``done_reason``, ``*_eval_count``
=====================  ===============================  ============================================================

Status 200 with an ``error`` object is that error, also where it stands inside a choice (OpenRouter). Without any text
because the limit on tokens was reached, a reply is *truncated*, whatever else is missing in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from embedkit.ask.failing import AskFailed
from embedkit.ask.results import Said, Usage
from embedkit.errors import ResponseInvalid
from embedkit.providers.exchange import Reply
from embedkit.providers.failures import Asked, failure_inside, failure_of
from embedkit.providers.json_body import Bound, load_json

Language = Literal["openai", "ollama"]

PATHS: Mapping[Language, str] = {"openai": "/chat/completions", "ollama": "/api/chat"}
LARGEST_REPLY = 16 << 20
_BOUND = Bound(size=LARGEST_REPLY, containers=200_000, commas=2_000_000)
_MODEL_SHOWN = 200


def question_of(
    language: Language, model: str | None, text: str, fields: Mapping[str, object], runner: Mapping[str, object]
) -> dict[str, object]:
    """The body of a request for a whole answer.

    Args:
        language: Which.
        model: The model that is asked.
        text: The prompt.
        fields: Further fields, from the settings; ours stand over them.
        runner: Ollama's ``options`` and ``keep_alive``, where they are set.
    """
    document: dict[str, object] = {**fields, "messages": [{"role": "user", "content": text}], "stream": False}
    if model is not None:
        document["model"] = model
    if language == "ollama":
        document.update(runner)
    return document


def read_answer(language: Language, reply: Reply, asked: Asked) -> Said:
    """What the model said; it may be blank.

    Raises:
        ProviderError: The one that the reply stands for.
        AskFailed: ``truncated``.
    """
    if not 200 <= reply.status < 300:
        raise failure_of(reply, asked)
    try:
        document = load_json(reply.body, _BOUND)
    except ResponseInvalid as error:
        raise ResponseInvalid(f"engine {asked.peer}: {error}", status=reply.status) from None
    if not isinstance(document, dict):
        raise _unlike(asked, reply)
    if document.get("error"):
        raise failure_inside(document, reply, asked)
    read = _of_ollama if language == "ollama" else _of_openai
    return read(document, reply, asked)


def _of_openai(document: dict[str, Any], reply: Reply, asked: Asked) -> Said:
    choices = document.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        raise _unlike(asked, reply)
    if choice.get("error"):
        raise failure_inside({"error": choice["error"]}, reply, asked)
    text = text_of(choice.get("message"))
    if not (text or "").strip() and choice.get("finish_reason") in ("length", "max_tokens"):
        raise _truncated(asked, reply)
    if text is None:
        raise _unlike(asked, reply)
    usage = document.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    return Said(
        text,
        name_of(document.get("model")),
        usage_of(counts.get("prompt_tokens"), counts.get("completion_tokens")),
    )


def _of_ollama(document: dict[str, Any], reply: Reply, asked: Asked) -> Said:
    text = text_of(document.get("message"))
    if not (text or "").strip() and document.get("done_reason") == "length":
        raise _truncated(asked, reply)
    if text is None:
        raise _unlike(asked, reply)
    usage = usage_of(document.get("prompt_eval_count"), document.get("eval_count"))
    return Said(text, name_of(document.get("model")), usage)


def text_of(message: object) -> str | None:
    """The words of a message; ``None`` if it is none. One that only reasons or calls a tool has no words."""
    if not isinstance(message, dict):
        return None
    content = message.get("content")
    if content is None:
        return ""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else None


def usage_of(prompt: object, answer: object) -> Usage | None:
    """What an engine counts, where it counts anything."""
    counts = [count if type(count) is int and count >= 0 else None for count in (prompt, answer)]
    return None if counts == [None, None] else Usage(*counts)


def name_of(value: object) -> str | None:
    """A model's name, in one line."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        return None
    return value[:_MODEL_SHOWN]


def _unlike(asked: Asked, reply: Reply) -> ResponseInvalid:
    return ResponseInvalid(f"engine {asked.peer}: the reply holds no message of a model", status=reply.status)


def _truncated(asked: Asked, reply: Reply) -> AskFailed:
    message = f"engine {asked.peer}: the limit on tokens was reached before any text; raise it (body.max_tokens)"
    return AskFailed("truncated", message, code="ANSWER_TRUNCATED", status=reply.status)
