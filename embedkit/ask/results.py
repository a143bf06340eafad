"""What a question comes to: an answer or a failure, for each who was asked. Pure.

Nobody raises for a provider's failure: it is a result like the others, so that none of them is lost to it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs

from embedkit.ask.kinds import RETRIED, Kind
from embedkit.settings import Limit


@attrs.frozen
class Question:
    """What an adapter is asked.

    Attributes:
        text: The prompt. It is sent, and shown or logged nowhere.
        limit: How long one attempt may take, and which rung of the ladder said so.
        files: Sent along, by adapters that can.
    """

    text: str = attrs.field(repr=False)
    limit: Limit
    files: tuple[Path, ...] = ()


@attrs.frozen
class Usage:
    """Tokens, as the engine counts them; ``None`` where it does not say."""

    prompt: int | None = None
    answer: int | None = None

    def as_json(self) -> dict[str, int | None]:
        """``{"prompt", "answer"}``."""
        return {"prompt": self.prompt, "answer": self.answer}


@attrs.frozen
class Said:
    """What an adapter heard in one attempt, before it is known to be an answer.

    Attributes:
        text: The model's words.
        model: The model that answered, where it says so.
        usage: What it cost.
        thread: The conversation's id, where there is one.
    """

    text: str = attrs.field(repr=False)
    model: str | None = None
    usage: Usage | None = None
    thread: str | None = None


@attrs.frozen(kw_only=True)
class Answer:
    """What one member of a panel said.

    Attributes:
        alias: The member's name in results.
        provider: Its provider in the settings.
        model: The model that answered.
        text: Its answer.
        usage: What it cost, where the engine says so.
        elapsed: Seconds from the question to here: queue, attempts and waits between them.
        attempts: Calls that it took.
        thread: The conversation's id, where there is one.
    """

    alias: str
    provider: str
    model: str | None
    text: str = attrs.field(repr=False)
    usage: Usage | None
    elapsed: float
    attempts: int
    thread: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Every attribute, and ``"ok": true``."""
        usage = None if self.usage is None else self.usage.as_json()
        return {"ok": True, **attrs.asdict(self, recurse=False), "usage": usage}


@attrs.frozen(kw_only=True)
class Failure:
    """Why one member of a panel said nothing.

    Attributes:
        alias: The member's name in results.
        provider: Its provider in the settings.
        model: The model that was asked.
        kind: One of ``kinds.KINDS``.
        message: One line, without the engine's own words.
        retry_after: Seconds that the engine asked to wait, where it did.
        elapsed: Seconds from the question to here.
        attempts: Calls that were made.
        code: The error's, in the vocabulary of ``embedkit.errors``.
        status: The HTTP status, where there was one.
        partial: What a stream had said before it broke: a diagnostic, and no answer.
    """

    alias: str
    provider: str
    model: str | None
    kind: Kind
    message: str
    retry_after: float | None = None
    elapsed: float = 0.0
    attempts: int = 0
    code: str | None = None
    status: int | None = None
    partial: str | None = attrs.field(default=None, repr=False)

    @property
    def retryable(self) -> bool:
        """Whether asking again can help."""
        return self.kind in RETRIED

    def as_json(self) -> dict[str, Any]:
        """Every attribute, ``retryable``, and ``"ok": false``."""
        return {"ok": False, **attrs.asdict(self), "retryable": self.retryable}


Result = Answer | Failure


@attrs.frozen(kw_only=True)
class Replies:
    """What a panel came to.

    Attributes:
        results: One for each who is not omitted, in panel order, whatever became of it.
        omitted: Aliases over ``max_fanout``, in panel order.
        unavailable: Those who could not be asked at all, each with the reason; their failures are among the results.
    """

    results: tuple[Result, ...]
    omitted: tuple[str, ...] = ()
    unavailable: dict[str, str] = attrs.field(factory=dict)

    @property
    def answers(self) -> tuple[Answer, ...]:
        """The results that are answers."""
        return tuple(result for result in self.results if isinstance(result, Answer))

    def as_json(self) -> dict[str, Any]:
        """``{"results", "omitted", "unavailable"}``."""
        return {
            "results": [result.as_json() for result in self.results],
            "omitted": list(self.omitted),
            "unavailable": dict(self.unavailable),
        }
