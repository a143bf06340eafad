"""Who is told what happens: the recorder that lanes speak to, and the listeners that a ledger speaks to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from embedkit.activity.rows import AttemptRow, TicketRow
    from embedkit.clocks import Clocks


class Recorder(Protocol):
    """What a lane tells: each ticket and attempt, in order. ``now`` is always ``trio.current_time()``.

    A lane does not guard its calls: whoever implements this must not raise.
    """

    def open(
        self,
        *,
        lane: str,
        service: str,
        stage: str,
        role: str,
        provider: str,
        model: str,
        priority: str,
        tenant: str | None,
        run: str | None,
        weight: int,
        inputs: int,
        now: float,
        disposition: str = "queued",
    ) -> TicketRow:
        """A ticket is about to be offered."""
        ...

    def dispatched(self, row: TicketRow, now: float) -> None:
        """A slot took it."""
        ...

    def attempt_started(self, row: TicketRow, number: int, now: float) -> AttemptRow:
        """Provider call ``number`` (from 1) begins."""
        ...

    def attempt_ended(
        self,
        attempt: AttemptRow,
        now: float,
        *,
        code: str | None = None,
        status: int | None = None,
        retry_delay: float | None = None,
    ) -> None:
        """It ended: with ``code`` if it failed."""
        ...

    def settled(
        self,
        row: TicketRow,
        now: float,
        *,
        outcome: str,
        clocks: Clocks,
        code: str | None = None,
        failure_stage: str | None = None,
        attribution: str | None = None,
        detached: bool = False,
    ) -> None:
        """The ticket is over. It is told once."""
        ...


class Listener(Protocol):
    """Somebody who wants to know of each change to a row: a file, a metric, a trace.

    Called synchronously on the trio thread, between two steps of a lane: it reads what it needs and returns.
    It neither keeps nor changes the row, and cancels nobody: a lane is in the middle of a step. What it raises is
    contained.
    """

    def changed(self, row: TicketRow) -> None:
        """``row`` was opened, dispatched, settled, or one of its attempts began or ended."""
        ...
