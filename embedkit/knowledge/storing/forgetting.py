"""Forgetting: a repository, or all of a tenant, leaves the store. Functions of a connection, in a transaction."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    import sqlite3

    from embedkit.knowledge.storing.repositories import RepositoryRecord

DOCUMENTS_AT_ONCE = 200
"""Documents that go in one transaction: others wait for the writer's place meanwhile."""


@attrs.frozen
class Forgotten:
    """What was removed.

    Attributes:
        repositories: Each as tenant and name.
        documents: In all of them.
        chunks: In all of them.
    """

    repositories: tuple[tuple[str, str], ...] = ()
    documents: int = 0
    chunks: int = 0


def drop_repository(connection: sqlite3.Connection, record: RepositoryRecord) -> None:
    """Remove the record of a repository whose documents are gone; with the tenant's last, all that is kept for it.

    The tenant's row stays, without its name: its number is never given to another, so that nothing that is held in
    memory under that number can be taken for another tenant's.
    """
    connection.execute("DELETE FROM leases WHERE repository_id = ?", (record.id,))
    connection.execute("DELETE FROM repositories WHERE id = ?", (record.id,))
    _drop_vectors(connection, record.tenant_id)
    left = connection.execute("SELECT 1 FROM repositories WHERE tenant_id = ?", (record.tenant_id,)).fetchone()
    if left is None:
        for table in ("fences", "marks"):
            connection.execute(f"DELETE FROM {table} WHERE tenant_id = ?", (record.tenant_id,))  # noqa: S608  # our own
        connection.execute(
            "UPDATE tenants SET name = ?, version = version + 1 WHERE id = ?",
            (f"\0forgotten-{secrets.token_hex(8)}", record.tenant_id),
        )


def _drop_vectors(connection: sqlite3.Connection, tenant_id: int) -> None:
    """What was bought and never switched; not while another repository of the tenant is being swept."""
    connection.execute(
        """
        DELETE FROM vectors WHERE tenant_id = :tenant
        AND NOT EXISTS (SELECT 1 FROM chunks WHERE vector_id = vectors.id)
        AND NOT EXISTS (
            SELECT 1 FROM leases l JOIN repositories r ON r.id = l.repository_id WHERE r.tenant_id = :tenant
        )
        """,
        {"tenant": tenant_id},
    )
