"""``embedkit backup FILE`` and ``embedkit restore FILE``. They call nobody.

Tests: tests/surfaces/test_backup_command.py.
"""

from __future__ import annotations

import argparse

from embedkit.knowledge.storing.backup import BackedUp, Restored, restore
from embedkit.knowledge.storing.backup import back_up as make_copy
from embedkit.settings import Settings
from embedkit.surfaces.exits import DONE, INTERRUPTED, print_json, print_text
from embedkit.surfaces.interrupts import interruptible
from embedkit.surfaces.report_text import counted


async def back_up(given: argparse.Namespace, settings: Settings) -> int:
    """Copy the store.

    Cancellation:
        Nothing is left of the copy.
    """
    made: BackedUp | None = None
    async with interruptible():
        made = await make_copy(settings.store.path, given.file)
    if made is None:
        return INTERRUPTED
    if given.json:
        print_json(
            {"file": str(made.file), "bytes": made.bytes, "repositories": made.repositories, "chunks": made.chunks}
        )
    else:
        holds = _holds(made.repositories, made.chunks)
        print_text(f"backed up {settings.store.path} to {made.file}: {holds}, {made.bytes:,} bytes\n")
    return DONE


async def put_back(given: argparse.Namespace, settings: Settings) -> int:
    """Restore the store.

    Cancellation:
        The store is as it was.
    """
    done: Restored | None = None
    async with interruptible():
        done = await restore(given.file, settings.store.path)
    if done is None:
        return INTERRUPTED
    aside = None if done.aside is None else str(done.aside)
    if given.json:
        print_json({"store": str(done.store), "repositories": done.repositories, "chunks": done.chunks, "aside": aside})
    else:
        kept = f"; what could not be opened there is now {aside}" if aside else ""
        print_text(f"restored {done.store} from {given.file}: {_holds(done.repositories, done.chunks)}{kept}\n")
    return DONE


def _holds(repositories: int, chunks: int) -> str:
    named = "1 repository" if repositories == 1 else f"{repositories:,} repositories"
    return f"{named}, {counted(chunks, 'chunk')}"
