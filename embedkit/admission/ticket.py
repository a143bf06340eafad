"""A ticket: one piece of work waiting for, or using, an engine. It is a cancel scope with a place in a lane.

The caller waits inside ``ticket.scope``. Whatever cancels that wait runs the lane's abort function, which takes the
ticket out in the same synchronous step; nothing has to notice later. A ticket's state is its own: trio's flags only
trigger changes of it, since merely reading ``scope.cancel_called`` can cancel a scope whose deadline has passed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import attrs
import trio

from embedkit.clocks import ZERO, Clocks

if TYPE_CHECKING:
    from embedkit.activity.rows import TicketRow
    from embedkit.admission.circuit import Circuit
    from embedkit.admission.lane import Lane
    from embedkit.admission.slot import Slot
    from embedkit.errors import EmbedkitError

Priority = Literal["interactive", "batch", "probe"]
# Where a ticket is. It moves along this list, may skip ``in-flight``, and never moves back.
State = Literal["new", "queued", "in-flight", "settled"]
TimeoutHook = Callable[[Exception], object]


@attrs.frozen
class Ids:
    """What the ledger should know of a ticket, and nothing decides by: names, never texts, vectors or keys."""

    service: str = "library"
    stage: str = "query"
    role: str = "embedding"
    run: str | None = None


def _positive(_: object, field: attrs.Attribute[Any], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{field.name} must be a positive whole number, not {value!r}")


# The lane writes to its fields a dozen times a call: they are checked once, when it is made.
@attrs.define(eq=False, on_setattr=attrs.setters.NO_OP)
class Ticket:
    """One piece of work for an engine.

    Attributes:
        priority: ``interactive`` (somebody waits), ``batch``, or ``probe``.
        weight: How many of the lane's units the work takes while it is in flight.
        inputs: How many texts it carries, for the ledger.
        tenant: Whose it is; batch work is shared fairly between tenants.
        timeout: Seconds one attempt may take, from dispatch to the last byte. ``None``: no limit.
        limit_name: Which setting gave ``timeout``, for the error that says so.
        deadline_at: Instant (``trio.current_time()``) by which the caller wants an answer, queue and retries included.
        circuit: The run's circuit; when it trips while the ticket is queued, the ticket is shed.
        on_provider_timeout: Called once, synchronously, if the ticket's final failure is a provider timeout.
        ids: What the ledger should know.
        scope: The caller waits inside it. Cancelling it withdraws the ticket.
        clocks: The three times, once the ticket is settled.
        attempts: Provider calls made so far.
    """

    priority: Priority = "interactive"
    weight: int = attrs.field(default=1, validator=_positive)
    inputs: int = 1
    tenant: str | None = None
    timeout: float | None = None
    limit_name: str | None = None
    deadline_at: float = math.inf
    circuit: Circuit | None = None
    on_provider_timeout: TimeoutHook | None = None
    ids: Ids = Ids()

    scope: trio.CancelScope = attrs.field(
        init=False,
        repr=False,
        default=attrs.Factory(lambda self: trio.CancelScope(deadline=self.deadline_at), takes_self=True),
    )
    clocks: Clocks = attrs.field(init=False, default=ZERO)
    attempts: int = attrs.field(init=False, default=0)

    # The lane's, from here on.
    state: State = attrs.field(init=False, default="new")
    lane: Lane[Any] | None = attrs.field(init=False, repr=False, default=None)
    call: Callable[[Any], Any] | None = attrs.field(init=False, repr=False, default=None)
    # The parked caller; None once it has left (detached) or has been given its outcome.
    caller: trio.lowlevel.Task | None = attrs.field(init=False, repr=False, default=None)
    # Why the caller left, where its ticket's own scope made it leave.
    parting: EmbedkitError | None = attrs.field(init=False, repr=False, default=None)
    row: TicketRow | None = attrs.field(init=False, repr=False, default=None)
    offered_at: float = attrs.field(init=False, default=0.0)
    dispatched_at: float = attrs.field(init=False, default=0.0)
    retry_wait: float = attrs.field(init=False, default=0.0)
    # Whether its call was told to end: the caller has left, and the lane's kind closes the transport then.
    aborted: bool = attrs.field(init=False, default=False)
    slot: Slot | None = attrs.field(init=False, repr=False, default=None)
    # Around a sleep between attempts, while there is one.
    pause: trio.CancelScope | None = attrs.field(init=False, repr=False, default=None)
    paused_at: float | None = attrs.field(init=False, default=None)

    def abort_call(self) -> None:
        """End the call that is out: close its transport, or end the sleep before its next attempt."""
        assert self.slot is not None
        self.aborted = True
        if self.pause is not None:
            self.pause.cancel()
        else:
            self.slot.cut()

    def measure(self, now: float) -> Clocks:
        """The three times of a ticket that ends at ``now``: each second is in exactly one of them."""
        if self.state == "in-flight":
            retry_wait = self.retry_wait + (0.0 if self.paused_at is None else now - self.paused_at)
            return Clocks(self.dispatched_at - self.offered_at, now - self.dispatched_at - retry_wait, retry_wait)
        return Clocks(now - self.offered_at, 0.0, 0.0)
