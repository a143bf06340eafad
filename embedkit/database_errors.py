"""What SQLite and the file system can say of the store's file, and the named error that each of it becomes.

A table and two look-ups. What is not in the table is a statement's fault and not the file's (a constraint, a
syntax error): that is a bug in whoever wrote the statement, and is not dressed up as trouble with the disk.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING, Final

from embedkit.errors import StoreError, StoreFull, StoreLocked, StoreReadOnly, StoreUnreadable

if TYPE_CHECKING:
    import sqlite3

_Fault = tuple[type[StoreError], str]

_NO_ROOM: Final[_Fault] = (
    StoreFull,
    "the disk is full: free some space and run again; what was committed is kept",
)
_UNWRITABLE: Final[_Fault] = (
    StoreReadOnly,
    "it may not be written: give this user write access to the file and its folder, or name another store",
)
_HELD: Final[_Fault] = (StoreLocked, "another process holds it: run again when that has ended")
_UNOPENED: Final[_Fault] = (
    StoreUnreadable,
    "it cannot be opened or read: check the file, its folder and the disk, or name another store",
)
_NO_DATABASE: Final[_Fault] = (
    StoreUnreadable,
    "it is not a database: move the file away, or name another store",
)
_DAMAGED: Final[_Fault] = (
    StoreUnreadable,
    "it is damaged: put a backup back with `embedkit restore FILE`, or move the file away and run `embedkit sync` "
    "to build it anew; `embedkit doctor --store` says what is wrong",
)

_BUSY = 5
# SQLite's result codes (https://www.sqlite.org/rescode.html): the primary ones, and the one extended code
# that says more than its primary: IOERR_SHMSIZE is a disk with no room for the index of the write-ahead log.
_FAULTS: Final[dict[int, _Fault]] = {
    3: _UNWRITABLE,  # PERM
    _BUSY: _HELD,
    6: _HELD,  # LOCKED
    8: _UNWRITABLE,  # READONLY
    10: _UNOPENED,  # IOERR
    11: _DAMAGED,  # CORRUPT
    13: _NO_ROOM,  # FULL
    14: _UNOPENED,  # CANTOPEN
    15: _HELD,  # PROTOCOL: the locks of the write-ahead log were contended for too long
    26: _NO_DATABASE,  # NOTADB
    4874: _NO_ROOM,  # IOERR_SHMSIZE
}
_FOLDER_FAULTS: Final[dict[int, _Fault]] = {
    errno.ENOSPC: _NO_ROOM,
    errno.EDQUOT: _NO_ROOM,
    errno.EACCES: _UNWRITABLE,
    errno.EPERM: _UNWRITABLE,
    errno.EROFS: _UNWRITABLE,
}


def store_error(error: sqlite3.Error, path: Path) -> StoreError | None:
    """The named error for what SQLite said of ``path``; raise it ``from`` the cause.

    Returns:
        One line that names the file, the trouble and the mend; ``None`` where a statement was at fault, not
        the file.
    """
    # Errors of Python's own module (a closed connection, a wrong number of parameters) carry no code.
    code: int = getattr(error, "sqlite_errorcode", 0)
    fault = _FAULTS.get(code) or _FAULTS.get(code & 0xFF)
    return None if fault is None else _named(fault, error, path)


def folder_error(error: OSError, path: Path) -> StoreError:
    """The named error for what the file system said when the place of ``path`` was looked at or made."""
    return _named(_FOLDER_FAULTS.get(error.errno or 0, _UNOPENED), error, path)


def is_busy(error: sqlite3.OperationalError) -> bool:
    """Whether another connection held the file for longer than SQLite waited."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF == _BUSY


def _named(fault: _Fault, error: Exception, path: Path) -> StoreError:
    kind, trouble = fault
    return kind(f"{path}: {trouble} ({error})")
