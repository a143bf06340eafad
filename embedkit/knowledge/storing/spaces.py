"""The embedding space of a store's vectors: fixed once, and never mixed. Functions of a connection."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from embedkit.database_rows import checked_row
from embedkit.errors import SpaceMismatch
from embedkit.knowledge.model import Space

if TYPE_CHECKING:
    import sqlite3


def held(connection: sqlite3.Connection) -> Space | None:
    """The store's space, or ``None``: it has none yet."""
    row = connection.execute("SELECT kind, model, dimension, options FROM space").fetchone()
    if row is None:
        return None
    kind, model, dimension, options = checked_row(row, str, str, int, str)
    return Space(kind, model, dimension, json.loads(options))


def claim(path: str, space: Space, connection: sqlite3.Connection) -> None:
    """Fix the space of the store at ``path``.

    Raises:
        SpaceMismatch: It is another already.
    """
    ours = held(connection)
    if ours is None:
        connection.execute(
            "INSERT INTO space (id, kind, model, dimension, options) VALUES (1, ?, ?, ?, ?)",
            (space.kind, space.model, space.dimension, json.dumps(dict(space.options), sort_keys=True)),
        )
    elif ours != space:
        raise SpaceMismatch(
            f"{path} holds vectors of {ours}, not of {space}; name another store (--store), or go back to that model"
        )
