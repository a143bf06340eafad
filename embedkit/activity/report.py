"""Reports over the ledger: how many tickets there were, how they ended, and how long each clock ran.

Reports from memory and from disk have the same shape. A *tally* adds up the tickets of one group while they happen. A
*report row* is a snapshot of a tally.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from embedkit.activity.histogram import Histogram
from embedkit.clocks import Clocks


@attrs.frozen
class Group:
    """What reports are grouped by. ``priority`` is the priority class."""

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

    ``None`` if no ticket ran it. That is not the same as a wait of zero, which is a measured 0.0.

    Attributes:
        mean: Exact.
        p50: Nearest rank, within 1/32 of the exact value.
        p95: As ``p50``.
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
        group: What the tickets have in common.
        calls: Provider calls made for them, retries included.
        tickets: Tickets that were opened.
        queued: Tickets that are waiting now.
        in_flight: Tickets that are out now.
        failures: Tickets that failed.
        outcomes: The number of settled tickets for each outcome that occurred.
        queue_wait: Over every settled ticket, including those that gave up waiting: without them the worst waits
            would not be seen.
        provider_time: Over the settled tickets that were dispatched.
        retry_wait: Time slept between attempts, over the settled tickets that were dispatched.
        last_seen: When one of the tickets was last opened or settled, in seconds since the epoch.
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
        """The row as ``status --json`` prints it: the group's keys, then the figures."""
        figures = attrs.asdict(self, recurse=True)
        group = figures.pop("group")
        group["class"] = group.pop("priority")
        return {**group, **figures}


class Tally:
    """A group's figures while they grow. The ledger adds to it at each event; no ticket is kept for it."""

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
        """Count an ended ticket, already taken out of ``queued`` or ``in_flight``.

        Args:
            outcome: How it ended.
            clocks: Its times, or ``None`` if they were not measured.
            dispatched: Whether it was in flight.
        """
        try:
            self.outcomes[outcome] += 1
        except KeyError:
            self.outcomes[outcome] = 1
        if clocks is None:
            return
        self.wait.add(clocks.queue_wait)
        if dispatched:
            self.provider.add(clocks.provider_time)
            if clocks.retry_wait:
                self.retry.add(clocks.retry_wait)
            else:
                self.retry.zeros += 1

    def report(self) -> ReportRow:
        """A snapshot."""
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
