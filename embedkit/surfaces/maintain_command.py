"""``embedkit maintain``: compacts the knowledge base, while others work on it. It calls nobody.

Tests: tests/surfaces/test_backup_command.py.
"""

from __future__ import annotations

import argparse

import attrs

from embedkit.database import open_database
from embedkit.knowledge.storing.maintaining import Compacted, compact, rebuild
from embedkit.settings import Settings
from embedkit.surfaces.exits import DONE, INTERRUPTED, print_json, print_text
from embedkit.surfaces.interrupts import interruptible


async def run(given: argparse.Namespace, settings: Settings) -> int:
    """Compact, and say what came of it.

    Cancellation:
        Whole portions are done; the next call goes on.
    """
    done: Compacted | None = None
    async with interruptible():
        freed = await rebuild(settings.store.path) if given.rebuild else 0
        async with open_database(settings.store.path, create=False) as database:
            done = await compact(database)
        done = attrs.evolve(done, freed=done.freed + freed)
    if done is None:
        return INTERRUPTED
    if given.json:
        print_json(attrs.asdict(done))
    else:
        left = f"; {done.left:,} bytes are free, which --rebuild gives back" if done.left else ""
        print_text(f"compacted {settings.store.path}: {done.freed:,} bytes smaller{left}\n")
    return DONE
