"""Chat answers that come as a stream: events cut out of bytes as they arrive, and what they add up to. Pure.

=====================  =============================================  =================================
language               an event                                       the terminal one
=====================  =============================================  =================================
OpenAI's               ``data:`` lines up to a blank line (SSE)       ``data: [DONE]``
Ollama's               a line of JSON                                 the one with ``"done": true``
=====================  =============================================  =================================

A comment line (``: still working``) is no event, nor is one without data: they show that a proxy lives, not that the
engine does. An end without the terminal event is no end, whatever has been said: a text that may be cut is no answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import attrs

from embedkit.ask.chat_wire import Language, name_of, text_of, usage_of
from embedkit.ask.failing import AskFailed
from embedkit.ask.results import Said, Usage
from embedkit.errors import ResponseInvalid
from embedkit.providers.exchange import Reply
from embedkit.providers.failures import Asked, failure_inside
from embedkit.providers.json_body import Bound, dump_json, load_json

LARGEST_EVENT: Final = 1 << 20
_BOUND = Bound(size=LARGEST_EVENT, containers=20_000, commas=100_000)


class Lines:
    """Bytes cut into lines, however they come."""

    def __init__(self) -> None:
        self._begun = bytearray()

    def of(self, part: bytes) -> Iterator[bytes]:
        """The lines that ``part`` ends.

        Raises:
            ResponseInvalid: One is longer than ``LARGEST_EVENT``.
        """
        *ended, rest = part.split(b"\n")
        for piece in ended:
            self._add(piece)
            line = bytes(self._begun)
            self._begun.clear()
            yield line.removesuffix(b"\r")
        self._add(rest)

    def _add(self, piece: bytes) -> None:
        if len(self._begun) + len(piece) > LARGEST_EVENT:
            raise ResponseInvalid(f"an event of the stream is larger than {LARGEST_EVENT} bytes")
        self._begun += piece


class SseEvents:
    """The data of server-sent events; of a field other than ``data`` nothing is made."""

    def __init__(self) -> None:
        self._lines = Lines()
        self._data: list[bytes] = []
        self._size = 0

    def of(self, part: bytes) -> Iterator[bytes]:
        """The data of the events that ``part`` ends."""
        for line in self._lines.of(part):
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
                self._size += len(line)
                if self._size > LARGEST_EVENT:
                    raise ResponseInvalid(f"an event of the stream is larger than {LARGEST_EVENT} bytes")
            elif not line and self._data:
                data = b"\n".join(self._data)
                self._data, self._size = [], 0
                if data.strip():
                    yield data


class JsonLines:
    """Lines that are not blank."""

    def __init__(self) -> None:
        self._lines = Lines()

    def of(self, part: bytes) -> Iterator[bytes]:
        """The lines that ``part`` ends."""
        return (line for line in self._lines.of(part) if line.strip())


@attrs.define(eq=False)
class ChatStream:
    """What a stream adds up to.

    Attributes:
        language: Which.
        is_done: Whether its terminal event came.
        fault: The document of an error that came in it.
        broken: What in it could not be read; nothing after it is.
        events: How many came.
    """

    language: Language
    is_done: bool = False
    fault: dict[str, Any] | None = None
    broken: ResponseInvalid | None = None
    events: int = 0
    _texts: list[str] = attrs.field(factory=list)
    _model: str | None = None
    _usage: Usage | None = None
    _is_cut: bool = False
    _cutter: SseEvents | JsonLines = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._cutter = SseEvents() if self.language == "openai" else JsonLines()

    @property
    def text(self) -> str:
        """What has been said so far."""
        return "".join(self._texts)

    def feed(self, part: bytes) -> bool:
        """Take in some bytes; whether an event ended in them. Raises nothing: what is wrong is kept."""
        before = self.events
        if self.broken is None:
            try:
                for data in self._cutter.of(part):
                    self._take(data)
            except ResponseInvalid as error:
                self.broken = error
        return self.events > before

    def said(self, reply: Reply, asked: Asked) -> Said:
        """What the model said, once the reply has ended; it may be blank.

        Raises:
            ProviderError: An error came in the stream, or what is no event.
            AskFailed: ``network``: it ended without its terminal event; ``truncated``.
        """
        if self.fault is not None:
            raise failure_inside(self.fault, reply, asked)
        if self.broken is not None:
            raise ResponseInvalid(f"engine {asked.peer}: {self.broken}", status=reply.status)
        if not self.is_done:
            message = f"engine {asked.peer}: the stream ended without its last event, after {self.events} events"
            raise AskFailed("network", message, code="STREAM_CUT", status=reply.status, partial=self.text or None)
        if self._is_cut and not self.text.strip():
            message = f"engine {asked.peer}: the limit on tokens was reached before any text; raise it"
            raise AskFailed("truncated", message, code="ANSWER_TRUNCATED", status=reply.status)
        return Said(self.text, self._model, self._usage)

    def _take(self, data: bytes) -> None:
        self.events += 1
        if self.language == "openai" and data.strip() == b"[DONE]":
            self.is_done = True
            return
        document = load_json(data, _BOUND)
        if not isinstance(document, dict):
            raise ResponseInvalid("an event of the stream is no JSON object")
        if document.get("error"):
            self.fault = document
            return
        self._model = name_of(document.get("model")) or self._model
        if self.language == "openai":
            self._take_openai(document)
        else:
            self._take_ollama(document)

    def _take_openai(self, document: dict[str, Any]) -> None:
        usage = document.get("usage")
        if isinstance(usage, dict):
            self._usage = usage_of(usage.get("prompt_tokens"), usage.get("completion_tokens")) or self._usage
        choices = document.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return
        if choice.get("error"):
            self.fault = {"error": choice["error"]}
            return
        self._texts.append(text_of(choice.get("delta")) or "")
        self._is_cut = self._is_cut or choice.get("finish_reason") in ("length", "max_tokens")

    def _take_ollama(self, document: dict[str, Any]) -> None:
        self._texts.append(text_of(document.get("message")) or "")
        if document.get("done") is True:
            self.is_done = True
            self._is_cut = document.get("done_reason") == "length"
            self._usage = usage_of(document.get("prompt_eval_count"), document.get("eval_count"))


def streamed(question: dict[str, object], language: Language) -> bytes:
    """The body of a request whose answer is to come as a stream."""
    more: dict[str, object] = {"stream_options": {"include_usage": True}} if language == "openai" else {}
    return dump_json({**more, **question, "stream": True})
