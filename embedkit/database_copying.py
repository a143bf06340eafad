"""Whole copies of a store's file: made beside a name and put there when they are whole. Plain, blocking code.

A copy is SQLite's own: of one instant, whatever writers do meanwhile, and no writer or reader waits for it. A name
never stands for half a copy: what was there stays until the new file is whole, checked and on the disk.

Tests: tests/test_database_copying.py.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from embedkit.database_errors import folder_error
from embedkit.database_opening import APPLICATION_ID, connect, connect_reader, named_errors, open_reader, open_writer
from embedkit.errors import StoreLocked, StoreUnreadable, UsageError

if TYPE_CHECKING:
    import sqlite3

_DONE: Final = 101  # SQLite's result code
_PAGES_AT_ONCE: Final = 2_000
# A file that a copy was cut off in is swept up by the next copy when nothing has written to it for so long.
_LEFT_SECONDS: Final = 3_600.0
_SIDES: Final = ("-wal", "-shm", "-journal")
_MAGIC: Final = b"SQLite format 3\x00"


def copy_out(store: Path, file: Path, busy_timeout: float) -> None:
    """Copy the store, as it is at one instant, into ``file``, which is empty.

    Raises:
        UsageError: There is no store.
        StoreError: Its trouble, by kind, or that of ``file``.
    """
    reader, _ = open_reader(store, busy_timeout)
    with closing(reader), closing(connect(file, "rw")) as target:
        with named_errors(store):
            # Held for the whole copy: else it would begin again whenever somebody commits.
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        _copy(reader, target, file, busy_timeout)
        with named_errors(file):
            # One file, with nothing beside it.
            target.execute("PRAGMA journal_mode = DELETE")


def copy_in(file: Path, store: Path, busy_timeout: float) -> None:
    """Put the content of ``file`` in place of the store's, in one transaction of the store.

    Whoever has the store open sees the old content or the new, and goes on.

    Raises:
        StoreError: Nothing was changed.
    """
    with closing(open_writer(store, create=False, busy_timeout=busy_timeout)) as target:
        with named_errors(store):
            (size,) = target.execute("PRAGMA page_size").fetchone()
        with closing(connect(file, "rw")) as source:
            with named_errors(file):
                if source.execute("PRAGMA page_size").fetchone() != (size,):
                    source.execute(f"PRAGMA page_size = {int(size)}")
                    source.execute("VACUUM")
            _copy(source, target, store, busy_timeout)
        with suppress(Exception):  # it is in the write-ahead file, which is as good; somebody is reading the old one
            target.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, name: Path, patience: float) -> None:
    last, since = -1, time.monotonic()

    def step(status: int, left: int, _all: int) -> None:
        nonlocal last, since
        if status == _DONE:
            return  # it is committed
        trio.from_thread.check_cancelled()
        if left != last:
            last, since = left, time.monotonic()
        elif time.monotonic() - since > patience:
            raise StoreLocked(f"{name}: another process holds it: run again when that has ended")

    with named_errors(name):
        source.backup(target, pages=_PAGES_AT_ONCE, progress=step, sleep=0.02)


def open_copy(file: Path) -> sqlite3.Connection:
    """A connection to a copy that only reads.

    Raises:
        UsageError: There is no such file.
        StoreUnreadable: It is none of ours, or it is damaged.
    """
    if not file.is_file():
        raise UsageError(f"{file} is no file; name one that `embedkit backup` made")
    # What lies in a write-ahead file beside it belongs to it, where it is a store and not a backup.
    is_live = file.with_name(file.name + "-wal").exists()
    foreign = StoreUnreadable(f"{file}: it is no store of embedkit; name a file that `embedkit backup` made")
    if not is_live and is_foreign(file):
        raise foreign
    with named_errors(file):
        connection = connect_reader(file, "ro" if is_live else "ro&immutable=1", 5.0)
        try:
            if connection.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
                raise foreign
        except BaseException:
            connection.close()
            raise
    return connection


def refuse_damaged(connection: sqlite3.Connection, file: Path) -> None:
    """Read all of it.

    Raises:
        StoreUnreadable: It is damaged.
    """
    with named_errors(file):
        (said,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if said != "ok":
            raise StoreUnreadable(f"{file}: it is damaged ({' '.join(str(said).split())}); use another backup")


def is_foreign(file: Path) -> bool:
    """Whether the file is anything else than a store of ours, by how it begins."""
    try:
        with file.open("rb") as stream:
            head = stream.read(100)
    except OSError as error:
        raise folder_error(error, file) from error
    return head[:16] != _MAGIC or int.from_bytes(head[68:72], "big") != APPLICATION_ID


@contextmanager
def beside(file: Path) -> Iterator[Path]:
    """An empty file in the folder of ``file``, which is gone when the block ends, unless it was moved."""
    folder = file.absolute().parent
    try:
        _sweep_up(folder, file.name)
        partial = folder / f".{file.name}.{secrets.token_hex(4)}.partial"
        partial.touch(exist_ok=False)  # with the permissions that the user's other files get
    except FileNotFoundError as error:
        raise UsageError(f"{folder} is not there; make the folder, or name another") from error
    except OSError as error:
        raise folder_error(error, file) from error
    try:
        yield partial
    finally:
        for side in ("", *_SIDES):
            partial.with_name(partial.name + side).unlink(missing_ok=True)


def put_in_place(partial: Path, file: Path) -> None:
    """Give a whole file its name, durably: whatever happens, the name is the old file's or the new one's."""
    try:
        if file.exists():
            partial.chmod(file.stat().st_mode)
        with partial.open("rb+") as stream:
            os.fsync(stream.fileno())
        partial.replace(file)
        _sync_folder(file.absolute().parent)
    except OSError as error:
        raise folder_error(error, file) from error


def set_aside(store: Path) -> Path | None:
    """Keep a file that cannot be opened under another name, with all that lies beside it; ``None``: there is none.

    The name itself stays the old file's where the file system has links, until ``put_in_place`` takes it.
    """
    number = 1
    while (aside := store.with_name(f"{store.name}.damaged-{number}")).exists():
        number += 1
    try:
        for side in _SIDES:
            with suppress(FileNotFoundError):
                store.with_name(store.name + side).rename(aside.with_name(aside.name + side))
        if not store.exists():
            return None
        try:
            os.link(store, aside)
        except OSError:
            store.rename(aside)
    except OSError as error:
        raise folder_error(error, store) from error
    return aside


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sweep_up(folder: Path, name: str) -> None:
    for left in folder.glob(f".{name}.*.partial*"):
        with suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > _LEFT_SECONDS:
                left.unlink()
