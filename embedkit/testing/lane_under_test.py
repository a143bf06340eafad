"""What the law suite needs of a lane: little, so that a lane need not be ours to be held to the laws."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol

import trio

from embedkit import Ledger, Retry, Ticket

Settlement = Literal["provider", "queue"]
"""Which settlement a lane's kind declares (law 2).

``provider``: the end of the provider call, though its caller has long gone. ``queue``: the final outcome of the lane's
own task; a caller's leaving ends the call, and the closed transport is the settlement.
"""

Feature = Literal["tenants", "weights", "reserve"]
"""What a lane may say that it does not have: fair shares of tenants, tickets of more than one unit, a reserve for
people."""

SETTLEMENTS: tuple[Settlement, ...] = ("provider", "queue")
FEATURES: tuple[Feature, ...] = ("tenants", "weights", "reserve")


class TotalsUnderTest(Protocol):
    """The words of law 6, as counts since the lane began. ``embedkit.Totals`` has them."""

    @property
    def offered(self) -> int:
        """Tickets ever offered."""
        ...

    @property
    def queued(self) -> int:
        """Waiting now, for a slot or for room."""
        ...

    @property
    def in_flight(self) -> int:
        """Dispatched and not settled."""
        ...

    @property
    def succeeded(self) -> int:
        """Settled with an answer."""
        ...

    @property
    def failed(self) -> int:
        """Settled with an error of the call."""
        ...

    @property
    def withdrawn(self) -> int:
        """Left the queue by a cancellation or a deadline."""
        ...

    @property
    def shed(self) -> int:
        """Taken out of the queue by a circuit or the lane's closing."""
        ...

    @property
    def aborted(self) -> int:
        """Settled by closing the transport, since the caller had left."""
        ...

    @property
    def unsettled(self) -> int:
        """Cut off by the end of the engine's nursery."""
        ...


class StatisticsUnderTest(Protocol):
    """A lane at one instant."""

    @property
    def totals(self) -> TotalsUnderTest:
        """Law 6."""
        ...


class LaneUnderTest(Protocol):
    """A lane, ours or a user's. ``LaneBase`` keeps most of this for a lane that has none of it.

    Besides these methods, a lane keeps its word about the ticket: it fills ``ticket.clocks`` and ``ticket.attempts``,
    gives its errors ``clocks`` and ``attribution``, and obeys ``weight``, ``priority``, ``tenant``, ``timeout``,
    ``deadline_at``, ``scope`` (cancelling it withdraws the ticket), ``circuit`` and ``on_provider_timeout``.

    Two methods more are used where they are there:

    - ``run_nowait(call, ticket)``: as ``embedkit.Lane.run_nowait``; it refuses with ``LaneFull`` where ``run`` waits.
    - ``refresh()``: the capacity has changed. Such a lane is made with a capacity that is a callable.
    """

    async def run(self, call: Callable[[Any], Awaitable[Any]], ticket: Ticket) -> Any:
        """As ``embedkit.Lane.run``: wait for a slot, make the call, return what it returned.

        Cancellation:
            Laws 1 and 2.
        """
        ...

    def statistics(self) -> StatisticsUnderTest:
        """The lane at this instant."""
        ...

    def close(self) -> None:
        """Take nothing more; shed what is queued with ``LaneClosed``."""
        ...


class MakeLane(Protocol):
    """Makes the lane that is to be tested."""

    def __call__(
        self,
        nursery: trio.Nursery,
        *,
        capacity: Any,
        reserve: int,
        lead: float,
        batch_share: float,
        max_queued: int,
        retry: Retry,
        ledger: Ledger,
    ) -> LaneUnderTest:
        """A new lane, whose tasks run in ``nursery``.

        Args:
            nursery: The engine's.
            capacity: Units in flight at once: an int; for a lane that has ``refresh``, a callable that returns one.
            reserve: Units that batch and probe work leave free.
            lead: Seconds of engine time that people may be ahead of batch work, and batch work of probes.
            batch_share: The share of batch work; that of people is 1.
            max_queued: Tickets of one tenant and class that may wait inside.
            retry: Which failures are followed by another attempt.
            ledger: To be told, by lanes that keep one.
        """
        ...
