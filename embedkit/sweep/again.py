"""Whether a repository that is not due goes all the same, when a person says "run it again". Pure.

Backoff is for a schedule that asks every minute. A person who reads why something failed, mends it and runs the same
command means it. So a first failure is tried again at once, and what was put off for want of an engine is tried
unless a probe of this moment finds it down; a second failure in a row, and work that timed out, wait for their time or
for ``--all``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from embedkit.errors import ProviderTimeout, durable_code

if TYPE_CHECKING:
    from embedkit.knowledge.storing.repositories import RepositoryRecord

Again = Literal["now", "if the engine is well", "when due"]

_TIMED_OUT = durable_code(ProviderTimeout.code)


def again(record: RepositoryRecord) -> Again:
    """When a repository that is not due may go, in a run that a person asked for."""
    last = record.last
    if last is None:
        return "now"
    if last.outcome == "deferred" and last.code != _TIMED_OUT:
        return "if the engine is well"
    if last.outcome == "failed" and record.streak <= 1:
        return "now"
    return "when due"
