"""Whose tables lie in a store's file, and how far this embedkit knows each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from embedkit.activity import tables as activity
from embedkit.errors import StoreUnreadable
from embedkit.knowledge.storing import deferring, roles, schema
from embedkit.probing import tables as probing

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from pathlib import Path

    from embedkit.database import Step

COMPONENTS: Final[Mapping[str, Sequence[Step]]] = {
    schema.COMPONENT: schema.STEPS,
    deferring.COMPONENT: deferring.STEPS,
    roles.COMPONENT: roles.STEPS,
    activity.COMPONENT: activity.STEPS,
    probing.COMPONENT: probing.STEPS,
}
"""The steps of each component, by its name."""


def versions(connection: sqlite3.Connection) -> dict[str, object]:
    """The version that each component's tables have, as it is written: nobody has checked that it is a number."""
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'schema_versions'").fetchone():
        return {}
    rows = connection.execute("SELECT CAST(component AS BLOB), version FROM schema_versions")
    return {bytes(component or b"").decode(errors="replace"): version for component, version in rows}


def refuse_unknown(connection: sqlite3.Connection, file: Path) -> None:
    """Refuse a file whose tables cannot be used here.

    Raises:
        StoreUnreadable: It has no tables of a knowledge base, or a newer embedkit made them.
    """
    found = versions(connection)
    if schema.COMPONENT not in found:
        raise StoreUnreadable(f"{file}: it holds no knowledge base; name a file that `embedkit backup` made")
    for component, steps in COMPONENTS.items():
        version = found.get(component, 0)
        if not isinstance(version, int) or version < 0:
            raise StoreUnreadable(f"{file}: it is damaged: the version of its {component} tables is no number")
        if version > len(steps):
            raise StoreUnreadable(
                f"{file}: its {component} tables have version {version}, and this embedkit knows up to {len(steps)}: "
                "upgrade embedkit"
            )
