"""How inputs stand with a tenant: what is there already, and what is not to be offered as it is."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from embedkit.knowledge.storing import documents, fences, findings
from embedkit.knowledge.storing.protocol import KnownInputs

if TYPE_CHECKING:
    import sqlite3


def known_inputs(connection: sqlite3.Connection, tenant_id: int, hashes: Collection[bytes]) -> KnownInputs:
    """How ``hashes`` stand with the tenant, all at one instant."""
    found = findings.findings_of(connection, tenant_id, hashes)
    return KnownInputs(
        known=set(documents.known(connection, tenant_id, hashes)),
        fenced=fences.fenced(connection, tenant_id, hashes),
        over_window={hash_ for hash_, finding in found.items() if finding == "over-window"},
        suspected={hash_ for hash_, finding in found.items() if finding == "timed-out"},
    )
