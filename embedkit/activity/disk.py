"""The ledger on disk: a listener that writes changed rows to the knowledge base's file, off the hot path.

A lane's step only puts the row on a list. A task of its own writes the list, at most once a second and in short
transactions, so that the store's own writes get their turn. Recording never fails the work.

Two kinds of failure are kept apart. If the *file* takes nothing (locked, full, unreadable), the rows stay on the list
and are tried again. If a *row* cannot be stored, it alone is refused and counted, and all others are written. The same
holds for the snapshot of each lane that changed, which goes with the rows (``snapshots``).

The list is bounded, and a row is on it once, however often it changes: what is written is the row as it is then. When
the list is full, a change may be dropped, with one exception: the settlement of a row that is open on disk is always
noted, or the file would say ``queued`` until somebody takes the ticket for abandoned. Every other change either is
superseded by such a settlement, or belongs to a row of which the file knows nothing. So the list holds at most
``pending_limit`` rows, one batch that is tried again, and the rows that were open on disk when the list filled up;
their number does not grow while the file takes nothing.

Tests: tests/activity/test_disk.py, tests/activity/test_foreign_values.py.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import attrs
import trio

from embedkit.activity import tables
from embedkit.activity.process import Process, this_process
from embedkit.activity.records import Records, Unstorable, records_of
from embedkit.activity.rows import TicketRow
from embedkit.activity.snapshots import OfLane, Snapshots, StoredLane

if TYPE_CHECKING:
    import sqlite3

    from embedkit.activity.ledger import Ledger
    from embedkit.activity.report import ReportRow
    from embedkit.database import Database

logger = logging.getLogger(__name__)

_BATCH = 1_000
_DAY = 86_400.0
_FORGET_EVERY = 3_600.0
# Seconds after which rows that could not be written are tried again, even if nothing changes.
_RETRY_EVERY = 30.0


@attrs.frozen
class DiskStatistics:
    """The writer at one moment.

    Attributes:
        pending: Changed rows that are not yet written.
        written: Rows written, counted each time.
        refused: Rows that cannot be stored, counted each time.
        dropped: Changes that were not noted because the list was full.
        failures: Batches that the file did not take; their rows were kept for the next try.
        snapshots_lost: Snapshots of lanes that could not be made or stored; the rows beside them were.
    """

    pending: int
    written: int
    refused: int
    dropped: int
    failures: int
    snapshots_lost: int


class LedgerOnDisk:
    """Keeps a ledger's rows in a database.

    Args:
        database: Stays open for at least as long as ``run`` runs.
        of_lane: What is stored of a lane, by its name, whenever rows of it are; without it, nothing is.
        interval: Minimum number of seconds between two writes.
        goodbye: Seconds that the last write may take when ``run`` is cancelled.
        keep_tickets: The number of tickets that are kept, the newest ones.
        keep_days: Tickets older than this are deleted, hourly; see ``tables.forget`` for how age is measured.
        pending_limit: The number of changed rows that may wait to be written.
        process: The process that writes.
        wall_clock: Returns seconds since the epoch.
    """

    def __init__(
        self,
        database: Database,
        *,
        of_lane: OfLane | None = None,
        interval: float = 1.0,
        goodbye: float = 1.0,
        keep_tickets: int = 200_000,
        keep_days: float = 30.0,
        pending_limit: int = 50_000,
        process: Process | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._interval = interval
        self._goodbye = goodbye
        self._keep_tickets = keep_tickets
        self._keep_seconds = keep_days * _DAY
        self._pending_limit = pending_limit
        self._process = process or this_process()
        self._wall_clock = wall_clock
        self._snapshots = Snapshots(of_lane)
        self._pending: dict[int, TicketRow] = {}
        # Rows that the file has, or is about to have, as open. Every one of them is open in the ledger too, or pending.
        self._open_on_disk: set[int] = set()
        self._wake = trio.Event()
        self._writer: int | None = None
        self._forgot_at = -math.inf
        self._written = self._refused = self._dropped = self._failures = 0

    def changed(self, row: TicketRow) -> None:
        """Note that ``row`` is to be written. Synchronous, takes a fraction of a microsecond."""
        if len(self._pending) >= self._pending_limit and row.id not in self._pending and not self._closes(row):
            self._dropped += 1
            self._snapshots.owe((row.lane,))
        else:
            self._pending[row.id] = row
        # For a change that was dropped, too: the file may take again what is on the list.
        if not self._wake.is_set():
            self._wake.set()

    async def run(self, ledger: Ledger, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write ``ledger``'s rows, including those it already holds, until cancelled. Started once.

        It never fails. What the file does not take is counted, logged once and tried again: with the next change, or
        half a minute later.

        Cancellation:
            The usual way to end it. What is pending is written first, shielded, for at most ``goodbye`` seconds (plus
            the quarter of a second in which a wait for another process's lock notices it); then the writer is marked
            as ended.
        """
        for row in (*ledger.settled_rows(), *ledger.open_rows()):
            self.changed(row)
        ledger.attach(self)
        try:
            task_status.started()
            while True:
                # Pending here is what the file did not take.
                with trio.move_on_after(_RETRY_EVERY if self._pending else math.inf):
                    await self._wake.wait()
                self._wake = trio.Event()
                await self._contained(self._write_pending)
                await trio.sleep(self._interval)
        finally:
            ledger.detach(self)
            with trio.move_on_after(self._goodbye, shield=True):
                await self._contained(self._say_goodbye)

    async def reap(self) -> int:
        """Settle the rows that crashed or ended writers left open.

        Returns:
            The number of rows that became ``abandoned`` (never dispatched) or ``unsettled``.

        Raises:
            StoreError: The file cannot be used; the class says why.

        Cancellation:
            All of it was done, or nothing.
        """
        await prepare(self._database)
        return await self._database.write(partial(tables.reap, self._process, self._wall_clock()))

    def statistics(self) -> DiskStatistics:
        """A snapshot."""
        return DiskStatistics(
            pending=len(self._pending),
            written=self._written,
            refused=self._refused,
            dropped=self._dropped,
            failures=self._failures,
            snapshots_lost=self._snapshots.lost,
        )

    async def _contained(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do ``work``, and count what it raises.

        Cancellation:
            As for ``work``.
        """
        try:
            await work()
        except Exception as error:
            self._failures += 1
            if self._failures == 1:
                logger.warning("the ledger is not written to disk, the work goes on: %s", error)

    def _closes(self, row: TicketRow) -> bool:
        """Whether the file has ``row`` as open, and it is not."""
        return row.settled_at is not None and row.id in self._open_on_disk

    async def _write_pending(self) -> None:
        """Write everything that changed.

        Cancellation:
            Whole batches were written; the rest is still pending.
        """
        writer = await self._enter()
        while self._pending:
            try:
                await self._write_batch(writer)
            except tables.WriterForgotten:
                # Its rows are gone with it: what changes from here on is a new writer's.
                self._writer = None
                writer = await self._enter()
        # By trio's clock: the wall clock may jump.
        if trio.current_time() - self._forgot_at >= _FORGET_EVERY:
            await self._database.write(self._forget)
            self._forgot_at = trio.current_time()

    async def _write_batch(self, writer: int) -> None:
        batch = dict(islice(self._pending.items(), _BATCH))
        for ticket in batch:
            del self._pending[ticket]
        # Made here and not in the thread: a row that a lane changes meanwhile would be written half old, half new.
        made = {row.id: self._records_of(writer, row) for row in batch.values()}
        rows = [records for records in made.values() if records is not None]
        # Each lane as it is now, which may be later than its rows of this batch say: the rest of them follows.
        lanes = [row.lane for row in batch.values()]
        snapshots = self._snapshots.take(lanes)
        batch = {ticket: row for ticket, row in batch.items() if made[ticket] is not None}
        closed = [row.id for row in batch.values() if row.settled_at is not None]
        # Noted before it is so: a ticket that is settled while the thread works must find its row here.
        self._open_on_disk.update(row.id for row in batch.values() if row.settled_at is None)
        try:
            now = self._wall_clock()
            refused, unstored = await self._database.write(partial(self._store, writer, rows, snapshots, now))
        except BaseException:
            # Whether it failed or was cancelled: nothing of it was written.
            self._pending = {**batch, **self._pending}
            self._snapshots.owe((*lanes, *snapshots))
            raise
        self._open_on_disk.difference_update(closed)
        self._written += len(rows) - len(refused)
        for error in refused:
            self._note_refusal(error)
        for error in unstored:
            self._snapshots.lose(error)

    def _store(
        self,
        writer: int,
        rows: Sequence[Records],
        snapshots: Mapping[str, str],
        now: float,
        connection: sqlite3.Connection,
    ) -> tuple[list[Exception], list[Exception]]:
        refused = tables.write_rows(writer, rows, self._keep_tickets, now, connection)
        return refused, tables.write_snapshots(writer, snapshots, now, connection)

    def _records_of(self, writer: int, row: TicketRow) -> Records | None:
        try:
            return records_of(writer, row)
        except Exception as error:  # Unstorable; or a defect, which is to cost no other row either
            self._open_on_disk.discard(row.id)
            self._note_refusal(error)
            return None

    def _note_refusal(self, error: Exception) -> None:
        self._refused += 1
        if self._refused == 1:
            # Without the text of a foreign error, which may quote the value.
            reason = str(error) if isinstance(error, Unstorable) else type(error).__name__
            logger.warning(
                "the ledger: a row cannot be stored (%s); it is left out, and further ones are only counted", reason
            )

    async def _say_goodbye(self) -> None:
        if self._pending:
            # There may be no time for all of it: first what the file would otherwise keep as open.
            self._pending = dict(sorted(self._pending.items(), key=lambda item: not self._closes(item[1])))
            await self._write_pending()
        if self._writer is not None:
            await self._database.write(partial(tables.end_writer, self._writer, self._wall_clock()))

    async def _enter(self) -> int:
        """Add this process as a writer, once, and clean up after writers that are gone."""
        if self._writer is None:
            await prepare(self._database)
            self._writer = await self._database.write(self._tidy_and_enter)
            self._forgot_at = trio.current_time()
        return self._writer

    def _tidy_and_enter(self, connection: sqlite3.Connection) -> int:
        now = self._wall_clock()
        tables.reap(self._process, now, connection)
        self._forget(connection)
        return tables.add_writer(self._process, now, connection)

    def _forget(self, connection: sqlite3.Connection) -> None:
        tables.forget(self._wall_clock(), self._keep_seconds, connection)


async def prepare(database: Database) -> None:
    """Create or upgrade the ledger's tables.

    Raises:
        StoreError: The file cannot be used; the class says why.

    Cancellation:
        Each step was done as a whole or not at all.
    """
    await database.migrate(tables.COMPONENT, tables.STEPS)


async def read_report(database: Database) -> tuple[ReportRow, ...]:
    """Reports over every stored ticket, of all processes.

    Raises:
        StoreError: The file cannot be used; the class says why.

    Cancellation:
        Nothing was changed.
    """
    await prepare(database)
    return await database.read(tables.report)


async def read_lanes(database: Database, now: float) -> tuple[StoredLane, ...]:
    """The lanes of all living processes, as each process last wrote them down, at wall-clock time ``now``.

    Raises:
        StoreError: The file cannot be used; the class says why.

    Cancellation:
        Nothing was changed.
    """
    await prepare(database)
    return await database.read(partial(tables.lanes, this_process(), now))


async def read_longest_waits(database: Database, now: float) -> dict[str, float]:
    """The longest wait in each lane at wall-clock time ``now``, in seconds, over all processes.

    Raises:
        StoreError: The file cannot be used; the class says why.

    Cancellation:
        Nothing was changed.
    """
    oldest = await database.read(tables.oldest_waiting)
    return {lane: max(now - enqueued_at, 0.0) for lane, enqueued_at in oldest.items()}
