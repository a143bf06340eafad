"""A sweep's report for people."""

from __future__ import annotations

from collections.abc import Mapping

from embedkit.sweep.outcome import RepositoryReport, SweepReport

_NAMED = 5  # documents

_STATUS = {
    "completed": "done",
    "partial": "clean so far; work is left",
    "deferred": "work is left, and nothing failed",
    "starved": "nothing is due, and some repositories never succeeded",
    "failed": "something failed",
    "aborted": "interrupted; what was stored stays, and the next sync goes on from there",
}


_WORK_LEFT = frozenset({"partial", "deferred", "starved", "failed", "aborted"})


def report_text(report: SweepReport, *, list_left_out: bool = False, go_on: str | None = None) -> str:
    """One line or two a repository, the circuit if it tripped, and the status; every file left out if asked for.

    Args:
        report: What came of the run.
        list_left_out: Name every file that is left out.
        go_on: The command that goes on at once, shown where work is left.
    """
    lines: list[str] = []
    for repository in report.repositories:
        lines += _lines(repository)
        if list_left_out:
            lines += [f"    {item.reason}: {item.path}" for item in repository.left_out]
    if report.circuit is not None:
        trip = report.circuit
        lines.append(
            f"circuit of {trip.provider} opened by {trip.tenant}/{trip.name} ({trip.code}); "
            f"{counted(trip.shed, 'queued ticket')} shed"
        )
    lines.append(f"sync {report.status}: {_STATUS[report.status]}")
    if go_on is not None and report.status in _WORK_LEFT:
        lines.append(f"  go on at once: {go_on}")
    return "\n".join(lines) + "\n"


def _lines(report: RepositoryReport) -> list[str]:
    name = f"{report.tenant}/{report.name}"
    if report.outcome == "not-due":
        wait = f" for {_time(report.next_due_in)}" if report.next_due_in else ""
        return [f"{name}: not due{wait}{_before(report)}"]
    did = [f"{counted(report.embedded, 'vector')} bought"]
    did += [f"{number:,} {word}" for number, word in ((report.reused, "reused"), (report.deleted, "removed")) if number]
    rate = f" ({report.embedded / report.elapsed:,.0f} a second)" if report.embedded and report.elapsed > 0 else ""
    lines = [
        f"{name}: {report.outcome}; {counted(report.documents, 'document')}, {counted(report.chunks, 'chunk')}; "
        f"{', '.join(did)}, {counted(report.provider_calls, 'call')} in {_time(report.elapsed)}{rate}"
    ]
    if report.fenced:
        where = fenced_text(report.fenced_in)
        lines.append(
            f"  fenced: {counted(report.fenced, 'chunk')} that the engine refuses ({where}); the rest is stored"
        )
    skipped = [f"{count:,} {reason}" for reason, count in sorted(report.skipped.items()) if count]
    if skipped:
        lines.append(f"  left out: {', '.join(skipped)}")
    if report.recoded:
        recoded = [f"{count:,} from {encoding}" for encoding, count in sorted(report.recoded.items())]
        lines.append(f"  decoded: {', '.join(recoded)}")
    if report.reason is not None:
        lines.append(f"  why: {report.reason} [{report.code}]")
    if report.outcome in ("deferred", "failed") and report.next_due_in:
        lines.append(f"  due: in {_time(report.next_due_in)}")
    if report.outstanding and report.outcome != "complete":
        lines.append(f"  outstanding: {counted(report.outstanding, 'document')}")
    return lines


def _before(report: RepositoryReport) -> str:
    """How the last attempt ended, where it left work."""
    last = report.last
    if last is None or last.outcome == "complete":
        return ""
    return f"; last {last.outcome}" + (f": {last.reason} [{last.code}]" if last.reason is not None else "")


def fenced_text(fenced_in: Mapping[str, int]) -> str:
    """The first documents that fences leave something out of, and how to try again."""
    named = [f"{path}: {count}" for path, count in list(fenced_in.items())[:_NAMED]]
    more = [f"{len(fenced_in) - _NAMED:,} more"] if len(fenced_in) > _NAMED else []
    return ", ".join([*named, *more]) + "; `embedkit sync --retry-fenced` offers them again"


def counted(number: int, thing: str) -> str:
    """``1 chunk``, ``2,000 chunks``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
