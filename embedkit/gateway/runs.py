"""Runs that share a circuit: many clients, on whatever machines, that name the same run.

The first final provider timeout of a run opens its circuit: its queued requests are shed in that step, before anybody
else is dispatched, and later ones are refused. A run is known from its first request until ten minutes after its last.
Nothing polls: those whose time has passed are dropped when a run is asked for.
"""

from __future__ import annotations

import attrs

from embedkit.admission.circuit import Circuit

FORGOTTEN_AFTER = 600.0
_MOST = 100_000

Key = tuple[str | None, str]


@attrs.define(eq=False)
class Run:
    """One run.

    Attributes:
        circuit: Its switch.
        requests: How many are here now.
        last_at: Instant at which one last came or went.
    """

    circuit: Circuit = attrs.field(factory=Circuit)
    requests: int = 0
    last_at: float = 0.0


class Runs:
    """The runs that are known, each within its tenant: nobody closes another's."""

    def __init__(self) -> None:
        # In the order of ``last_at``.
        self._runs: dict[Key, Run] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def enter(self, tenant: str | None, name: str, now: float) -> Run:
        """A request of the run has come; the run is known from now on, if it was not before."""
        self._forget(now)
        key = (tenant, name)
        run = self._runs.pop(key, None) or Run()
        run.requests += 1
        run.last_at = now
        self._runs[key] = run
        return run

    def leave(self, tenant: str | None, name: str, run: Run, now: float) -> None:
        """A request of the run has ended."""
        run.requests -= 1
        run.last_at = now
        key = (tenant, name)
        if self._runs.get(key) is run:  # else it was deleted meanwhile
            self._runs[key] = self._runs.pop(key)

    def forget(self, tenant: str | None, name: str) -> bool:
        """Forget the run, whose next request begins it anew; whether it was known. Requests that are here go on."""
        return self._runs.pop((tenant, name), None) is not None

    def open_circuits(self) -> list[tuple[Key, Run]]:
        """The runs whose circuit is open."""
        return [(key, run) for key, run in self._runs.items() if run.circuit.is_open]

    def _forget(self, now: float) -> None:
        while self._runs:
            key, oldest = next(iter(self._runs.items()))
            if oldest.requests or (oldest.last_at + FORGOTTEN_AFTER > now and len(self._runs) < _MOST):
                return
            del self._runs[key]
