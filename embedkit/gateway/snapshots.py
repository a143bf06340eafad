"""The gateway at one instant, for the page, for ``embedkit top`` and for ``/embedkit/status``.

Names and numbers: no text, no vector and no key is in it.
"""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING, Any

import trio

from embedkit.admission.snapshot import snapshot_of as lane_snapshot_of
from embedkit.errors import EmbedkitError

if TYPE_CHECKING:
    from embedkit.gateway.catalogue import Served
    from embedkit.gateway.shared import Shared

_WAITING_SHOWN = 50
_RUNS_SHOWN = 20


def snapshot_of(shared: Shared, *, with_past: bool = False) -> dict[str, Any]:
    """All that is shown, as JSON.

    Args:
        shared: The gateway.
        with_past: Two minutes of each lane as well.
    """
    now = trio.current_time()
    here = list(shared.journal.here())
    lanes = []
    for served in shared.catalogue.served.values():
        of_lane = [entry for entry in here if entry.provider == served.provider]
        out = [entry.as_json(now) for entry in of_lane if entry.dispatched_at is not None]
        waiting = [entry for entry in of_lane if entry.dispatched_at is None]
        lanes.append(
            {
                **_lane(shared, served),
                "slots": out,
                "waiting": [entry.as_json(now) for entry in waiting[:_WAITING_SHOWN]],
                "waiting_more": max(len(waiting) - _WAITING_SHOWN, 0),
                **({"past": shared.past.of(served.provider, now)} if with_past else {}),
            }
        )
    return {
        "at": time.time(),
        "started_at": shared.started_at,
        "is_closing": shared.is_closing,
        "lanes": lanes,
        "runs": [_run(tenant, name, run.circuit.cause) for (tenant, name), run in islice(_open(shared), _RUNS_SHOWN)],
        "last": [entry.as_json(now) for entry in shared.journal.last()],
    }


def _open(shared: Shared) -> Any:
    return iter(shared.runs.open_circuits())


def _lane(shared: Shared, served: Served) -> dict[str, Any]:
    lane = shared.engine.lane(served.provider)
    statistics = lane.statistics()
    return {
        "provider": served.provider,
        "kind": served.kind,
        "model": served.model,
        "engine": shared.upstream(served.provider).endpoint.peer,
        "verdict": shared.engine.probes.verdict(served.provider).as_json(),
        "mean_seconds": shared.journal.mean_seconds(served.provider),
        "longest_wait": statistics.longest_wait,
        "tickets_in_flight": statistics.tickets_in_flight,
        **lane_snapshot_of(statistics).as_json(),
    }


def _run(tenant: str | None, name: str, cause: Exception | None) -> dict[str, Any]:
    code = cause.durable_code if isinstance(cause, EmbedkitError) else None
    return {"tenant": tenant, "run": name, "code": code, "cause": " ".join(str(cause).split())}
