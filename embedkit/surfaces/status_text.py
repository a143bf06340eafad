"""A status for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from embedkit.activity.process import this_process
from embedkit.knowledge.storing.repositories import RepositoryRecord
from embedkit.surfaces.folders import TENANT
from embedkit.surfaces.probe_command import verdict_text
from embedkit.surfaces.report_text import fenced_text

if TYPE_CHECKING:
    from embedkit.activity.report import ReportRow
    from embedkit.surfaces.status_command import Status


MOST_SHOWN: Final = 20


def status_text(status: Status, *, shows_all: bool = False) -> str:
    """Repositories, lanes, and what happened.

    Args:
        status: What was found.
        shows_all: Every repository; else, where there are more than ``MOST_SHOWN``, those in trouble alone.
    """
    access = status.access()
    settings = status.settings
    parts = [
        f"store: {settings.store.path}; settings: {settings.file or 'no file'}",
        f"{_count(access['ready'], 'repository', 'repositories')} ready, {access['degraded']} degraded",
        *_repositories(status, shows_all=shows_all),
        *(f"settings: {error}" for error in status.config()["errors"]),
        "",
        "lanes, as every process that uses this store wrote them down (a lane governs one process only):",
        *(line for lane in status.lanes() for line in _lane(lane)),
        *(f"  {name}: remote, without a lane; in flight {count}" for name, count in status.unqueued().items()),
        f"probe: {'nobody has asked yet' if status.probe is None else verdict_text(status.probe)}",
        "",
        *_table(status.activity),
    ]
    return "\n".join(parts) + "\n"


def _repositories(status: Status, *, shows_all: bool) -> list[str]:
    """A line each; of many those in trouble, the longest first, and how many the others are."""
    if shows_all or len(status.repositories) <= MOST_SHOWN:
        return [_repository(record, status) for record in status.repositories]
    troubled = [record for record in status.repositories if status.is_in_trouble(record)]
    troubled.sort(key=lambda record: (-record.streak, record.tenant, record.name))
    shown = [_repository(record, status) for record in troubled[:MOST_SHOWN]]
    more = len(troubled) - len(shown)
    well = len(status.repositories) - len(troubled)
    return [
        *shown,
        *([f"  and {more:,} more in trouble: `embedkit status --trouble` shows them"] if more else []),
        f"  {_count(well, 'repository is', 'repositories are')} well: `embedkit status --tenant NAME` shows a tenant's",
    ]


def _repository(record: RepositoryRecord, status: Status) -> str:
    revision = "nothing stored whole yet" if record.revision is None else f"at {record.revision[:12]}"
    text = f"  {record.tenant}/{record.name}: {revision}"
    last = record.last
    if last is not None:
        text += f", last {last.outcome}"
        text += f" {_ago(status.at - last.at)}" if status.is_in_trouble(record) else ""
        text += f" ({last.code}: {last.reason})" if last.code is not None else ""
    if record.outstanding:
        text += f", {_count(record.outstanding, 'document')} outstanding"
    if record.streak:
        text += f", {_count(record.streak, 'failure')} in a row"
    if record.next_due_at is not None:
        wait = record.next_due_at - status.at
        text += ", due now" if wait <= 0 else f", due in {wait / 60:.0f} min"
    if status.fenced.get(record.id):
        fenced = status.fenced[record.id]
        text += f", {_count(sum(fenced.values()), 'chunk')} fenced ({fenced_text(fenced)})"
    if status.is_source_gone(record) and record.tenant != TENANT:
        text += f"; {record.root} is not there: what is stored is kept until it is back"
    if status.is_left_over(record):
        where = "its folder is gone" if record.tenant == TENANT else "no settings name it"
        text += f"; {where}: `embedkit forget --tenant {record.tenant} --repository {record.name}` removes it"
    return text


def _ago(seconds: float) -> str:
    if seconds < 5400:
        return f"{max(seconds, 0.0) / 60:.0f} min ago"
    return f"{seconds / 3600:.0f} h ago" if seconds < 172_800 else f"{seconds / 86_400:.0f} days ago"


def _count(number: int, one: str, several: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def _lane(lane: dict[str, Any]) -> Iterator[str]:
    yield (
        f"  {lane['provider']}: capacity {lane['capacity']}, in flight {lane['in_flight']}, "
        f"waiting {lane['waiting'] or 'nobody'}"
    )
    here = this_process().host
    for process in lane["processes"]:
        where = f"{process['pid']} on {process['host']}" if process["host"] != here else process["pid"]
        # A lane is written down when it changes, so an old snapshot is no stale one.
        since = f" (unchanged for {process['age'] / 60:.0f} min)" if process["age"] >= 60 else ""
        yield f"    process {where}: {process['turn'] or 'written by another version of embedkit'}{since}"


def _table(rows: Sequence[ReportRow]) -> list[str]:
    """The ledger's table: a line a group, times in seconds as mean/p95/max."""
    head = ("stage", "provider", "class", "tickets", "calls", "failed", "queue wait", "provider time", "retry wait")
    lines = [
        (
            row.group.stage,
            row.group.provider,
            row.group.priority,
            str(row.tickets),
            str(row.calls),
            str(row.failures),
            *(
                "/".join("-" if value is None else f"{value:.3f}" for value in (clock.mean, clock.p95, clock.max))
                for clock in (row.queue_wait, row.provider_time, row.retry_wait)
            ),
        )
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in (head, *lines)]
