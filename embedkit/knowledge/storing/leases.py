"""Leases: one sweep at a time works on a repository, in whatever process. Functions of a connection.

A lease is held by a process and expires unless it is renewed; only one whose process has provably ended is free before.
Every transaction of a sweep checks the lease's token first: whoever lost it, by a pause or a clock that jumped, commits
nothing.
"""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING

import attrs

from embedkit.activity.process import Process, is_dead
from embedkit.errors import EmbedkitError

if TYPE_CHECKING:
    import sqlite3

LEASE_SECONDS = 60.0


class Leased(EmbedkitError):
    """Another sweep has the repository, or took it over after ours went silent. Trying again later helps."""

    code = "KB_REPOSITORY_LEASED"
    retryable = True
    deferrable = True


@attrs.frozen
class Lease:
    """The right to change one repository.

    Attributes:
        repository_id: Which.
        holder: A token of this sweep's own.
    """

    repository_id: int
    holder: str


def take(connection: sqlite3.Connection, repository_id: int, here: Process, now: float) -> Lease | Leased:
    """Take the repository's lease.

    Args:
        connection: In a write transaction.
        repository_id: Which.
        here: This process.
        now: Wall-clock time.

    Returns:
        The lease; or the refusal, which the caller raises once the transaction has ended, if somebody else holds it.
    """
    row = connection.execute(
        "SELECT process, expires_at FROM leases WHERE repository_id = ?", (repository_id,)
    ).fetchone()
    if row is not None and row[1] > now:
        holder = _process(row[0])
        if holder is None or not is_dead(holder, here):
            # The clock was put back, or another machine's is ahead: no lease outlasts its time as it is counted here.
            connection.execute(
                "UPDATE leases SET expires_at = min(expires_at, ?) WHERE repository_id = ?",
                (now + LEASE_SECONDS, repository_id),
            )
            who = "another sweep" if holder is None else f"another sweep (process {holder.pid} on {holder.host})"
            return Leased(f"{who} has this repository; try again when it ends")
    lease = Lease(repository_id, secrets.token_hex(8))
    connection.execute(
        "INSERT OR REPLACE INTO leases (repository_id, holder, process, expires_at) VALUES (?, ?, ?, ?)",
        (repository_id, lease.holder, json.dumps(attrs.asdict(here)), now + LEASE_SECONDS),
    )
    return lease


def hold(connection: sqlite3.Connection, lease: Lease, now: float) -> None:
    """Renew ``lease``; every transaction of its sweep begins with this.

    Raises:
        Leased: It was lost; the transaction must be rolled back.
    """
    renewed = connection.execute(
        "UPDATE leases SET expires_at = ? WHERE repository_id = ? AND holder = ?",
        (now + LEASE_SECONDS, lease.repository_id, lease.holder),
    )
    if renewed.rowcount != 1:
        raise Leased("the lease of this repository was lost to another sweep; what it has not stored is left to that")


def release(connection: sqlite3.Connection, lease: Lease) -> None:
    """Give the lease back, if it is still ours."""
    connection.execute("DELETE FROM leases WHERE repository_id = ? AND holder = ?", (lease.repository_id, lease.holder))


def _process(text: object) -> Process | None:
    """Who holds a lease; ``None`` if what is written there says nothing: then its time alone counts."""
    try:
        return Process(**json.loads(str(text)))
    except (ValueError, TypeError):
        return None
