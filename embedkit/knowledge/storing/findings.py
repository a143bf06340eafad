"""Findings: what an engine has taught about an input, short of a fence. Functions of a connection.

============  ==============================================  ==================================================
finding       what happened                                   what follows
============  ==============================================  ==================================================
over-window   it was refused, alone, as too long              its halves are offered in its place
timed-out     a ticket that held nothing else timed out       it is offered last, alone, and after a control; if
                                                              it times out again, it is fenced
============  ==============================================  ==================================================

A finding belongs to an embedding generation, as a fence does; one that was made before the store had a space is void
once it has. An input has one finding, the latest, and none once it is embedded or fenced.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from embedkit.knowledge.storing.fences import generation
from embedkit.knowledge.storing.parameters import in_batches, placeholders

if TYPE_CHECKING:
    import sqlite3

    from embedkit.knowledge.model import Finding


def findings_of(connection: sqlite3.Connection, tenant_id: int, hashes: Iterable[bytes]) -> dict[bytes, Finding]:
    """What was found about ``hashes`` with the tenant in this generation."""
    now = generation(connection)
    found: dict[bytes, Finding] = {}
    for some in in_batches(hashes):
        statement = (
            "SELECT hash, mark FROM marks WHERE tenant_id = ? AND generation = ? AND hash IN "  # noqa: S608  # only question marks
            + placeholders(some)
        )
        found.update(connection.execute(statement, (tenant_id, now, *some)).fetchall())
    return found


def record(connection: sqlite3.Connection, tenant_id: int, hash_: bytes, finding: Finding) -> None:
    """Record what was found about an input; findings of other generations are forgotten."""
    now = generation(connection)
    connection.execute("DELETE FROM marks WHERE generation != ?", (now,))
    connection.execute(
        "INSERT OR REPLACE INTO marks (tenant_id, hash, generation, mark, at) VALUES (?, ?, ?, ?, ?)",
        (tenant_id, hash_, now, finding, time.time()),
    )


def clear(connection: sqlite3.Connection, tenant_id: int, hashes: Iterable[bytes]) -> None:
    """Forget what was found about ``hashes``."""
    connection.executemany(
        "DELETE FROM marks WHERE tenant_id = ? AND hash = ?", ((tenant_id, hash_) for hash_ in hashes)
    )
