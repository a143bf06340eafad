"""Two protocols: the recorder that lanes report to, and the listeners that a ledger reports to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from embedkit.activity.rows import AttemptRow, TicketRow
    from embedkit.clocks import Clocks


class Recorder(Protocol):
    """What a lane reports: each ticket and each attempt, in order. ``now`` is always ``trio.current_time()``.

    Implementations must not raise. Names and words are the caller's and may be any object; see ``rows``.
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
        """A slot took the ticket."""
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
        """A provider call ended; ``code`` says why, if it failed."""
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
        """The ticket has ended. Called once per ticket."""
        ...


class Listener(Protocol):
    """Is told of each change to a row, to write it to a file, a metric or a trace.

    Called synchronously on the trio thread, in the middle of a lane's step: it reads what it needs and returns. It must
    not change the row or cancel anybody. An ``Exception`` that it raises is counted and goes no further.
    """

    def changed(self, row: TicketRow) -> None:
        """``row`` was opened, dispatched or settled, or one of its attempts began or ended."""
        ...
