"""A ticket: one piece of work for an engine, as its maker describes it. It is a cancel scope with a place in a lane.

The caller waits inside ``ticket.scope``. Whatever cancels that wait runs the lane's abort function, which takes the
ticket out in the same synchronous step; nothing has to notice later. What the ticket passes through is a ``Passage``,
which the lane keeps to itself: here stands only what the maker put in, and what a caller may want to read.

A ticket is checked when it is made, and once more when it is offered; what a lane counts by is its own copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs
import trio

from embedkit.admission.waiting import CLASSES, Priority
from embedkit.clocks import ZERO, Clocks

if TYPE_CHECKING:
    from embedkit.admission.circuit import Circuit

_KNOWN: frozenset[object] = frozenset(CLASSES)
TimeoutHook = Callable[[Exception], object]


@attrs.frozen
class Ids:
    """What the ledger should know of a ticket, and nothing decides by: names, never texts, vectors or keys."""

    service: str = "library"
    stage: str = "query"
    role: str = "embedding"
    run: str | None = None


NO_IDS = Ids()


# Not frozen: that would cost a call through a lane a twentieth.
@attrs.define(eq=False)
class Ticket:
    """One piece of work for an engine. Offered once.

    Attributes:
        priority: ``interactive`` (somebody waits), ``batch``, or ``probe``.
        weight: How many of the lane's units the work takes while it is in flight.
        inputs: How many texts it carries, for the ledger.
        tenant: Whose it is; the engine's time is shared fairly between the tenants of a class.
        timeout: Seconds one attempt may take, from dispatch to the last byte. ``None``: no limit.
        limit_name: Which setting gave ``timeout``, for the error that says so.
        deadline_at: Instant (``trio.current_time()``) by which the caller wants an answer, queue and retries included.
        circuit: The run's circuit; when it trips while the ticket is queued, the ticket is shed.
        on_provider_timeout: Called once, synchronously, if the ticket's final failure is a provider timeout.
        ids: What the ledger should know.
        scope: The caller waits inside it. Cancelling it withdraws the ticket; a deadline of its own counts as
            ``deadline_at`` does.
        clocks: The three times, once the ticket is settled. Written by its lane.
        attempts: Provider calls made so far. Written by its lane.

    Raises:
        ValueError: A value that no lane could use.
    """

    priority: Priority = "interactive"
    weight: int = 1
    inputs: int = 1
    tenant: str | None = None
    timeout: float | None = None
    limit_name: str | None = None
    deadline_at: float = math.inf
    circuit: Circuit | None = None
    on_provider_timeout: TimeoutHook | None = None
    ids: Ids = NO_IDS

    scope: trio.CancelScope = attrs.field(init=False, repr=False)
    clocks: Clocks = attrs.field(init=False, default=ZERO)
    attempts: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        check(self)
        self.scope = trio.CancelScope(deadline=self.deadline_at)


def check(ticket: Ticket) -> None:
    """Refuse a ticket with a value that no lane could use.

    Raises:
        ValueError: It has one.
    """
    # One look at all of it: a validator for each field would cost a call through a lane a fortieth.
    try:
        is_fine = (
            ticket.priority in _KNOWN
            and type(ticket.weight) is int
            and ticket.weight > 0
            and (ticket.tenant is None or isinstance(ticket.tenant, str))  # type: ignore[redundant-expr]
            and (ticket.timeout is None or ticket.timeout > 0)
            and ticket.deadline_at <= math.inf  # which NaN is not
        )
    except TypeError:
        is_fine = False
    if not is_fine:
        _refuse(ticket)


def _refuse(ticket: Ticket) -> None:
    """Say which of a ticket's values no lane could use."""
    weight, tenant = ticket.weight, ticket.tenant
    faults = (
        ("priority", ticket.priority not in CLASSES, f"one of {', '.join(CLASSES)}"),
        ("weight", type(weight) is not int or weight < 1, "a positive whole number"),
        ("tenant", tenant is not None and not isinstance(tenant, str), "a string, or None"),
        ("timeout", not _is_limit(ticket.timeout), "a positive number of seconds"),
        ("deadline_at", True, "an instant of trio's clock"),
    )
    name, wanted = next((name, wanted) for name, is_fault, wanted in faults if is_fault)
    raise ValueError(f"a ticket's {name} must be {wanted}, not {getattr(ticket, name)!r}")


def _is_limit(value: object) -> bool:
    """Whether an attempt may be limited so: a positive number of seconds, or ``None``."""
    return value is None or (isinstance(value, int | float) and value > 0)
