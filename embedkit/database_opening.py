"""Opening the store's file: to write it, to make it, or only to read it. Plain, blocking code.

Whoever only reads needs no write lock, no room on the disk and no permission to write.

Tests: tests/test_database.py, tests/test_store_in_use.py.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import trio

from embedkit.database_errors import folder_error, is_busy, store_error
from embedkit.errors import StoreUnreadable, UsageError

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")

_log = logging.getLogger("embedkit.database")

# Ask for the user that acts, where the system can, and not for the one that logged in.
_EFFECTIVE = os.access in os.supports_effective_ids
# The longest that a write waits inside SQLite before it looks whether its caller was cancelled, in seconds.
_LOCK_SLICE = 0.25
_PAUSE = 0.005
# Marks the file as ours ("embk"): another program's database is refused instead of getting our tables.
APPLICATION_ID = 0x656D626B
_WRITER_CACHE_KIB = 16_384
_READER_CACHE_KIB = 4_096
# Bounds what a write-ahead file keeps on disk once a checkpoint has emptied it.
_WAL_LIMIT_BYTES = 64 * 1024 * 1024
# Pages (of 4 KiB: 64 MiB) after which a commit moves the write-ahead file into the database. With SQLite's own
# 1,000 a cold sync writes a quarter more bytes, and its writer waits for the disk again and again.
_WAL_PAGES = 16_384


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """What SQLite raises in the block becomes the error that the file's trouble is called by."""
    import sqlite3

    try:
        yield
    except sqlite3.Error as error:
        named = store_error(error, path)
        if named is None:
            raise
        raise named from error


def transaction(
    connection: sqlite3.Connection,
    begin: Callable[[sqlite3.Connection], None],
    work: Callable[[sqlite3.Connection], T],
) -> T:
    """Run ``work`` between ``begin`` and ``COMMIT``; any exception rolls it back."""
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


def begin(connection: sqlite3.Connection) -> None:
    """Begin a transaction that reads."""
    connection.execute("BEGIN")


def begin_immediate(patience: float, connection: sqlite3.Connection) -> None:
    """Take the write lock at once, so that a transaction cannot find half-way that it may not write."""
    insist(patience, lambda: connection.execute("BEGIN IMMEDIATE"))


def insist(patience: float, attempt: Callable[[], T]) -> T:
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


def open_writer(path: Path, create: bool, busy_timeout: float) -> sqlite3.Connection:
    """The connection that writes; makes the file, if ``create`` says so."""
    try:
        _prepare_place(path, create)
    except OSError as error:
        raise folder_error(error, path) from error
    with named_errors(path):
        connection = connect(path, "rwc" if create else "rw", min(busy_timeout, _LOCK_SLICE))
        try:
            _configure_writer(path, connection, busy_timeout)
        except BaseException:
            connection.close()
            raise
    return connection


def is_writable(path: Path) -> bool:
    """Whether this user may write the file, and beside it."""
    return all(os.access(place, os.W_OK, effective_ids=_EFFECTIVE) for place in (path, path.parent))


def refuse_missing(path: Path) -> None:
    """Refuse what is no store.

    Raises:
        UsageError: There is no file, or an empty one, which holds nothing and was perhaps cut short.
    """
    try:
        if path.is_dir() or path.stat().st_size > 0:
            return
    except FileNotFoundError:
        pass
    except OSError as error:
        raise folder_error(error, path) from error
    raise UsageError(f"no store at {path}; run `embedkit sync` first")


def open_reader(path: Path, busy_timeout: float) -> tuple[sqlite3.Connection, str]:
    """A connection that only reads, and how it was opened. No lock is taken that a writer would notice.

    SQLite reads the write-ahead file by an index beside it, which it makes where there is none. Where it cannot (no
    permission, no room), the file is taken to change no more, and what lies in a write-ahead file is not seen.

    Raises:
        UsageError: There is no store.
        StoreError: It cannot be read, by kind.
    """
    import sqlite3

    refuse_missing(path)
    if path.is_dir():
        raise StoreUnreadable(f"{path}: it is a folder, and a store is a file: name a file in it")
    with named_errors(path):
        for mode in ("rw", "ro") if is_writable(path) else ("ro",):
            try:
                return _looked_into(path, mode, busy_timeout), mode
            except sqlite3.OperationalError as error:
                if is_busy(error):
                    raise
        mode = "ro&immutable=1"
        connection = _looked_into(path, mode, busy_timeout)
    if _has_unseen_changes(path):
        unseen = f"{path.name}-wal"
        _log.warning("%s: its newest changes lie in %s, which cannot be read here: left out", path, unseen)
    return connection, mode


def _looked_into(path: Path, mode: str, busy_timeout: float) -> sqlite3.Connection:
    """A connection that has read something: only then is it known that it can."""
    connection = connect_reader(path, mode, busy_timeout)
    try:
        if _is_new(path, connection):
            raise UsageError(f"no store at {path}; run `embedkit sync` first")
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
    if not create:
        refuse_missing(path)
    elif not path.exists():
        make_folder(path.parent)
    # SQLite would open an unwritable file for reading and fail later, in ways that depend on what lies beside.
    for place in (path, path.parent):
        if place.exists() and not os.access(place, os.W_OK, effective_ids=_EFFECTIVE):
            raise PermissionError(errno.EACCES, "no write access", str(place))


def make_folder(folder: Path) -> None:
    """Make the folder of a store, with an ignore file where it is ``.embedkit``."""
    if folder.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    if folder.name == ".embedkit":
        (folder / ".gitignore").write_text("*\n", encoding="ascii")


def connect(path: Path, mode: str, busy_timeout: float = 5.0) -> sqlite3.Connection:
    """A connection as it comes, in SQLite's ``mode``: ``ro``, ``rw`` or ``rwc``."""
    import sqlite3

    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=busy_timeout,
        isolation_level=None,  # transactions begin where we say, not where the module guesses
        check_same_thread=False,  # trio may use another thread each time; limiters keep it to one at a time
    )


def connect_reader(path: Path, mode: str, busy_timeout: float) -> sqlite3.Connection:
    """A connection that cannot write."""
    connection = connect(path, mode, busy_timeout)
    # No mmap: scans would be a third faster, but a file cut short under us would be a SIGBUS and not an error.
    connection.execute(f"PRAGMA cache_size = -{_READER_CACHE_KIB}")
    connection.execute("PRAGMA query_only = ON")
    return connection


def _configure_writer(path: Path, connection: sqlite3.Connection, patience: float) -> None:
    # Before anything is changed in the file: it may be somebody else's.
    new = insist(patience, partial(_is_new, path, connection))
    # A change to write-ahead mode is refused at once while another process does the same; SQLite's own
    # timeout does not cover it.
    (mode,) = insist(patience, lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone())
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
        insist(patience, lambda: connection.execute(f"PRAGMA application_id = {APPLICATION_ID}"))


def _is_new(path: Path, connection: sqlite3.Connection) -> bool:
    """Whether the file holds nothing yet; refuses another program's."""
    return transaction(connection, begin, partial(_look_for_owner, path))


def _look_for_owner(path: Path, connection: sqlite3.Connection) -> bool:
    (owner,) = connection.execute("PRAGMA application_id").fetchone()
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if owner == APPLICATION_ID:
        return False
    if objects or owner:
        raise StoreUnreadable(f"{path}: it is another program's database: name another store")
    return True
