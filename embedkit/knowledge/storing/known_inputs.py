"""How inputs stand with a tenant: what is there already, and what is not to be offered as it is."""

from __future__ import annotations

from collections.abc import Collection, Set
from typing import TYPE_CHECKING

import attrs

from embedkit.knowledge.storing import documents, fences, findings

if TYPE_CHECKING:
    import sqlite3


@attrs.frozen
class KnownInputs:
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


def known_inputs(connection: sqlite3.Connection, tenant_id: int, hashes: Collection[bytes]) -> KnownInputs:
    """How ``hashes`` stand with the tenant, all at one instant."""
    found = findings.findings_of(connection, tenant_id, hashes)
    return KnownInputs(
        known=set(documents.known(connection, tenant_id, hashes)),
        fenced=fences.fenced(connection, tenant_id, hashes),
        over_window={hash_ for hash_, finding in found.items() if finding == "over-window"},
        suspected={hash_ for hash_, finding in found.items() if finding == "timed-out"},
    )
