"""The ledger: what happened to every ticket and every attempt, in memory, while it happens.

Lanes tell it; it decides nothing, and recording never fails the work. A ticket costs a few microseconds: its
group's tally is found once, when it is opened, and each event writes to fields. Rows that are open stand in a
table, settled ones in a ring that forgets the oldest; the tallies forget nothing, so reports stay right after
the ring has.

A listener is told of each event and may write it elsewhere. Its failures are counted and logged once, and are
nobody else's business.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from itertools import count

import attrs

from embedkit.activity.recorder import Listener
from embedkit.activity.recorder import Recorder as Recorder
from embedkit.activity.report import Group, ReportRow, Tally, report_rows
from embedkit.activity.rows import (
    ATTRIBUTIONS,
    CLASSES,
    DISPOSITIONS,
    FAILURE_STAGES,
    OUTCOMES,
    STAGES,
    UNKNOWN,
    AttemptRow,
    TicketRow,
    code_word,
    word,
)
from embedkit.clocks import Clocks
from embedkit.clocks import attribution as attribute

logger = logging.getLogger(__name__)


@attrs.frozen
class LedgerStatistics:
    """The ledger at one moment.

    Attributes:
        open: Rows of tickets that are not settled.
        kept: Settled rows in the ring.
        forgotten: Settled rows that fell out of it; the reports still count them.
        listener_failures: Exceptions of listeners.
    """

    open: int
    kept: int
    forgotten: int
    listener_failures: int


class Ledger:
    """The recorder of an engine.

    Args:
        keep: How many settled tickets the ring holds.
        wall_clock: Seconds since the epoch; asked once a ticket.
    """

    def __init__(self, *, keep: int = 1_000, wall_clock: Callable[[], float] = time.time) -> None:
        self._wall_clock = wall_clock
        self._ids = count(1)
        self._open: dict[int, TicketRow] = {}
        self._settled: deque[TicketRow] = deque(maxlen=keep)
        self._settlements = 0
        self._tallies: dict[tuple[str, ...], Tally] = {}
        # A tuple, replaced whole: a listener may leave while it is being told.
        self._listeners: tuple[Listener, ...] = ()
        self._listener_failures = 0

    def attach(self, listener: Listener) -> None:
        """Tell ``listener`` of every change from now on."""
        self._listeners = (*self._listeners, listener)

    def detach(self, listener: Listener) -> None:
        """Tell it no longer."""
        self._listeners = tuple(other for other in self._listeners if other is not listener)

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
        """Open a ticket's row, before its admission.

        Args:
            lane: The lane's name.
            service: Who asks.
            stage: One of ``rows.STAGES``.
            role: What for.
            provider: The provider's kind or name.
            model: The model's id.
            priority: The class: one of ``rows.CLASSES``.
            tenant: Whose work it is.
            run: The run's id, where it belongs to one.
            weight: In the lane's units.
            inputs: How many texts.
            now: Instant of the offer, on the clock that all later instants of this row are on.
            disposition: ``queued``, or ``not-applicable`` where no lane is in between.

        Returns:
            The row, to be handed back at each later event. Words outside a vocabulary stand in it as
            ``unknown``.
        """
        tally = self._tallies.get((service, stage, role, provider, model, priority, disposition))
        if tally is None:
            tally = self._tally(service, stage, role, provider, model, priority, disposition)
        group = tally.group
        row = TicketRow(
            next(self._ids),
            lane,
            service,
            group.stage,
            role,
            provider,
            model,
            group.priority,
            tenant,
            run,
            weight,
            inputs,
            group.disposition,
            now,
            self._wall_clock(),
            tally,
        )
        tally.queued += 1
        tally.last_seen = row.opened_wall
        self._open[row.id] = row
        if self._listeners:
            self._tell(row)
        return row

    def dispatched(self, row: TicketRow, now: float) -> None:
        """A slot took the ticket."""
        if row.settled_at is not None or row.dispatched_at is not None:
            return
        row.dispatched_at = now
        row.outcome = "in-flight"
        row.tally.queued -= 1
        row.tally.in_flight += 1
        if self._listeners:
            self._tell(row)

    def attempt_started(self, row: TicketRow, number: int, now: float) -> AttemptRow:
        """A provider call begins; the sleep since the one before it is that one's ``retry_delay``."""
        attempt = AttemptRow(row.id, number, now)
        if row.attempts:
            previous = row.attempts[-1]
            if previous.retry_delay is None and previous.ended_at is not None:
                previous.retry_delay = now - previous.ended_at
        row.attempts.append(attempt)
        if row.settled_at is None:
            row.tally.calls += 1
            if self._listeners:
                self._tell(row)
        return attempt

    def attempt_ended(
        self,
        attempt: AttemptRow,
        now: float,
        *,
        code: str | None = None,
        status: int | None = None,
        retry_delay: float | None = None,
    ) -> None:
        """A provider call ended."""
        attempt.ended_at = now
        attempt.code = None if code is None else code_word(code)
        attempt.status = status
        attempt.retry_delay = retry_delay
        if self._listeners:
            row = self._open.get(attempt.ticket)
            if row is not None:
                self._tell(row)

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
        """Close a ticket's row. A second settlement changes nothing.

        Args:
            row: From ``open``.
            now: Instant.
            outcome: One of ``rows.OUTCOMES``.
            clocks: The three times.
            code: What it failed with; words that are no code stand as ``unknown``.
            failure_stage: One of ``rows.FAILURE_STAGES``.
            attribution: ``queue`` or ``provider``; worked out from ``clocks`` where there is a code and none
                is given.
            detached: Whether its caller had left before.
        """
        if row.settled_at is not None:
            return
        del self._open[row.id]
        row.settled_at = now
        row.outcome = outcome = outcome if outcome in OUTCOMES else UNKNOWN
        row.clocks = clocks
        row.detached = detached
        if code is not None or failure_stage is not None or attribution is not None:
            _describe_failure(row, code, failure_stage, attribution)
        tally = row.tally
        dispatched = row.dispatched_at is not None
        if dispatched:
            tally.in_flight -= 1
        else:
            tally.queued -= 1
        tally.settle(outcome, clocks, dispatched)
        tally.last_seen = row.wall(now)
        self._settled.append(row)
        self._settlements += 1
        if self._listeners:
            self._tell(row)

    def open_rows(self) -> tuple[TicketRow, ...]:
        """The tickets that are not settled, oldest first."""
        return tuple(self._open.values())

    def settled_rows(self) -> tuple[TicketRow, ...]:
        """The newest settled tickets that the ring still holds, oldest first."""
        return tuple(self._settled)

    def report(self) -> tuple[ReportRow, ...]:
        """Every group since the ledger began, what the ring has forgotten included."""
        return report_rows(self._tallies.values())

    def statistics(self) -> LedgerStatistics:
        """A snapshot."""
        kept = len(self._settled)
        return LedgerStatistics(
            open=len(self._open),
            kept=kept,
            forgotten=self._settlements - kept,
            listener_failures=self._listener_failures,
        )

    def _tally(
        self, service: str, stage: str, role: str, provider: str, model: str, priority: str, disposition: str
    ) -> Tally:
        """The group's tally, in the words of the vocabularies; made if there is none."""
        stage, priority, disposition = word(stage, STAGES), word(priority, CLASSES), word(disposition, DISPOSITIONS)
        key = (service, stage, role, provider, model, priority, disposition)
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = Tally(Group(*key))
        return tally

    def _tell(self, row: TicketRow) -> None:
        for listener in self._listeners:
            try:
                listener.changed(row)
            except Exception as error:
                self._note_failure(listener, error)

    def _note_failure(self, listener: Listener, error: Exception) -> None:
        self._listener_failures += 1
        if self._listener_failures == 1:
            # Once: at a lane's pace a broken listener would fill the log. And without its text, which may
            # quote work.
            logger.warning(
                "ledger: listener %s failed (%s); the work goes on, further failures are only counted",
                type(listener).__name__,
                type(error).__name__,
            )


def _describe_failure(row: TicketRow, code: str | None, failure_stage: str | None, attribution: str | None) -> None:
    row.code = code_word(code)
    row.failure_stage = None if failure_stage is None else word(failure_stage, FAILURE_STAGES)
    row.attribution = attribute(row.clocks) if attribution is None else word(attribution, ATTRIBUTIONS)
