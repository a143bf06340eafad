"""What a drain may do, and when. Pure: a record's cooldown, a ticket's records, and the pause after a timeout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from embedkit.knowledge.storing.deferring import Deferred

BATCH: Final = 20
"""Records of one cycle."""

INTERVAL_SECONDS: Final = 5.0
"""Between two cycles."""

MOST_ATTEMPTS: Final = 6
"""Failures of a record's own; then it is given up, and kept."""

LONGEST_SECONDS: Final = 3600.0
"""Of a cooldown, and of a pause."""

_FIRST_COOLDOWN = 30.0


def cooldown(attempts: int) -> float:
    """Seconds until a record is offered again that has failed ``attempts`` times: doubles, up to an hour."""
    return min(_FIRST_COOLDOWN * 2.0 ** (attempts - 1), LONGEST_SECONDS)


def pause(previous: float, spent: float) -> float:
    """Seconds until the next cycle after one that was not answered: at least what it spent, and twice the last pause.

    So an engine that goes on computing what nobody waits for is not fed faster than it works.

    Args:
        previous: The pause before; 0 after a cycle that went well.
        spent: Seconds that the engine was waited for in vain.
    """
    return min(max(INTERVAL_SECONDS, spent, 2.0 * previous), LONGEST_SECONDS)


def tickets(records: Sequence[Deferred]) -> Iterator[list[Deferred]]:
    """Split the records of a cycle: a ticket is of one repository, and no wider than each of its records allows."""
    left = list(records)
    while left:
        first = left[0]
        chosen: list[Deferred] = []
        bound = BATCH
        for record in left:
            if (record.tenant, record.repository) != (first.tenant, first.repository):
                continue
            narrowed = min(bound, record.width or BATCH)
            if len(chosen) >= narrowed:
                continue
            bound = narrowed
            chosen.append(record)
        yield chosen
        taken = {record.id for record in chosen}
        left = [record for record in left if record.id not in taken]
