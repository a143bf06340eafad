"""What the programs say: their output read, their errors known by exact phrases, their environment. Pure.

A phrase is the vendor's own, whole: "author" is no authentication and "generate" is no rate. What a program writes is
never shown, since it may quote the question; only the phrase that was found in it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from embedkit.ask.failing import AskFailed
from embedkit.ask.kinds import Kind
from embedkit.ask.results import Said, Usage

Program = Literal["codex", "gemini-cli"]

_PHRASES: Final[tuple[tuple[Kind, str], ...]] = (
    ("missing-auth", "Not logged in"),
    ("missing-auth", "Please set an Auth method"),
    ("missing-auth", "must specify the GEMINI_API_KEY environment variable"),
    ("auth", "401 Unauthorized"),
    ("auth", "403 Forbidden"),
    ("auth", "API key not valid"),
    ("auth", "Incorrect API key provided"),
    ("auth", "UNAUTHENTICATED"),
    ("auth", "PERMISSION_DENIED"),
    ("auth", "Please log out and sign in again"),
    ("model-not-allowed", "does not have access to model"),
    ("model-not-allowed", "model is not supported when using Codex"),
    ("not-found", "ModelNotFoundError"),
    ("not-found", "Requested entity was not found"),
    ("not-found", "404 Not Found"),
    ("rate-limit", "You've hit your usage limit"),
    ("rate-limit", "429 Too Many Requests"),
    ("rate-limit", "RESOURCE_EXHAUSTED"),
    ("rate-limit", "rate_limit_exceeded"),
    ("rate-limit", "exceeded your current quota"),
    ("rate-limit", "Quota exceeded for"),
    ("upstream", "The model is overloaded"),
    ("upstream", "500 Internal Server Error"),
    ("upstream", "502 Bad Gateway"),
    ("upstream", "503 Service Unavailable"),
    ("network", "stream disconnected before completion"),
    ("network", "error sending request for url"),
    ("network", "ECONNREFUSED"),
    ("network", "ECONNRESET"),
    ("network", "ENOTFOUND"),
    ("network", "TypeError: fetch failed"),
)
_ERROR_LINE = re.compile(r"^\s{0,8}(?:\[API Error:|ERROR:|Error:)", re.MULTILINE)
_CREDENTIAL = re.compile(r"KEY|TOKEN|SECRET|PASS(?:WORD|WD|PHRASE)|CREDENTIAL|(?:^|_)AUTH(?:_|$)|PRIVATE", re.I)
_OWN: Final[Mapping[Program, frozenset[str]]] = {
    "codex": frozenset({"OPENAI_API_KEY", "CODEX_API_KEY"}),
    "gemini-cli": frozenset({"GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS"}),
}
_LONGEST_ID = 200


def arguments_of(program: Program, model: str | None) -> list[str]:
    """What follows the program's name; the question comes on standard input."""
    chosen = [] if model is None else ["-m", model]
    if program == "codex":
        return ["exec", "--json", "--skip-git-repo-check", "--sandbox", "read-only", *chosen, "-"]
    return [*chosen, "--output-format", "json"]


def scrubbed(program: Program, environ: Mapping[str, str], own: str | None) -> dict[str, str]:
    """``environ`` without names that look like credentials, but for the program's own.

    Args:
        program: Which.
        environ: The whole environment.
        own: The variable that the settings name, where they name one.
    """
    return without_credentials(environ, _OWN[program] | ({own} if own else set()))


def without_credentials(environ: Mapping[str, str], kept: frozenset[str] = frozenset()) -> dict[str, str]:
    """``environ`` without names that look like credentials, but for those that are ``kept``."""
    return {name: value for name, value in environ.items() if name in kept or not _CREDENTIAL.search(name)}


def read_output(program: Program, name: str, output: str, errors: str, status: int) -> Said:
    """What the model said, by a program that ended by itself; it may be blank.

    Args:
        program: Which.
        name: Of the provider, for messages.
        output: Its standard output.
        errors: Its standard error.
        status: Its exit status.

    Raises:
        AskFailed: It ended badly, or with an error in place of an answer.
    """
    said, fault = _of_codex(output) if program == "codex" else _of_gemini(output)
    if status == 0 and said is not None and said.text.strip() and fault is None:
        return said
    if status == 0 and fault is None and not _ERROR_LINE.search(errors):
        return Said("" if said is None else said.text)
    raise _failure(name, f"{fault or ''}\n{errors}", status)


def _failure(name: str, words: str, status: int) -> AskFailed:
    ended = f"it ended with status {status}" if status >= 0 else f"signal {-status} ended it"
    for kind, phrase in _PHRASES:
        if phrase in words:
            return AskFailed(kind, f"provider {name}: {ended} ({phrase})", code="PROGRAM_FAILED")
    return AskFailed("upstream", f"provider {name}: {ended} and an error", code="PROGRAM_FAILED")


def _of_codex(output: str) -> tuple[Said | None, str | None]:
    """The last message, and the error if the turn failed. Its output is a JSON object a line."""
    text: str | None = None
    fault: str | None = None
    thread: str | None = None
    usage: Usage | None = None
    for event in _events(output):
        item = event.get("item")
        match event.get("type"):
            case "thread.started":
                thread = _id(event.get("thread_id"))
            case "item.completed" if isinstance(item, dict) and item.get("type") == "agent_message":
                text = item["text"] if isinstance(item.get("text"), str) else text
            case "turn.completed":
                usage, fault = _usage(event.get("usage"), "input_tokens", "output_tokens"), None
            case "turn.failed" | "error":
                fault = json.dumps(event, ensure_ascii=False)
    return (None if text is None else Said(text, thread=thread, usage=usage)), fault


def _of_gemini(output: str) -> tuple[Said | None, str | None]:
    """One JSON document, or plain text from versions that know no other."""
    start = output.find("{")
    document = _object(output[start:]) if start >= 0 else None
    if document is None or not {"response", "error"} & set(document):
        fault = output if _ERROR_LINE.search(output) else None
        return Said(output), fault
    fault = json.dumps(document["error"], ensure_ascii=False) if document.get("error") else None
    response = document.get("response")
    if not isinstance(response, str):
        return None, fault
    if response.lstrip().startswith("[API Error:"):
        return None, response
    return Said(response, thread=_id(document.get("session_id"))), fault


def _events(output: str) -> Iterator[dict[str, Any]]:
    for line in output.splitlines():
        if line.startswith("{") and (event := _object(line)) is not None:
            yield event


def _object(text: str) -> dict[str, Any] | None:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _usage(counts: object, prompt: str, answer: str) -> Usage | None:
    if not isinstance(counts, dict):
        return None
    found = [count if type(count) is int else None for count in (counts.get(prompt), counts.get(answer))]
    return Usage(*found)


def _id(value: object) -> str | None:
    return value[:_LONGEST_ID] if isinstance(value, str) and value.isprintable() else None
