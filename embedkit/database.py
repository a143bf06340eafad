"""One SQLite file, safe to use from trio: one writer, readers that do not wait for it, named errors.

SQLite blocks, so every transaction runs whole in a worker thread. A transaction is the unit of everything
here: of waiting (a write queues for the one writer's place), of cancellation (see ``Database.write``) and of
failure (any exception rolls it back).

The file is in write-ahead mode with ``synchronous = NORMAL``: after a crash of the process nothing that was
committed is lost; after a loss of power the newest transactions may be lost, but the file is consistent.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import trio

from embedkit.database_errors import store_error
from embedkit.database_opening import (
    begin as begin_reading,
)
from embedkit.database_opening import (
    begin_immediate,
    connect_reader,
    named_errors,
    open_reader,
    open_writer,
    transaction,
)
from embedkit.database_rows import BadRow, RowRule, bad_rows
from embedkit.errors import StoreMoved, StoreReadOnly, StoreUnreadable

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")
Step = Callable[["sqlite3.Connection"], None] | str

_READERS = 4


class Database:
    """An open SQLite file. Made by ``open_database``; used from any task of the same trio run.

    Attributes:
        path: The file.
        is_read_only: Whether it cannot be written here: ``write`` raises StoreReadOnly.
    """

    def __init__(
        self,
        path: Path,
        busy_timeout: float,
        *,
        writer: sqlite3.Connection | None = None,
        reader: sqlite3.Connection | None = None,
        mode: str = "rw",
    ) -> None:
        self.path = path
        self.is_read_only = mode != "rw"
        self._mode = mode
        self._busy_timeout = busy_timeout
        # Without one, the first write opens it.
        self._writer = writer
        self._idle_readers: list[sqlite3.Connection] = [] if reader is None else [reader]
        self._place = path.absolute()
        self._file = self._file_there()
        # Limiters of our own: a transaction never waits for threads that other code occupies, and theirs is
        # the queue: first come, first served, and cancellable until the thread begins.
        self._writing = trio.CapacityLimiter(1)
        self._reading = trio.CapacityLimiter(_READERS)
        self._closed = False
        self._rules: dict[str, Sequence[RowRule]] = {}

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``work`` between ``BEGIN IMMEDIATE`` and ``COMMIT``, in a worker thread, one writer at a time.

        Returns:
            What ``work`` returned; it is committed.

        Raises:
            StoreError: The file's trouble, by kind. Nothing of this transaction was kept.
            trio.ClosedResourceError: The database was closed.
            Exception: Whatever ``work`` raised, after a rollback.

        Cancellation:
            If Cancelled comes out, ``work`` did not run and nothing was written: it is raised while waiting
            for the writer's place or, within a quarter of a second, for another process's lock. Once ``work``
            has begun it runs to its commit and the result is returned; a cancellation that arrived meanwhile
            is raised by the caller's next checkpoint. So a caller that must know may rely on: returned means
            committed, Cancelled means untouched.
        """
        if self.is_read_only:
            await trio.lowlevel.checkpoint()
            raise StoreReadOnly(f"{self.path}: it can only be read here; make the file and its folder writable")
        return await trio.to_thread.run_sync(self._write, work, limiter=self._writing)

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``work`` in a read transaction on a connection of its own, in a worker thread.

        It sees one consistent state, does not wait for the writer, and cannot write.

        Raises:
            StoreError: The file's trouble, by kind.
            trio.ClosedResourceError: The database was closed.
            Exception: Whatever ``work`` raised.

        Cancellation:
            Cancelled comes out only before ``work`` began; once begun it runs to its end and its result is
            returned.
        """
        return await trio.to_thread.run_sync(self._read, work, limiter=self._reading)

    async def migrate(self, component: str, steps: Sequence[Step], rules: Sequence[RowRule] = ()) -> None:
        """Bring the tables of ``component`` to version ``len(steps)``.

        Args:
            component: Whose tables; each component has a version of its own.
            steps: Step i leads from version i to i + 1: a script of statements, or a function of the
                connection. Released steps never change; new ones are appended.
            rules: What rows must fulfil besides their columns' types: asked when one could not be used.

        Raises:
            StoreUnreadable: The file's version is newer than ``len(steps)``: a newer embedkit made it.
            StoreError: The file's trouble, by kind.

        Cancellation:
            Each step is one transaction, done whole or not at all; the next call goes on from there.
        """
        self._rules[component] = rules
        version = await self.read(partial(_version, component))
        while version < len(steps):
            version = await self.write(partial(_advance, component, steps))
        if version > len(steps):
            raise StoreUnreadable(
                f"{self.path}: its {component} tables have version {version}, and this embedkit knows up to "
                f"{len(steps)}: upgrade embedkit, or name another store"
            )

    def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        self._refuse_if_closed()
        self._refuse_if_moved()

        def guarded(connection: sqlite3.Connection) -> T:
            result = work(connection)
            # Before the commit: one into a file that has no name any more would be lost, and nobody told.
            self._refuse_if_moved()
            return result

        with named_errors(self.path):
            if self._writer is None:
                self._writer = open_writer(self.path, create=False, busy_timeout=self._busy_timeout)
            return self._transaction(self._writer, partial(begin_immediate, self._busy_timeout), guarded)

    def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        self._refuse_if_closed()
        self._refuse_if_moved()
        with named_errors(self.path):
            connection = self._take_reader()
            try:
                # Once more, if it was opened just now: by then the name may be another file's.
                self._refuse_if_moved()
                return self._transaction(connection, begin_reading, work)
            finally:
                self._idle_readers.append(connection)

    def _transaction(
        self,
        connection: sqlite3.Connection,
        begin: Callable[[sqlite3.Connection], None],
        work: Callable[[sqlite3.Connection], T],
    ) -> T:
        """Run ``work``; where it failed and a stored row is to blame, that is said instead."""
        import sqlite3

        try:
            return transaction(connection, begin, work)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, sqlite3.Error) as error:
            if isinstance(error, sqlite3.Error) and store_error(error, self.path) is not None:
                raise
            found = transaction(connection, begin_reading, self._first_bad_row)
            if found is None:
                raise  # a defect of the work's own
            raise StoreUnreadable(
                f"{self.path}: it is damaged: {found}; `embedkit doctor --store --repair` mends what can be bought "
                "again, `embedkit restore FILE` puts a backup back"
            ) from error

    def _first_bad_row(self, connection: sqlite3.Connection) -> BadRow | None:
        return next(bad_rows(connection, [rule for rules in self._rules.values() for rule in rules]), None)

    def _take_reader(self) -> sqlite3.Connection:
        try:
            # Other readers' threads pop too: asking first whether the list is empty would race with them.
            return self._idle_readers.pop()
        except IndexError:
            return connect_reader(self.path, self._mode, self._busy_timeout)

    def _file_there(self) -> tuple[int, int] | None:
        """Which file has the store's name now; ``None``: none, or an empty one, which is no store."""
        try:
            status = os.stat(self._place)
        except FileNotFoundError:
            return None
        except OSError:
            return self._file  # nobody can say now; whoever reads or writes it will
        return (status.st_dev, status.st_ino) if status.st_size else None

    def _refuse_if_moved(self) -> None:
        if self._file_there() != self._file:
            raise StoreMoved(
                f"{self.path}: it was removed, renamed or replaced while it was in use; put it back, or run "
                "`embedkit sync` again to build it anew"
            )

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError(f"{self.path} was closed")

    async def _close(self) -> None:
        """Wait for the transactions that run, refuse those that wait, and close.

        Cancellation:
            Shielded: a connection that is left open keeps its thread's file and leaves the write-ahead file
                behind.
            It is bounded by the transactions that run, which nobody can interrupt anyway.
        """
        with trio.CancelScope(shield=True):
            self._closed = True
            places = [object() for _ in range(_READERS)]
            for place in places:
                await self._reading.acquire_on_behalf_of(place)
            await trio.to_thread.run_sync(self._close_connections, limiter=self._writing)
            # Reads that still wait get their turn, to be refused.
            for place in places:
                self._reading.release_on_behalf_of(place)

    def _close_connections(self) -> None:
        # The writer last: SQLite moves the write-ahead file into the database when the last connection
        # closes, and a reader that may not write could not.
        for connection in (*self._idle_readers, self._writer):
            if connection is not None:
                connection.close()


