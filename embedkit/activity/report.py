"""Reports over the ledger: how many tickets, how they ended, and how long each clock ran.

They have one shape, whether they come from memory or from disk. A *tally* adds up the tickets of one group
while they happen. A *report row* is a tally at rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from embedkit.activity.histogram import Histogram
from embedkit.clocks import Clocks


@attrs.frozen
class Group:
    """What reports are grouped by. ``priority`` is the class."""

    service: str
    stage: str
    role: str
    provider: str
    model: str
    priority: str
    disposition: str


@attrs.frozen
class ClockSummary:
    """One clock over many tickets, in seconds.

    ``None`` where no ticket ran it: a wait of zero is a measured 0.0, and is not the same.

    Attributes:
        mean: Exact.
        p50: Within 1/32 of the exact one, as ``p95``.
        p95: Nearest rank.
        max: Exact.
    """

    mean: float | None
    p50: float | None
    p95: float | None
    max: float | None


@attrs.frozen
class ReportRow:
    """One group of tickets.

    Attributes:
        group: What they have in common.
        calls: Provider calls made for them: attempts, retries included.
        tickets: Tickets opened.
        queued: Of these, waiting now.
        in_flight: Of these, out now.
        failures: Of these, failed.
        outcomes: Of these, settled, by word; words that did not happen are left out.
        queue_wait: Over every settled ticket, those that gave up waiting included: without them the survivors
            would hide the worst waits.
        provider_time: Over the settled tickets that were dispatched, as ``retry_wait``.
        retry_wait: Slept between attempts.
        last_seen: When one of them was last opened or settled, in seconds since the epoch.
    """

    group: Group
    calls: int
    tickets: int
    queued: int
    in_flight: int
    failures: int
    outcomes: Mapping[str, int]
    queue_wait: ClockSummary
    provider_time: ClockSummary
    retry_wait: ClockSummary
    last_seen: float

    def as_json(self) -> dict[str, Any]:
        """The row as ``status --json`` prints it: group and figures side by side."""
        figures = attrs.asdict(self, recurse=True)
        group = figures.pop("group")
        group["class"] = group.pop("priority")
        return {**group, **figures}


class Tally:
    """A group's figures, while they grow. The ledger adds to it at each event and keeps no ticket for it."""

    __slots__ = (
        "calls",
        "group",
        "in_flight",
        "last_seen",
        "outcomes",
        "provider",
        "queued",
        "retry",
        "wait",
    )

    def __init__(self, group: Group) -> None:
        self.group = group
        self.calls = 0
        self.queued = 0
        self.in_flight = 0
        self.last_seen = 0.0
        self.outcomes: dict[str, int] = {}
        self.wait = Histogram()
        self.provider = Histogram()
        self.retry = Histogram()

    def settle(self, outcome: str, clocks: Clocks | None, dispatched: bool) -> None:
        """Count an ended ticket, taken out of ``queued`` or ``in_flight``; ``clocks`` where they were measured."""
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        if clocks is None:
            return
        self.wait.add(clocks.queue_wait)
        if dispatched:
            self.provider.add(clocks.provider_time)
            self.retry.add(clocks.retry_wait)

    def report(self) -> ReportRow:
        """The figures as they stand."""
        return ReportRow(
            group=self.group,
            calls=self.calls,
            tickets=self.queued + self.in_flight + sum(self.outcomes.values()),
            queued=self.queued,
            in_flight=self.in_flight,
            failures=self.outcomes.get("failed", 0),
            outcomes=dict(sorted(self.outcomes.items())),
            queue_wait=_summary(self.wait),
            provider_time=_summary(self.provider),
            retry_wait=_summary(self.retry),
            last_seen=self.last_seen,
        )


def report_rows(tallies: Iterable[Tally]) -> tuple[ReportRow, ...]:
    """The rows of ``tallies``, sorted by group."""
    return tuple(sorted((tally.report() for tally in tallies), key=_by_group))


def _by_group(row: ReportRow) -> tuple[str, ...]:
    return attrs.astuple(row.group)


def _summary(histogram: Histogram) -> ClockSummary:
    return ClockSummary(
        mean=histogram.mean,
        p50=histogram.quantile(0.50),
        p95=histogram.quantile(0.95),
        max=histogram.longest if histogram.count else None,
    )
