"""Roles: what one process at a time does for a store, such as its schedule or its drain. Functions of a connection.

A role is held under a token, for as long as it is renewed. It is taken over when its time has passed, or when its
holder has provably ended, as a lease is.
"""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Final

import attrs

from embedkit.activity.process import Process, is_dead

if TYPE_CHECKING:
    import sqlite3

COMPONENT: Final = "roles"
ROLE_SECONDS: Final = 60.0

STEPS: Final = (
    "CREATE TABLE roles (name TEXT PRIMARY KEY, token TEXT NOT NULL, process TEXT NOT NULL, expires_at REAL NOT NULL)",
)


@attrs.frozen
class Held:
    """Somebody else has the role.

    Attributes:
        holder: Who, for people.
        left: Seconds until it may be free.
    """

    holder: str
    left: float


def take(connection: sqlite3.Connection, name: str, here: Process, now: float) -> str | Held:
    """Take the role at wall-clock time ``now``: its token, or who has it."""
    row = connection.execute("SELECT process, expires_at FROM roles WHERE name = ?", (name,)).fetchone()
    if row is not None and row[1] > now:
        holder = _process(row[0])
        if holder is None or not is_dead(holder, here):
            # The clock was put back, or another machine's is ahead: no role outlasts its time as it is counted here.
            connection.execute(
                "UPDATE roles SET expires_at = min(expires_at, ?) WHERE name = ?", (now + ROLE_SECONDS, name)
            )
            who = "another process" if holder is None else f"process {holder.pid} on {holder.host}"
            return Held(who, min(row[1] - now, ROLE_SECONDS))
    token = secrets.token_hex(8)
    connection.execute(
        "INSERT OR REPLACE INTO roles (name, token, process, expires_at) VALUES (?, ?, ?, ?)",
        (name, token, json.dumps(attrs.asdict(here)), now + ROLE_SECONDS),
    )
    return token


def renew(connection: sqlite3.Connection, name: str, token: str, now: float) -> bool:
    """Keep the role; whether it was still ours."""
    renewed = connection.execute(
        "UPDATE roles SET expires_at = ? WHERE name = ? AND token = ?", (now + ROLE_SECONDS, name, token)
    )
    return renewed.rowcount == 1


def release(connection: sqlite3.Connection, name: str, token: str) -> None:
    """Give the role back, if it is still ours."""
    connection.execute("DELETE FROM roles WHERE name = ? AND token = ?", (name, token))


def _process(text: object) -> Process | None:
    try:
        return Process(**json.loads(str(text)))
    except (ValueError, TypeError):
        return None
