"""A copy of a store while others work on it, and its way back.

Tests: tests/knowledge/storing/test_backup.py.
"""

from __future__ import annotations

import secrets
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import trio

from embedkit.database_copying import (
    beside,
    copy_in,
    copy_out,
    is_foreign,
    open_copy,
    put_in_place,
    refuse_damaged,
    set_aside,
)
from embedkit.database_errors import folder_error
from embedkit.database_opening import connect, make_folder, named_errors, open_writer
from embedkit.errors import StoreUnreadable, UsageError
from embedkit.knowledge.searching.matrix import EPOCH_BITS
from embedkit.knowledge.storing.components import refuse_unknown

if TYPE_CHECKING:
    import sqlite3

BUSY_SECONDS: Final = 30.0
_EPOCHS: Final = 1 << 22


@attrs.frozen
class BackedUp:
    """A copy of a store.

    Attributes:
        file: Where it lies.
        bytes: How large it is.
        repositories: How many it holds.
        chunks: How many it holds.
    """

    file: Path
    bytes: int
    repositories: int
    chunks: int


@attrs.frozen
class Restored:
    """A store that a copy was put back into.

    Attributes:
        store: Its file.
        repositories: How many it holds now.
        chunks: How many it holds now.
        aside: Where the file lies now that had the store's name and could not be opened; ``None``: there was none.
    """

    store: Path
    repositories: int
    chunks: int
    aside: Path | None


async def back_up(store: Path | str, file: Path | str, *, busy_timeout: float = BUSY_SECONDS) -> BackedUp:
    """Copy the store into ``file``, as it is at one instant. Nobody who works on it waits, or is waited for.

    The copy is one file, which is read whole before it gets its name; an earlier backup that has the name stays until
    then.

    Args:
        store: The store's file.
        file: Where the copy goes: nothing, or an earlier backup.
        busy_timeout: Seconds to wait for a lock, which only somebody who repairs the file holds.

    Raises:
        UsageError: There is no store, no folder for the copy, or another file in its place.
        StoreError: The store cannot be read, is damaged, or there is no room.

    Cancellation:
        Within a few thousand pages. Nothing is left of the copy, and an earlier one is as it was.
    """
    work = partial(_back_up, Path(store), Path(file), busy_timeout)
    return await trio.to_thread.run_sync(work, limiter=trio.CapacityLimiter(1))


async def restore(file: Path | str, store: Path | str, *, busy_timeout: float = BUSY_SECONDS) -> Restored:
    """Put what ``file`` holds in place of what the store holds, in one transaction.

    Processes that have the store open go on with the new content: their leases and roles are void, so that what they
    were about to write is not written, and they begin anew. A store that cannot be opened is set aside, under another
    name.

    Args:
        file: What ``back_up`` made; another store will do.
        store: The store's file, or where it is to be.
        busy_timeout: Seconds to wait for a process that is writing.

    Raises:
        UsageError: There is no such file, or it is the store itself.
        StoreUnreadable: The file is none of ours, damaged, or of a newer embedkit; or another program's database has
            the store's name.
        StoreLocked: Somebody wrote for longer than ``busy_timeout``.
        StoreFull: There is no room: it takes twice that of ``file`` for a while.
        StoreReadOnly: The store may not be written.

    Cancellation:
        The store is as it was, unless it returned.
    """
    work = partial(_restore, Path(file), Path(store), busy_timeout)
    return await trio.to_thread.run_sync(work, limiter=trio.CapacityLimiter(1))


def _back_up(store: Path, file: Path, busy_timeout: float) -> BackedUp:
    if file.is_dir():
        raise UsageError(f"{file} is a folder; name a file in it")
    if _are_one(store, file):
        raise UsageError(f"{file} is the store itself; name another file")
    if file.exists() and is_foreign(file):
        raise UsageError(f"{file} is there and is no backup; name another file, or remove it")
    with beside(file) as partial_file:
        copy_out(store, partial_file, busy_timeout)
        with closing(open_copy(partial_file)) as copy:
            try:
                refuse_damaged(copy, store)
            except StoreUnreadable as error:
                raise StoreUnreadable(
                    f"{store}: it is damaged, so it was not copied; `embedkit doctor --store` says where"
                ) from error
            repositories, chunks = _counts(copy, store)
        size = partial_file.stat().st_size
        put_in_place(partial_file, file)
    return BackedUp(file, size, repositories, chunks)


def _restore(file: Path, store: Path, busy_timeout: float) -> Restored:
    if file.is_dir():
        raise UsageError(f"{file} is a folder; name a file that `embedkit backup` made")
    if _are_one(store, file):
        raise UsageError(f"{file} is the store itself; name a file that `embedkit backup` made")
    with closing(open_copy(file)) as copy:
        refuse_damaged(copy, file)
        with named_errors(file):
            refuse_unknown(copy, file)
    can_be_opened = _can_be_opened(store, busy_timeout)
    _make_folder(store)
    with beside(store) as partial_file:
        copy_out(file, partial_file, busy_timeout)
        repositories, chunks = _begin_another_life(partial_file)
        if can_be_opened:
            copy_in(partial_file, store, busy_timeout)
            return Restored(store, repositories, chunks, None)
        aside = set_aside(store)
        put_in_place(partial_file, store)
    return Restored(store, repositories, chunks, aside)


def _can_be_opened(store: Path, busy_timeout: float) -> bool:
    """Whether there is a store that a transaction can change.

    Raises:
        StoreError: There is, and it cannot be written; or it is another program's.
    """
    if not store.exists() or (store.is_file() and not store.stat().st_size):
        return False
    try:
        open_writer(store, create=False, busy_timeout=busy_timeout).close()
    except StoreUnreadable:
        if store.is_dir() or _can_be_read(store):
            raise  # another program's database, or a disk that cannot hold a store
        return False
    return True


def _can_be_read(store: Path) -> bool:
    import sqlite3

    try:
        with closing(connect(store, "ro")) as connection:
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.Error:
        return False
    return True


def _begin_another_life(file: Path) -> tuple[int, int]:
    """Void what belongs to processes of the time when the copy was made; repositories and chunks."""
    with named_errors(file), closing(connect(file, "rw")) as connection:
        connection.execute("BEGIN")
        connection.execute("DELETE FROM leases")
        if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'roles'").fetchone():
            connection.execute("DELETE FROM roles")
        epoch = (1 + secrets.randbelow(_EPOCHS - 1)) << EPOCH_BITS
        connection.execute("UPDATE tenants SET version = (version & ?) | ?", ((1 << EPOCH_BITS) - 1, epoch))
        found = _counts(connection, file)
        connection.execute("COMMIT")
    return found


def _counts(connection: sqlite3.Connection, file: Path) -> tuple[int, int]:
    with named_errors(file):
        refuse_unknown(connection, file)
        (repositories,) = connection.execute("SELECT count(*) FROM repositories").fetchone()
        (chunks,) = connection.execute("SELECT count(*) FROM chunks").fetchone()
    return repositories, chunks


def _are_one(store: Path, file: Path) -> bool:
    try:
        return store.samefile(file)
    except FileNotFoundError:
        return store.absolute() == file.absolute()
    except OSError as error:
        raise folder_error(error, file) from error


def _make_folder(store: Path) -> None:
    try:
        make_folder(store.absolute().parent)
    except OSError as error:
        raise folder_error(error, store) from error
