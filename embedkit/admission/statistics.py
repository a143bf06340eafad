"""What a lane shows of itself: frozen snapshots, in the words of law 6."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from embedkit.admission.order import Account

# What a lane counts; the other two it can see.
COUNTED = ("offered", "succeeded", "failed", "withdrawn", "shed", "aborted", "unsettled")


@attrs.define
class Totals:
    """What became of every ticket ever offered.

    At every instant ``offered`` is the sum of all the others.
    """

    offered: int = 0
    queued: int = 0
    in_flight: int = 0
    succeeded: int = 0
    failed: int = 0
    withdrawn: int = 0
    shed: int = 0
    aborted: int = 0
    unsettled: int = 0

    @property
    def accounted(self) -> int:
        """The right side of the conservation law."""
        ended = self.succeeded + self.failed + self.withdrawn + self.shed + self.aborted + self.unsettled
        return self.queued + self.in_flight + ended


@attrs.frozen
class LaneStatistics:
    """A lane at one instant.

    Attributes:
        capacity: Units that may be in flight, as last read.
        ceiling: Units that batch and probe work may use together.
        tickets_in_flight: Dispatched tickets that have not settled, detached ones included.
        weight_in_flight: Units they take.
        queued: Waiting tickets by class, those that wait for room included.
        queued_by_tenant: Waiting tickets by tenant.
        longest_wait: Seconds that the longest waiting ticket has waited.
        accounts: Law 4: each class's account of engine time; the class that is next is first.
        furthest_behind: Law 4: of the tenants that wait, those that have been served least, of each class.
        held_by_ceiling: Law 4: the classes that wait and that only the batch ceiling holds back.
        held_for: Seconds for which the engine still wants to be left alone.
        slots: Slots that are open.
        ledger_failures: What the ledger raised so far; the work went on.
        totals: Law 6.
    """

    capacity: int
    ceiling: int
    tickets_in_flight: int
    weight_in_flight: int
    queued: Mapping[str, int]
    queued_by_tenant: Mapping[str | None, int]
    longest_wait: float
    accounts: Sequence[Account]
    furthest_behind: Sequence[Account]
    held_by_ceiling: Sequence[str]
    held_for: float
    slots: int
    ledger_failures: int
    totals: Totals
