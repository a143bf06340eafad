"""What came of a repository, and of a run. Pure: words decided from errors.

============================================  ==========  =======  ====================
outcome                                       checkpoint  streak   next
============================================  ==========  =======  ====================
complete                                      to head     0        at its cadence
partial-progress (slice spent, clean)         held        0        next sweep
deferred (every error deferrable)             held        held     backoff does not grow
failed (any error not deferrable)             held        +1       backoff grows
aborted (lease lost, cancelled)               held        held     unchanged
============================================  ==========  =======  ====================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import attrs

from embedkit.clocks import ZERO, Clocks
from embedkit.errors import DeadlineExceeded, EmbedkitError, LaneClosed, ProviderCircuitOpen

if TYPE_CHECKING:
    from embedkit.knowledge.sources.source import LeftOut
    from embedkit.knowledge.storing.repositories import Last

Outcome = Literal["complete", "partial-progress", "deferred", "failed", "aborted", "not-due"]
Status = Literal["completed", "partial", "deferred", "starved", "failed", "aborted"]


@attrs.frozen
class RepositoryReport:
    """What one run did for one repository; see the documentation of ``sync --json`` for each field.

    Attributes:
        succeeded: Whether any run of it ever completed.
        left_out: Every file that is left out, with the reason.
        fenced_in: Chunks that fences leave out, by the path of the document.
        last: How the repository's last attempt ended: this one, or where nothing was tried the one before.
        recoded: Documents that were in another encoding than UTF-8, by encoding.
    """

    tenant: str
    name: str
    outcome: Outcome
    code: str | None = None
    reason: str | None = None
    attribution: str | None = None
    revision: str | None = None
    documents: int = 0
    skipped: Mapping[str, int] = attrs.field(factory=dict)
    chunks: int = 0
    embedded: int = 0
    reused: int = 0
    deleted: int = 0
    fenced: int = 0
    provider_calls: int = 0
    clocks: Clocks = ZERO
    elapsed: float = 0.0
    next_due_in: float | None = None
    outstanding: int = 0
    succeeded: bool = True
    left_out: Sequence[LeftOut] = ()
    fenced_in: Mapping[str, int] = attrs.field(factory=dict)
    recoded: Mapping[str, int] = attrs.field(factory=dict)
    last: Last | None = None

    def as_json(self) -> dict[str, Any]:
        """As ``sync --json`` prints it."""
        shown = attrs.asdict(self, filter=lambda field, _: field.name != "succeeded")
        last = self.last
        return {
            **shown,
            "last": None if last is None else {"outcome": last.outcome, "code": last.code, "reason": last.reason},
            "clocks": self.clocks.as_json(),
            "skipped": {reason: count for reason, count in self.skipped.items() if count},
        }


@attrs.frozen
class Trip:
    """That the run's circuit tripped.

    Attributes:
        provider: Whose timeout.
        code: The cause's durable code.
        tenant: Of the repository whose ticket timed out.
        name: That repository.
        shed: Queued tickets that were shed.
    """

    provider: str
    code: str
    tenant: str
    name: str
    shed: int

    def as_json(self) -> dict[str, Any]:
        """As ``sync --json`` prints it."""
        tripped_by = {"tenant": self.tenant, "name": self.name}
        return {"provider": self.provider, "code": self.code, "tripped_by": tripped_by, "shed": self.shed}


@attrs.frozen
class SweepReport:
    """What one run did.

    Attributes:
        run: Its id.
        status: One word for all of it.
        circuit: That it tripped, if it did.
        repositories: In the order of the settings.
    """

    run: str
    status: Status
    circuit: Trip | None
    repositories: Sequence[RepositoryReport]

    def as_json(self) -> dict[str, Any]:
        """As ``sync --json`` prints it."""
        return {
            "run": self.run,
            "status": self.status,
            "circuit": self.circuit.as_json() if self.circuit is not None else None,
            "repositories": [repository.as_json() for repository in self.repositories],
        }


def is_deferrable(error: EmbedkitError) -> bool:
    """Whether the work is put off, rather than counted as the repository's own failure."""
    if isinstance(error, DeadlineExceeded):
        return error.attribution == "queue"
    return error.deferrable


def deciding(errors: Sequence[EmbedkitError]) -> EmbedkitError | None:
    """The error that stands for all: one that is not deferrable, else one that is not the circuit's, else any."""

    def telling(error: EmbedkitError) -> tuple[bool, bool]:
        return is_deferrable(error), isinstance(error, ProviderCircuitOpen)

    return min(errors, key=telling, default=None)


def outcome_of(errors: Sequence[EmbedkitError], *, sliced: bool, outstanding: int) -> Outcome:
    """The word for a repository whose work ended by itself."""
    error = deciding(errors)
    if error is not None:
        if error.code == "KB_REPOSITORY_LEASED" or isinstance(error, LaneClosed):
            return "aborted"
        return "deferred" if is_deferrable(error) else "failed"
    return "partial-progress" if sliced or outstanding else "complete"


def status_of(reports: Iterable[RepositoryReport]) -> Status:
    """One word for a run; the worst that happened."""
    reports = list(reports)
    words = {report.outcome for report in reports}
    if "aborted" in words:
        return "aborted"
    if "failed" in words:
        return "failed"
    if "deferred" in words:
        return "deferred"
    if "partial-progress" in words:
        return "partial"
    if words == {"not-due"} and not all(report.succeeded for report in reports):
        return "starved"
    return "completed"
