"""Compaction: what was removed gives its room back, and the full-text index is merged, in portions.

Each portion is a transaction of well under a second, so that others get their turn between any two.

Tests: tests/knowledge/storing/test_maintaining.py.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import trio

from embedkit.database_opening import named_errors, open_writer
from embedkit.knowledge.storing.checking import BUSY_SECONDS, has_table

if TYPE_CHECKING:
    import sqlite3

    from embedkit.database import Database

_PAGES_MERGED: Final = 500
_PAGES_FREED: Final = 1_000
# Free pages are used by what is stored next: only where more than this part of the file is free, it is worth moving
# what lies behind them.
_WORTH_IT: Final = 8


@attrs.frozen
class Compacted:
    """What a compaction did.

    Attributes:
        portions: In how many transactions.
        freed: Bytes that the file is smaller by.
        left: Bytes that are free and cannot be given back in portions, since an embedkit made the file that did not
            prepare it for that: ``rebuild`` does, once.
    """

    portions: int = 0
    freed: int = 0
    left: int = 0


async def compact(database: Database) -> Compacted:
    """Merge the full-text index, and give back all free room.

    Raises:
        StoreError: The file's trouble, by kind; whole portions are kept.

    Cancellation:
        Between two portions; the next call goes on.
    """
    before, _ = await database.read(_size_and_free)
    portions = 0
    while await database.write(partial(portion, worth=0)):
        portions += 1
    after, free = await database.read(_size_and_free)
    return Compacted(portions, before - after, free)


def portion(connection: sqlite3.Connection, *, worth: int = _WORTH_IT) -> bool:
    """Do one portion in a write transaction; whether there was anything to do.

    Args:
        connection: In a write transaction.
        worth: Room is given back only if one in so many pages is free; 0: if any is.
    """
    if has_table(connection, "words"):
        before = connection.total_changes
        connection.execute("INSERT INTO words (words, rank) VALUES ('merge', ?)", (_PAGES_MERGED,))
        if connection.total_changes - before >= 2:  # the statement itself is one
            return True
    free, pages = _pragma(connection, "freelist_count"), _pragma(connection, "page_count")
    if not free or _pragma(connection, "auto_vacuum") != 2 or free * worth < pages * bool(worth):
        return False
    connection.execute(f"PRAGMA incremental_vacuum({_PAGES_FREED})").fetchall()
    return _pragma(connection, "freelist_count") < free


async def rebuild(path: Path | str, *, busy_timeout: float = BUSY_SECONDS) -> int:
    """Write the whole file anew, ready for compaction in portions; bytes that it is smaller by.

    Nobody can write meanwhile, and it takes the room of the file twice over.

    Raises:
        UsageError: There is no store.
        StoreError: It cannot be written, somebody else writes, or there is no room.

    Cancellation:
        Not interrupted; the file is as it was unless it returned.
    """
    return await trio.to_thread.run_sync(partial(_rebuild, Path(path), busy_timeout))


def _rebuild(path: Path, busy_timeout: float) -> int:
    with closing(open_writer(path, create=False, busy_timeout=busy_timeout)) as connection, named_errors(path):
        connection.execute(f"PRAGMA busy_timeout = {int(1000 * busy_timeout)}")
        before, _ = _size_and_free(connection)
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("VACUUM")
        after, _ = _size_and_free(connection)
    return before - after


def _size_and_free(connection: sqlite3.Connection) -> tuple[int, int]:
    """Bytes of the file, and of its free pages."""
    size = _pragma(connection, "page_size")
    return _pragma(connection, "page_count") * size, _pragma(connection, "freelist_count") * size


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
