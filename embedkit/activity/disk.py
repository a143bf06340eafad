"""The ledger on disk: a listener that writes changed rows to the knowledge base's file, off the hot path.

A lane's step only puts the row on a list. A task of its own writes the list, at most once a second and in
short transactions, so that the store's own writes get their turn. What cannot be written stays on the list,
which is bounded; recording never fails the work.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import attrs
import trio

from embedkit.activity import tables
from embedkit.activity.process import Process, this_process
from embedkit.activity.rows import TicketRow

if TYPE_CHECKING:
    import sqlite3

    from embedkit.activity.ledger import Ledger
    from embedkit.activity.report import ReportRow
    from embedkit.database import Database

logger = logging.getLogger(__name__)

_BATCH = 1_000
_DAY = 86_400.0
_FORGET_EVERY = 3_600.0


@attrs.frozen
class DiskStatistics:
    """The writing at one moment.

    Attributes:
        pending: Changed rows not yet written.
        written: Rows written, each as often as it was.
        dropped: Changes that found the list full and were not noted.
        failures: Batches that could not be written; their rows were kept for the next try.
    """

    pending: int
    written: int
    dropped: int
    failures: int


class LedgerOnDisk:
    """Keeps a ledger's rows in a database.

    Args:
        database: Open for at least as long as ``run`` runs.
        interval: Seconds between two writings, at least.
        goodbye: Seconds that the last writing may take when ``run`` is cancelled.
        keep_tickets: The newest so many stay.
        keep_days: None older stays (looked at hourly).
        pending_limit: How many changed rows may wait to be written.
        process: Who writes.
        wall_clock: Seconds since the epoch.
    """

    def __init__(
        self,
        database: Database,
        *,
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
        self._pending: dict[int, TicketRow] = {}
        self._wake = trio.Event()
        self._writer: int | None = None
        self._forgot_at = float("-inf")
        self._written = self._dropped = self._failures = 0

    def changed(self, row: TicketRow) -> None:
        """Note that ``row`` is to be written. Synchronous, a fraction of a microsecond."""
        if len(self._pending) >= self._pending_limit and row.id not in self._pending:
            self._dropped += 1
            return
        self._pending[row.id] = row
        if not self._wake.is_set():
            self._wake.set()

    async def run(self, ledger: Ledger, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write ``ledger``'s rows, those it already holds included, until cancelled. Started once.

        It never fails: what the file does not take is counted, logged once and tried again with the next
        change.

        Cancellation:
            The usual way to end it. What is pending is written first, shielded, for at most ``goodbye``
            seconds (plus the quarter of a second that a wait for another process's lock takes to notice);
            then the writer is marked as ended.
        """
        for row in (*ledger.settled_rows(), *ledger.open_rows()):
            self.changed(row)
        ledger.attach(self)
        try:
            task_status.started()
            while True:
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
            How many became ``abandoned`` (never dispatched) or ``unsettled``.

        Raises:
            StoreError: The file's trouble, by kind.

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
            dropped=self._dropped,
            failures=self._failures,
        )

    async def _contained(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do ``work``; count what it raises.

        Cancellation:
            As ``work``.
        """
        try:
            await work()
        except Exception as error:
            self._failures += 1
            if self._failures == 1:
                logger.warning("the ledger is not written to disk, the work goes on: %s", error)

    async def _write_pending(self) -> None:
        """Write all that changed.

        Cancellation:
            Whole batches were written; the rest is still pending.
        """
        writer = await self._enter()
        while self._pending:
            await self._write_batch(writer)
        if self._wall_clock() - self._forgot_at >= _FORGET_EVERY:
            await self._database.write(self._forget)

    async def _write_batch(self, writer: int) -> None:
        batch = dict(islice(self._pending.items(), _BATCH))
        for ticket in batch:
            del self._pending[ticket]
        # Made here and not in the thread: a row that a lane changes meanwhile would be written half old, half
        # new.
        records = [tables.ticket_record(writer, row) for row in batch.values()]
        attempts = [tables.attempt_record(writer, row, attempt) for row in batch.values() for attempt in row.attempts]
        now = self._wall_clock()
        try:
            await self._database.write(partial(tables.write_rows, writer, records, attempts, self._keep_tickets, now))
        except BaseException:
            # Whether it failed or was cancelled: nothing of it was written.
            self._pending = {**batch, **self._pending}
            raise
        self._written += len(records)

    async def _say_goodbye(self) -> None:
        if self._pending:
            await self._write_pending()
        if self._writer is not None:
            await self._database.write(partial(tables.end_writer, self._writer, self._wall_clock()))

    async def _enter(self) -> int:
        """Enter this process as a writer, once, and tidy up after those that are gone."""
        if self._writer is None:
            await prepare(self._database)
            self._writer = await self._database.write(self._tidy_and_enter)
        return self._writer

    def _tidy_and_enter(self, connection: sqlite3.Connection) -> int:
        now = self._wall_clock()
        tables.reap(self._process, now, connection)
        self._forget(connection)
        return tables.add_writer(self._process, now, connection)

    def _forget(self, connection: sqlite3.Connection) -> None:
        now = self._wall_clock()
        tables.forget_before(now - self._keep_seconds, connection)
        self._forgot_at = now


async def prepare(database: Database) -> None:
    """Make or bring up to date the ledger's tables.

    Raises:
        StoreError: The file's trouble, by kind.

    Cancellation:
        Each step was done whole or not at all.
    """
    await database.migrate(tables.COMPONENT, tables.STEPS)


async def read_report(database: Database) -> tuple[ReportRow, ...]:
    """Reports over every ticket that the file keeps, of all processes.

    Raises:
        StoreError: The file's trouble, by kind.

    Cancellation:
        Nothing was changed.
    """
    await prepare(database)
    return await database.read(tables.report)


async def read_longest_waits(database: Database, now: float) -> dict[str, float]:
    """Seconds that the longest waiting ticket of each lane has waited at wall-clock time ``now``, of all processes.

    Raises:
        StoreError: The file's trouble, by kind.

    Cancellation:
        Nothing was changed.
    """
    oldest = await database.read(tables.oldest_waiting)
    return {lane: max(now - enqueued_at, 0.0) for lane, enqueued_at in oldest.items()}
