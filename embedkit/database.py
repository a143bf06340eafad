"""One SQLite file, safe to use from trio: one writer, readers that do not wait for it, named errors.

SQLite blocks, so every transaction runs whole in a worker thread. A transaction is the unit of everything
here: of waiting (a write queues for the one writer's place), of cancellation (see ``Database.write``) and of
failure (any exception rolls it back).

The file is in write-ahead mode with ``synchronous = NORMAL``: after a crash of the process nothing that was
committed is lost; after a loss of power the newest transactions may be lost, but the file is consistent.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import trio

from embedkit.database_errors import folder_error, is_busy, store_error
from embedkit.errors import StoreReadOnly, StoreUnreadable, UsageError

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")
Step = Callable[["sqlite3.Connection"], None] | str

_log = logging.getLogger(__name__)

_READERS = 4
# Ask for the user that acts, where the system can, and not for the one that logged in.
_EFFECTIVE = os.access in os.supports_effective_ids
# The longest that a write waits inside SQLite before it looks whether its caller was cancelled, in seconds.
_LOCK_SLICE = 0.25
_PAUSE = 0.005
# Marks the file as ours ("embk"): another program's database is refused instead of getting our tables.
_APPLICATION_ID = 0x656D626B
_WRITER_CACHE_KIB = 16_384
_READER_CACHE_KIB = 4_096
# Bounds what a write-ahead file keeps on disk once a checkpoint has emptied it.
_WAL_LIMIT_BYTES = 64 * 1024 * 1024
# Pages (of 4 KiB: 64 MiB) after which a commit moves the write-ahead file into the database. With SQLite's own
# 1,000 a cold sync writes a quarter more bytes, and its writer waits for the disk again and again.
_WAL_PAGES = 16_384


class Database:
    """An open SQLite file. Made by ``open_database``; used from any task of the same trio run.

    Attributes:
        path: The file.
        is_read_only: Whether it cannot be written here: ``write`` raises StoreReadOnly.
    """

    def __init__(
        self, path: Path, writer: sqlite3.Connection, busy_timeout: float, *, read_only: str | None = None
    ) -> None:
        self.path = path
        self.is_read_only = read_only is not None
        self._mode = "rw" if read_only is None else read_only
        self._busy_timeout = busy_timeout
        self._writer = writer
        self._idle_readers: list[sqlite3.Connection] = []
        # Limiters of our own: a transaction never waits for threads that other code occupies, and theirs is
        # the queue: first come, first served, and cancellable until the thread begins.
        self._writing = trio.CapacityLimiter(1)
        self._reading = trio.CapacityLimiter(_READERS)
        self._closed = False

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

    async def migrate(self, component: str, steps: Sequence[Step]) -> None:
        """Bring the tables of ``component`` to version ``len(steps)``.

        Args:
            component: Whose tables; each component has a version of its own.
            steps: Step i leads from version i to i + 1: a script of statements, or a function of the
                connection. Released steps never change; new ones are appended.

        Raises:
            StoreUnreadable: The file's version is newer than ``len(steps)``: a newer embedkit made it.
            StoreError: The file's trouble, by kind.

        Cancellation:
            Each step is one transaction, done whole or not at all; the next call goes on from there.
        """
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
        with _named_errors(self.path):
            return _transaction(self._writer, partial(_begin_immediate, self._busy_timeout), work)

    def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        self._refuse_if_closed()
        with _named_errors(self.path):
            connection = self._take_reader()
            try:
                return _transaction(connection, _begin, work)
            finally:
                self._idle_readers.append(connection)

    def _take_reader(self) -> sqlite3.Connection:
        try:
            # Other readers' threads pop too: asking first whether the list is empty would race with them.
            return self._idle_readers.pop()
        except IndexError:
            return _connect_reader(self.path, self._mode, self._busy_timeout)

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
            connection.close()


@asynccontextmanager
async def open_database(
    path: Path | str, *, create: bool = True, busy_timeout: float = 5.0, may_be_read_only: bool = False
) -> AsyncIterator[Database]:
    """Open the SQLite file at ``path``, and close it when the block ends.

    Args:
        path: The file. An empty one counts as new.
        create: Make the file, and the folders it lies in, where there is none. A folder ``.embedkit`` made on
            the way gets an ignore file, so that no repository takes the store in.
        busy_timeout: Seconds (real ones, whatever trio's clock) that a transaction waits for another
            process's lock.
        may_be_read_only: Whether a file that cannot be written is opened all the same, to be read.

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
    mode: str | None = None
    if may_be_read_only and await trio.to_thread.run_sync(_can_only_be_read, path):
        writer, mode = await trio.to_thread.run_sync(_open_read_only, path, busy_timeout)
    else:
        writer = await trio.to_thread.run_sync(_open_writer, path, create, busy_timeout)
    database = Database(path, writer, busy_timeout, read_only=mode)
    try:
        yield database
    finally:
        await database._close()


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    import sqlite3

    try:
        yield
    except sqlite3.Error as error:
        named = store_error(error, path)
        if named is None:
            raise
        raise named from error


def _transaction(
    connection: sqlite3.Connection,
    begin: Callable[[sqlite3.Connection], None],
    work: Callable[[sqlite3.Connection], T],
) -> T:
    begin(connection)
    try:
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        # SQLite itself rolls back on some errors (a full disk), and a second ROLLBACK would hide the first
        # error.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


def _begin(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN")


def _begin_immediate(patience: float, connection: sqlite3.Connection) -> None:
    """Take the write lock at once, so that a transaction cannot find half-way that it may not write."""
    _insist(patience, lambda: connection.execute("BEGIN IMMEDIATE"))


def _insist(patience: float, attempt: Callable[[], T]) -> T:
    """Repeat ``attempt`` while another process holds the file, for ``patience`` seconds, unless cancelled."""
    import sqlite3

    deadline = time.monotonic() + patience
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= deadline:
                raise
            trio.from_thread.check_cancelled()
            # SQLite has waited already, but for the statements that it refuses at once. This is a worker thread.
            time.sleep(_PAUSE)


def _open_writer(path: Path, create: bool, busy_timeout: float) -> sqlite3.Connection:
    try:
        _prepare_place(path, create)
    except OSError as error:
        raise folder_error(error, path) from error
    with _named_errors(path):
        connection = _connect(path, "rwc" if create else "rw", min(busy_timeout, _LOCK_SLICE))
        try:
            _configure_writer(path, connection, busy_timeout)
        except BaseException:
            connection.close()
            raise
    return connection


def _can_only_be_read(path: Path) -> bool:
    if not path.is_file() or not os.access(path, os.R_OK, effective_ids=_EFFECTIVE):
        return False
    return not all(os.access(place, os.W_OK, effective_ids=_EFFECTIVE) for place in (path, path.parent))


def _open_read_only(path: Path, busy_timeout: float) -> tuple[sqlite3.Connection, str]:
    """A connection that reads, and how it was opened.

    With its index beside it, SQLite reads the write-ahead file too. Without, it would have to write one: the file is
    then taken to change no more, and what lies in a write-ahead file is not seen.
    """
    import sqlite3

    with _named_errors(path):
        try:
            return _looked_into(path, "ro", busy_timeout), "ro"
        except sqlite3.OperationalError:
            mode = "ro&immutable=1"
        connection = _looked_into(path, mode, busy_timeout)
    if _has_unseen_changes(path):
        unseen = f"{path.name}-wal"
        _log.warning("%s: its newest changes lie in %s, which cannot be read here: left out", path, unseen)
    return connection, mode


def _looked_into(path: Path, mode: str, busy_timeout: float) -> sqlite3.Connection:
    """A connection that has read something: only then is it known that it can."""
    connection = _connect(path, mode, busy_timeout)
    try:
        _is_new(path, connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _has_unseen_changes(path: Path) -> bool:
    try:
        return path.with_name(path.name + "-wal").stat().st_size > 0
    except OSError:
        return False


def _prepare_place(path: Path, create: bool) -> None:
    if path.is_dir():
        raise StoreUnreadable(f"{path}: it is a folder, and a store is a file: name a file in it")
    if not path.exists():
        if not create:
            raise UsageError(f"no store at {path}; run `embedkit sync` first")
        _make_folder(path.parent)
    # SQLite would open an unwritable file for reading and fail later, in ways that depend on what lies beside.
    for place in (path, path.parent):
        if place.exists() and not os.access(place, os.W_OK, effective_ids=_EFFECTIVE):
            raise PermissionError(errno.EACCES, "no write access", str(place))


def _make_folder(folder: Path) -> None:
    if folder.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    if folder.name == ".embedkit":
        (folder / ".gitignore").write_text("*\n", encoding="ascii")


def _connect(path: Path, mode: str, busy_timeout: float) -> sqlite3.Connection:
    import sqlite3

    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=busy_timeout,
        isolation_level=None,  # transactions begin where we say, not where the module guesses
        check_same_thread=False,  # trio may use another thread each time; limiters keep it to one at a time
    )


def _connect_reader(path: Path, mode: str, busy_timeout: float) -> sqlite3.Connection:
    connection = _connect(path, mode, busy_timeout)
    # No mmap: scans would be a third faster, but a file cut short under us would be a SIGBUS and not an error.
    connection.execute(f"PRAGMA cache_size = -{_READER_CACHE_KIB}")
    connection.execute("PRAGMA query_only = ON")
    return connection


def _configure_writer(path: Path, connection: sqlite3.Connection, patience: float) -> None:
    # Before anything is changed in the file: it may be somebody else's.
    new = _insist(patience, partial(_is_new, path, connection))
    # A change to write-ahead mode is refused at once while another process does the same; SQLite's own
    # timeout does not cover it.
    (mode,) = _insist(patience, lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone())
    if mode != "wal":
        raise StoreUnreadable(
            f"{path}: its file system cannot hold SQLite's write-ahead log (the mode stays {mode!r}): "
            "put the store on a local disk"
        )
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(f"PRAGMA cache_size = -{_WRITER_CACHE_KIB}")
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT_BYTES}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
    if new:
        _insist(patience, lambda: connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}"))


def _is_new(path: Path, connection: sqlite3.Connection) -> bool:
    """Whether the file holds nothing yet; refuses another program's."""
    return _transaction(connection, _begin, partial(_look_for_owner, path))


def _look_for_owner(path: Path, connection: sqlite3.Connection) -> bool:
    (owner,) = connection.execute("PRAGMA application_id").fetchone()
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if owner == _APPLICATION_ID:
        return False
    if objects or owner:
        raise StoreUnreadable(f"{path}: it is another program's database: name another store")
    return True


def _version(component: str, connection: sqlite3.Connection) -> int:
    table = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'schema_versions'").fetchone()
    if table is None:
        return 0
    row = connection.execute("SELECT version FROM schema_versions WHERE component = ?", (component,)).fetchone()
    return 0 if row is None else int(row[0])


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
