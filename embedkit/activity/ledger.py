"""The ledger: what happened to every ticket and every attempt, in memory, while it happens.

Lanes report to it. It decides nothing, and recording never fails the work: names and words may be any object (see
``rows``). A ticket costs a few microseconds: its group's tally is looked up once, when the row is opened, and each
event writes to fields. Open rows are in a table, settled ones in a ring that forgets the oldest. The tallies forget
nothing, so reports stay right after the ring has forgotten.

A listener is told of each event and may write it elsewhere. Each method changes all of the ledger's state first and
tells the listeners last, so that whatever a listener reads, raises or calls back meets whole books. An ``Exception`` of
a listener is counted and logged once. Any other ``BaseException`` is raised after all listeners have been told.

Tests: tests/activity/test_ledger.py, tests/activity/test_foreign_values.py.
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
    AttemptRow,
    TicketRow,
    code_word,
    http_status,
    name,
    word,
)
from embedkit.clocks import ZERO, Clocks
from embedkit.clocks import attribution as attribute

logger = logging.getLogger(__name__)


@attrs.frozen
class LedgerStatistics:
    """The ledger at one moment.

    Attributes:
        open: Rows of tickets that are not settled.
        kept: Settled rows in the ring.
        forgotten: Settled rows that dropped out of the ring; the reports still count them.
        listener_failures: Exceptions raised by listeners.
    """

    open: int
    kept: int
    forgotten: int
    listener_failures: int


class Ledger:
    """The recorder of an engine.

    Args:
        keep: The number of settled tickets that the ring holds.
        wall_clock: Returns seconds since the epoch; called once per ticket.
    """

    def __init__(self, *, keep: int = 1_000, wall_clock: Callable[[], float] = time.time) -> None:
        import numpy  # noqa: F401, ICN001  # its histograms need it: now, and not in the middle of a lane's step

        self._wall_clock = wall_clock
        self._ids = count(1)
        self._open: dict[int, TicketRow] = {}
        self._settled: deque[TicketRow] = deque(maxlen=keep)
        self._settlements = 0
        # Keys are exact strings, as ``name`` and ``word`` return them.
        self._tallies: dict[tuple[str, ...], Tally] = {}
        # A tuple, replaced as a whole: a listener may detach itself while it is being told.
        self._listeners: tuple[Listener, ...] = ()
        self._listener_failures = 0

    def attach(self, listener: Listener) -> None:
        """Tell ``listener`` of every change from now on."""
        self._listeners = (*self._listeners, listener)

    def detach(self, listener: Listener) -> None:
        """Stop telling ``listener``."""
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
            service: The part of the program that made the request.
            stage: One of ``rows.STAGES``.
            role: What the model is used for.
            provider: The provider's kind or name.
            model: The model's id.
            priority: The class: one of ``rows.CLASSES``.
            tenant: The tenant that the work belongs to, or ``None``.
            run: The id of the run that the work belongs to, or ``None``.
            weight: In the lane's units.
            inputs: The number of texts.
            now: Instant of the offer, on the same clock as all later instants of this row.
            disposition: ``queued``, or ``not-applicable`` if the call does not pass through a lane.

        Returns:
            The row, to be passed to each later event. Words outside a vocabulary, and names that are neither strings,
            UUIDs nor whole numbers, are ``unknown`` in it.
        """
        try:
            tally = self._tallies.get((service, stage, role, provider, model, priority, disposition))
        except Exception:  # one of them cannot be hashed or compared
            tally = None
        if tally is None:
            tally = self._tally(service, stage, role, provider, model, priority, disposition)
        wall = self._wall_clock()
        row = TicketRow(
            next(self._ids),
            lane if type(lane) is str else name(lane),
            tally,
            tenant if tenant is None or type(tenant) is str else name(tenant),
            run if run is None or type(run) is str else name(run),
            weight,
            inputs,
            now,
            wall,
        )
        tally.queued += 1
        tally.last_seen = wall
        self._open[row.id] = row
        if self._listeners:
            try:
                self._tell(row)
            except BaseException:
                # The caller never gets the row, so nobody else could close it.
                self.settled(row, now, outcome="abandoned", clocks=ZERO)
                raise
        return row

    def dispatched(self, row: TicketRow, now: float) -> None:
        """A slot took the ticket. A second call, or one after the settlement, changes nothing."""
        if row.settled_at is not None or row.dispatched_at is not None:
            return
        row.dispatched_at = now
        row.outcome = "in-flight"
        row.tally.queued -= 1
        row.tally.in_flight += 1
        if self._listeners:
            self._tell(row)

    def attempt_started(self, row: TicketRow, number: int, now: float) -> AttemptRow:
        """A provider call begins; the sleep since the previous call becomes the previous call's ``retry_delay``."""
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
        """A provider call ended. A ``status`` that is no HTTP status is dropped."""
        attempt.ended_at = now
        attempt.code = None if code is None else code_word(code)
        attempt.status = None if status is None else http_status(status)
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
            code: The error's code; anything that does not look like a code becomes ``unknown``.
            failure_stage: One of ``rows.FAILURE_STAGES``.
            attribution: ``queue`` or ``provider``; computed from ``clocks`` if there is a code and it is not given.
            detached: Whether the caller had left before.
        """
        if row.settled_at is not None:
            return
        if self._open.get(row.id) is row:
            del self._open[row.id]
        row.settled_at = now
        if type(outcome) is not str or outcome not in OUTCOMES:
            outcome = word(outcome, OUTCOMES)
        row.outcome = outcome
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
        tally.last_seen = row.opened_wall + (now - row.enqueued_at)
        self._settled.append(row)
        self._settlements += 1
        if self._listeners:
            self._tell(row)

    def open_rows(self) -> tuple[TicketRow, ...]:
        """The tickets that are not settled, oldest first."""
        return tuple(self._open.values())

    def settled_rows(self) -> tuple[TicketRow, ...]:
        """The settled tickets that the ring still holds, oldest first."""
        return tuple(self._settled)

    def report(self) -> tuple[ReportRow, ...]:
        """Every group since the ledger was made, including what the ring has forgotten."""
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
        self,
        service: object,
        stage: object,
        role: object,
        provider: object,
        model: object,
        priority: object,
        disposition: object,
    ) -> Tally:
        """The tally of the group that these names and words stand for; made if there is none."""
        key = (
            name(service),
            word(stage, STAGES),
            name(role),
            name(provider),
            name(model),
            word(priority, CLASSES),
            word(disposition, DISPOSITIONS),
        )
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = Tally(Group(*key))
        return tally

    def _tell(self, row: TicketRow) -> None:
        interrupt: BaseException | None = None
        for listener in self._listeners:
            try:
                listener.changed(row)
            except Exception as error:
                self._note_failure(listener, error)
            except BaseException as error:
                # The others are told first: the file's writer would otherwise never hear of a settlement.
                interrupt = interrupt or error
        if interrupt is not None:
            raise interrupt

    def _note_failure(self, listener: Listener, error: Exception) -> None:
        self._listener_failures += 1
        if self._listener_failures == 1:
            # Once, or a broken listener would fill the log; and without the error's text, which may quote an input.
            logger.warning(
                "ledger: listener %s failed (%s); the work goes on, further failures are only counted",
                type(listener).__name__,
                type(error).__name__,
            )


def _describe_failure(row: TicketRow, code: str | None, failure_stage: str | None, attribution: str | None) -> None:
    row.code = code_word(code)
    row.failure_stage = None if failure_stage is None else word(failure_stage, FAILURE_STAGES)
    row.attribution = attribute(row.clocks) if attribution is None else word(attribution, ATTRIBUTIONS)
