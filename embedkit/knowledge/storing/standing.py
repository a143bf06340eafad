"""How inputs stand with a tenant: what is there already, and what is not to be offered as it is."""

from __future__ import annotations

from collections.abc import Collection, Set
from typing import TYPE_CHECKING

import attrs

from embedkit.knowledge.storing import documents, fences, marks

if TYPE_CHECKING:
    import sqlite3


@attrs.frozen
class Standing:
    """Inputs, by hash. Those that it does not name are to be bought.

    Attributes:
        known: There is a vector.
        fenced: Never to be offered in this embedding generation.
        over_window: Too long for the engine: the halves are to be offered.
        suspected: Timed out alone once: to be offered last, alone, after a control.
    """

    known: Set[bytes]
    fenced: Set[bytes]
    over_window: Set[bytes]
    suspected: Set[bytes]


def standing(connection: sqlite3.Connection, tenant_id: int, hashes: Collection[bytes]) -> Standing:
    """How ``hashes`` stand with the tenant, all at one instant."""
    marked = marks.marked(connection, tenant_id, hashes)
    return Standing(
        known=set(documents.known(connection, tenant_id, hashes)),
        fenced=fences.fenced(connection, tenant_id, hashes),
        over_window={hash_ for hash_, mark in marked.items() if mark == "over-window"},
        suspected={hash_ for hash_, mark in marked.items() if mark == "timed-out"},
    )
