"""What a repository's record is after a sweep: the outcome table, as data, and one function of it. Pure.

``NEXT`` says for each outcome what becomes of the checkpoint, of the streak of failures, and of the time it is due.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs

from embedkit.sweep.outcome import Outcome
from embedkit.sweep.schedule import backoff, batch_ceiling, jitter

if TYPE_CHECKING:
    from embedkit.knowledge.storing.repositories import Last, RepositoryRecord


@attrs.frozen
class Next:
    """One row of the table.

    Attributes:
        checkpoint: ``moves`` to the revision that was swept, or is ``held``.
        streak: Of failures in a row: ``ends``, is ``held``, or ``grows``.
        due: At its ``cadence``, at the ``next sweep``, after the ``backoff`` of its streak, or ``as before``.
    """

    checkpoint: Literal["moves", "held"]
    streak: Literal["ends", "held", "grows"]
    due: Literal["cadence", "next sweep", "backoff", "as before"]


NEXT: dict[Outcome, Next] = {
    "complete": Next("moves", "ends", "cadence"),
    "partial-progress": Next("held", "ends", "next sweep"),
    "deferred": Next("held", "held", "backoff"),
    "failed": Next("held", "grows", "backoff"),
    "aborted": Next("held", "held", "as before"),
}


@attrs.frozen(kw_only=True)
class Swept:
    """What a sweep has to say of a repository.

    Attributes:
        revision: What was swept, if it could be listed.
        generation: The chunking's.
        outstanding: Documents left undone.
        too_large: Inputs of its smallest ticket that was too large, or ``None``.
        tripped: Whether a ticket of it opened the run's circuit.
        last: How it ended, and when.
    """

    revision: str | None
    generation: int
    outstanding: int
    too_large: int | None
    last: Last
    tripped: bool = False


def successor(
    record: RepositoryRecord, outcome: Outcome, swept: Swept, *, cadence: float, cap: float, batch: int
) -> RepositoryRecord:
    """The record after ``outcome``.

    Args:
        record: Before.
        outcome: A row of ``NEXT``.
        swept: What was done.
        cadence: Seconds between its complete sweeps.
        cap: The longest backoff, in seconds.
        batch: Inputs of a ticket, as the settings say.
    """
    row, now = NEXT[outcome], swept.last.at
    streak = {"ends": 0, "held": record.streak, "grows": record.streak + 1}[row.streak]
    wait = backoff(cadence, jitter(record.tenant, record.name, cadence), streak, cap)
    due = {
        "cadence": now + cadence,
        "next sweep": now,
        "backoff": now + wait,
        "as before": record.next_due_at,
    }[row.due]
    moves = row.checkpoint == "moves"
    # Under suspicion until it completes, or fails in a way that needs no engine to show.
    cleared = moves or outcome == "failed"
    tripped_at = now if swept.tripped else None if cleared else record.tripped_at
    return attrs.evolve(
        record,
        revision=swept.revision if moves else record.revision,
        generation=swept.generation if moves else record.generation,
        streak=streak,
        succeeded=record.succeeded or moves,
        outstanding=swept.outstanding,
        next_due_at=due,
        last=swept.last,
        tripped_at=tripped_at,
        batch_ceiling=batch_ceiling(
            record.batch_ceiling, timed_out=swept.too_large, clean=row.streak == "ends", batch=batch
        ),
    )