@asynccontextmanager
async def open_database(
    path: Path | str, *, create: bool = True, busy_timeout: float = 5.0, may_be_read_only: bool = False
) -> AsyncIterator[Database]:
    """Open the SQLite file at ``path``, and close it when the block ends.

    Args:
        path: The file. An empty one is no store: it counts as new, or as missing where nothing is to be made.
        create: Make the file, and the folders it lies in, where there is none. A folder ``.embedkit`` made on
            the way gets an ignore file, so that no repository takes the store in.
        busy_timeout: Seconds (real ones, whatever trio's clock) that a transaction waits for another
            process's lock.
        may_be_read_only: Whether it is opened to be read: without a lock, room or a permission that only writing
            needs. The first write asks for those; where the file cannot be written at all, it is refused.

    Raises:
        UsageError: There is no file, and ``create`` is false.
        StoreUnreadable: Not a database, another program's database, damaged, a folder, or not to be opened.
        StoreReadOnly: The file or its folder may not be written.
        StoreFull: No room to make it.
        StoreLocked: Another process held it longer than ``busy_timeout``.

    Cancellation:
        On the way in, the file may have been made; nothing stays open. On the way out, running transactions
        are waited for.
    """
    path = Path(path)
    if may_be_read_only and (not create or await trio.to_thread.run_sync(_is_there, path)):
        reader, mode = await trio.to_thread.run_sync(open_reader, path, busy_timeout)
        database = Database(path, busy_timeout, reader=reader, mode=mode)
    else:
        writer = await trio.to_thread.run_sync(partial(open_writer, path, create=create, busy_timeout=busy_timeout))
        database = Database(path, busy_timeout, writer=writer)
    try:
        yield database
    finally:
        await database._close()


def _is_there(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def _version(component: str, connection: sqlite3.Connection) -> int:
    table = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'schema_versions'").fetchone()
    if table is None:
        return 0
    row = connection.execute("SELECT version FROM schema_versions WHERE component = ?", (component,)).fetchone()
    if row is None:
        return 0
    if not isinstance(row[0], int) or row[0] < 0:
        raise ValueError(f"the version of the {component} tables is no number")
    return row[0]


def _advance(component: str, steps: Sequence[Step], connection: sqlite3.Connection) -> int:
    """Do the next missing step and return the version it leads to."""
    # Read again inside the write transaction: another process may have done the step meanwhile.
    version = _version(component, connection)
    if version >= len(steps):
        return version
    step = steps[version]
    if callable(step):
        step(connection)
    else:
        for statement in _statements(step):
            connection.execute(statement)
    connection.execute(
        "CREATE TABLE IF NOT EXISTS schema_versions (component TEXT PRIMARY KEY, version INTEGER NOT NULL)"
    )
    connection.execute("INSERT OR REPLACE INTO schema_versions VALUES (?, ?)", (component, version + 1))
    return version + 1


def _statements(script: str) -> Iterator[str]:
    """Split a script, since ``executescript`` commits the transaction it is called in."""
    import sqlite3

    statement = ""
    for part in script.split(";"):
        statement += part + ";"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
