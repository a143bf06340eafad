"""What is noted of each attempt of a question, and written to ``debug.jsonl`` once it has ended.

An attempt that was cut off has no ending of its own: the ticket's is its, so its line is written when the ticket is
settled. One that is detached, and goes on in its lane, has its line then, as ``aborted``, and no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import attrs
import trio

from embedkit.ask.failing import AskFailed, kind_of_failure
from embedkit.ask.kinds import Kind
from embedkit.ask.verdicts import verdict_of
from embedkit.errors import EmbedkitError, ProviderError

if TYPE_CHECKING:
    from embedkit.ask.debug_log import DebugLog
    from embedkit.ask.results import Said

Tool = Literal["ask_one", "ask_all", "consensus"]


@attrs.define(eq=False)
class Note:
    """One attempt. Written by the task that makes it, until it is settled."""

    attempts: Attempts
    number: int
    began_at: float
    is_settled: bool = False

    def answered(self, said: Said) -> None:
        """It brought an answer."""
        usage = None if said.usage is None else said.usage.as_json()
        verdict = None if self.attempts.round is None else verdict_of(said.text)
        self._settle(None, usage=usage, verdict=verdict)

    def failed(self, error: Exception) -> None:
        """It failed."""
        self._settle(
            kind_of_failure(error),
            code=error.code if isinstance(error, EmbedkitError) else None,
            status=error.status if isinstance(error, ProviderError) else None,
            delay=error.next_delay(self.number) if isinstance(error, AskFailed) else None,
        )

    def cut(self, error: Exception | None) -> None:
        """The ticket has ended, and this attempt with it, unless it was settled before."""
        if error is None:
            self._settle("aborted")
        else:
            self.failed(error)

    def _settle(self, kind: Kind | None, **more: object) -> None:
        if self.is_settled:
            return
        self.is_settled = True
        self.attempts.write(self, kind, more)


@attrs.define(eq=False)
class Attempts:
    """The attempts of one question to one member.

    Attributes:
        log: Where their lines go; ``None`` for nowhere.
        tool: What asks.
        provider: Who is asked.
        model: Which model.
        call: The question's id, shared by the members of a panel.
        round: Of a consensus, from 1.
    """

    log: DebugLog | None
    tool: Tool
    provider: str
    model: str | None
    call: str
    round: int | None = None
    _notes: list[Note] = attrs.field(factory=list)

    @contextmanager
    def one(self) -> Iterator[Note]:
        """The next attempt."""
        note = Note(self, len(self._notes) + 1, trio.current_time())
        self._notes.append(note)
        yield note

    def end(self, error: Exception | None) -> None:
        """The ticket has ended: with ``error``, with an answer, or with its caller's leaving."""
        for note in self._notes:
            note.cut(error)

    def write(self, note: Note, kind: Kind | None, more: dict[str, object]) -> None:
        """One line for ``note``."""
        if self.log is None:
            return
        known = dict.fromkeys(("code", "status", "delay", "usage", "verdict")) | more
        self.log.write(
            {
                "event": "attempt",
                "tool": self.tool,
                "provider": self.provider,
                "model": self.model,
                "call": self.call,
                "attempt": note.number,
                "elapsed": round(trio.current_time() - note.began_at, 6),
                "kind": kind,
                **known,
                "round": self.round,
            }
        )
