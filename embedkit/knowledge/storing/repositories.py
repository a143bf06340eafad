"""What a store remembers of each repository between sweeps. Functions of a connection, run inside a transaction."""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING, Any, Final

import attrs

from embedkit.clocks import ZERO, Clocks
from embedkit.database_rows import checked_row
from embedkit.errors import UsageError

if TYPE_CHECKING:
    import sqlite3

GIVEN_ROOT: Final = "given:"
"""Where the texts of a repository lie that are in no folder: they were given (``Engine.index``, ``embedkit add``)."""


@attrs.frozen
class Last:
    """How a repository's last sweep ended.

    Attributes:
        outcome: A word of the outcome table.
        code: Durable code of the error that decided it, or ``None``.
        attribution: ``queue`` or ``provider``, where there was an error with clocks.
        reason: One line for people.
        clocks: Sums over its tickets.
        at: Wall-clock time, seconds since 1970.
    """

    outcome: str
    code: str | None
    attribution: str | None
    reason: str | None
    clocks: Clocks
    at: float


@attrs.frozen
class RepositoryRecord:
    """One repository in the store.

    Attributes:
        id: The store's own number for it.
        tenant_id: The store's own number for its tenant.
        tenant: The tenant's name.
        name: Its name, unique within the tenant.
        revision: The checkpoint: the last revision that was stored whole, or ``None``.
        generation: The chunking generation of that checkpoint.
        streak: Failures in a row.
        succeeded: Whether any sweep of it ever completed.
        outstanding: Documents that the last sweep left undone.
        next_due_at: Wall-clock time when it is due again, or ``None``: at once.
        last: How its last sweep ended, or ``None``: never swept.
        root: Where it lay when it was swept last: an absolute path, an address without what is secret in it, or
            ``GIVEN_ROOT``.
        batch_ceiling: Most inputs that a ticket of its next sweep may hold, since larger ones timed out; ``None``: as
            many as the settings say.
        tripped_at: When a ticket of it opened the circuit of a run, in wall-clock time, until it completes or fails in
            another way: the next runs sweep it last. ``None``: none did.
    """

    id: int
    tenant_id: int
    tenant: str
    name: str
    revision: str | None = None
    generation: int = 0
    streak: int = 0
    succeeded: bool = False
    outstanding: int = 0
    next_due_at: float | None = None
    last: Last | None = None
    batch_ceiling: int | None = None
    root: str | None = None
    tripped_at: float | None = None


_TEXT = (str, NoneType)
_NUMBER = (int, float, NoneType)
_KINDS: Final = (
    *(int, int, str, str, _TEXT),
    *(int, int, int, int),
    *(_NUMBER, (int, NoneType), _TEXT, _NUMBER),
    *(_TEXT, _TEXT, _TEXT, _TEXT),
    *(_NUMBER, _NUMBER, _NUMBER, _NUMBER),
)
_SELECT = """
    SELECT r.id, r.tenant_id, t.name, r.name, r.revision, r.generation, r.streak, r.succeeded, r.outstanding,
           r.next_due_at, r.batch_ceiling, r.root, r.tripped_at, r.outcome, r.code, r.attribution, r.reason,
           r.queue_wait, r.provider_time, r.retry_wait, r.at
    FROM repositories r JOIN tenants t ON t.id = r.tenant_id
"""


def tenant_id(connection: sqlite3.Connection, name: str) -> int | None:
    """The tenant's number, or ``None``: the store does not know it."""
    row = connection.execute("SELECT id FROM tenants WHERE name = ?", (name,)).fetchone()
    return None if row is None else int(row[0])


def tenant_names(connection: sqlite3.Connection) -> list[str]:
    """All tenants that have repositories, sorted."""
    rows = connection.execute(
        "SELECT name FROM tenants t WHERE EXISTS (SELECT 1 FROM repositories WHERE tenant_id = t.id) ORDER BY name"
    )
    return [name for (name,) in rows]


def ensure(connection: sqlite3.Connection, tenant: str, name: str, root: str | None = None) -> RepositoryRecord:
    """The repository's record, made if the store has none; it lies at ``root`` now, if that is known.

    Raises:
        UsageError: It holds texts that were given, and ``root`` is a folder; or the other way round.
    """
    if root is not None:
        _refuse_another_kind(connection, tenant, name, root)
    connection.execute("INSERT OR IGNORE INTO tenants (name) VALUES (?)", (tenant,))
    connection.execute(
        "INSERT OR IGNORE INTO repositories (tenant_id, name) SELECT id, ? FROM tenants WHERE name = ?", (name, tenant)
    )
    if root is not None:
        connection.execute(
            """
            UPDATE repositories SET root = ? WHERE name = ? AND root IS NOT ?
            AND tenant_id = (SELECT id FROM tenants WHERE name = ?)
            """,
            (root, name, root, tenant),
        )
    row = connection.execute(f"{_SELECT} WHERE t.name = ? AND r.name = ?", (tenant, name)).fetchone()
    return _record(row)


def _refuse_another_kind(connection: sqlite3.Connection, tenant: str, name: str, root: str) -> None:
    row = connection.execute(
        "SELECT r.root FROM repositories r JOIN tenants t ON t.id = r.tenant_id WHERE t.name = ? AND r.name = ?",
        (tenant, name),
    ).fetchone()
    held = None if row is None else row[0]
    if held is not None and (held == GIVEN_ROOT) != (root == GIVEN_ROOT):
        holds = "texts that were given (embedkit add)" if held == GIVEN_ROOT else f"the files of {held}"
        raise UsageError(f"repository {name!r} of tenant {tenant!r} holds {holds}; take another name, or forget it")


def all_records(connection: sqlite3.Connection) -> list[RepositoryRecord]:
    """Every repository, by tenant and name."""
    return [_record(row) for row in connection.execute(f"{_SELECT} ORDER BY t.name, r.name")]


def save(connection: sqlite3.Connection, record: RepositoryRecord) -> None:
    """Write what a sweep changed of ``record``."""
    last = record.last
    clocks = last.clocks if last is not None else ZERO
    connection.execute(
        """
        UPDATE repositories SET revision = ?, generation = ?, streak = ?, succeeded = ?, outstanding = ?,
            next_due_at = ?, batch_ceiling = ?, tripped_at = ?, outcome = ?, code = ?, attribution = ?, reason = ?,
            queue_wait = ?, provider_time = ?, retry_wait = ?, at = ?
        WHERE id = ?
        """,
        (
            record.revision,
            record.generation,
            record.streak,
            record.succeeded,
            record.outstanding,
            record.next_due_at,
            record.batch_ceiling,
            record.tripped_at,
            *((last.outcome, last.code, last.attribution, last.reason) if last is not None else (None,) * 4),
            clocks.queue_wait,
            clocks.provider_time,
            clocks.retry_wait,
            last.at if last is not None else None,
            record.id,
        ),
    )


def _record(row: tuple[Any, ...]) -> RepositoryRecord:
    checked_row(row, *_KINDS)
    id_, tenant_number, tenant, name, revision, generation, streak, succeeded, outstanding, due, *end = row
    ceiling, root, tripped_at, outcome, code, attribution, reason, queue_wait, provider_time, retry_wait, at = end
    last = None
    if outcome is not None:
        last = Last(outcome, code, attribution, reason, Clocks(queue_wait, provider_time, retry_wait), at)
    found = RepositoryRecord(
        id_, tenant_number, tenant, name, revision, generation, streak, bool(succeeded), outstanding
    )
    return attrs.evolve(found, next_due_at=due, last=last, batch_ceiling=ceiling, root=root, tripped_at=tripped_at)
