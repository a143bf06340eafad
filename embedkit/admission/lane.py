"""A lane: a capacity-limited channel whose queued items are cancel scopes. Here are its door and its ends.

A lane is a waiting room and its slots (``slots``: how they choose, call and settle). *The lane owns the call*: it runs
in a slot's task. A caller parks inside its ticket's scope in the same step in which it offers; its abort function,
which trio runs inside ``cancel()``, withdraws a queued ticket there and then. What becomes of a dispatched one is up to
the lane's kind (``capacity_lane``, ``budget_lane``), and that is the only thing in which kinds differ.

Functions that change a lane's state are synchronous and protected from KeyboardInterrupt, as trio's own are; provider
calls, in between, are not. Whatever of the caller's runs in between (a recorder, a capacity) may call back, or raise:
so an offer asks it first and looks again, and counts nothing before nothing more can fail.

Tested by all of ``tests/laws``; what is foreign, in ``tests/laws/test_fault_boundary.py``.
"""

from __future__ import annotations

import abc
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

import trio

from embedkit.activity.recorder import Recorder
from embedkit.admission.fair_order import FairOrder
from embedkit.admission.order import Order
from embedkit.admission.passage import Passage, Register
from embedkit.admission.policy import NoRetry, Retry
from embedkit.admission.slots import Capacity, Slots
from embedkit.admission.statistics import LaneStatistics, Totals
from embedkit.admission.ticket import Ticket, check
from embedkit.errors import EmbedkitError, LaneClosed, LaneFull, ProviderCircuitOpen, UsageError

C = TypeVar("C")
R = TypeVar("R")

_SHOWN_BEHIND = 5


class Lane(abc.ABC, Generic[C]):
    """One engine's queue. Use ``CapacityLane`` or ``BudgetLane``.

    Args:
        name: The provider's name in the settings.
        nursery: The engine's. Slots run in it, and so do the calls.
        connect: Opens the connection that a slot owns as long as it lives.
        capacity: Units in flight at once: a positive int, or a callable that is read at each offer and settlement.
        ledger: Told of everything, asked nothing.
        reserve: Units that batch and probe work leave free.
        max_queued: Tickets of one tenant and class that may wait inside; further callers wait for room.
        lead: Law 4: seconds of engine time that people may be ahead of batch work, and batch work of probes.
        batch_share: Law 4: the share of batch work; that of people is 1.
        shares: Law 4: of tenants, within each class; 1 for those that are not named.
        order: Who is next, if not by law 4; then ``lead`` and both shares mean nothing.
        retry: Which failures are followed by another attempt.
        provider: The provider, for the ledger.
        model: The model, for the ledger.

    Raises:
        UsageError: A value that no lane could have.
    """

    def __init__(
        self,
        name: str,
        *,
        nursery: trio.Nursery,
        connect: Callable[[], AbstractAsyncContextManager[C]],
        capacity: Capacity,
        ledger: Recorder,
        reserve: int = 0,
        max_queued: int = 1024,
        lead: float = 30.0,
        batch_share: float = 1.0,
        shares: Mapping[str | None, float] | None = None,
        order: Order[Passage] | None = None,
        retry: Retry | None = None,
        provider: str = "unknown",
        model: str = "unknown",
    ) -> None:
        _check(name, max_queued, reserve, lead, batch_share, shares or {})
        self.name = name
        self.provider = provider
        self.model = model
        self._max_queued = max_queued
        self._order: Order[Passage] = (
            FairOrder(lead=lead, batch_share=batch_share, shares=shares) if order is None else order
        )
        self._slots = Slots(
            name,
            nursery=nursery,
            connect=connect,
            capacity=capacity,
            reserve=reserve,
            order=self._order,
            retry=retry or NoRetry(),
        )
        self._register = Register(ledger, lane=name, provider=provider, model=model)
        self._clock = trio.lowlevel.current_clock()

    @trio.lowlevel.enable_ki_protection
    async def run(self, call: Callable[[C], Awaitable[R]], ticket: Ticket) -> R:
        """Wait for a slot, make the call on the slot's connection, and return what it returned.

        Args:
            call: Makes one attempt; called again for a retry.
            ticket: New; a ticket is offered once.

        Raises:
            ProviderError: The call's final failure, as the call raised it; or ``ProviderTimeout``. Whatever else the
                call raises comes out as it is.
            ProviderCircuitOpen: The ticket's circuit was or became open while it was queued.
            QueueWaitExceeded: Its deadline passed while it was queued; no call was made.
            DeadlineExceeded: Its deadline passed while the call was out.
            TicketWithdrawn: Somebody cancelled ``ticket.scope``.
            LaneClosed: The lane ended first.
            UsageError: The ticket was offered before, or its scope was entered elsewhere.

        Cancellation:
            A queued ticket has left the lane: it is never dispatched. A dispatched one is detached or aborted, as the
            lane's kind says. If the outcome was already on its way, it is returned and Cancelled comes at the next
            checkpoint.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if ticket.scope.is_relative is None:
            raise UsageError("this ticket was offered before, or its scope was entered; make a new one for each call")
        passage = Passage(self._register, ticket, call)
        with ticket.scope:
            self._offer(passage)
            if passage.answered is None:
                passage.caller = trio.lowlevel.current_task()
                # One step: nothing runs between the offer and the moment when the abort function is in place.
                value: R = await trio.lowlevel.wait_task_rescheduled(lambda _: self._abort(passage))
                return value
            return passage.answered.unwrap()  # type: ignore[no-any-return]  # what the call returns is an R
        assert passage.parting is not None
        raise passage.parting  # the ticket's own scope ended the wait

    @trio.lowlevel.enable_ki_protection
    def run_nowait(self, call: Callable[[C], Awaitable[R]], ticket: Ticket) -> Awaitable[R]:
        """As ``run``, but refuse where ``run`` would wait for room. Refuses here and now, before it is awaited.

        Returns:
            What is to be awaited at once: the offer is made when it is.

        Raises:
            LaneFull: The waiting room of the ticket's class and tenant is full; nothing was offered.
        """
        if self._order.queued(ticket.priority, ticket.tenant) >= self._max_queued:
            whose = "tickets" if ticket.tenant is None else f"tickets of tenant {ticket.tenant!r}"
            raise LaneFull(
                f"lane {self.name}: {self._max_queued} {ticket.priority} {whose} are waiting already (max_queued)"
            )
        return self.run(call, ticket)

    def statistics(self) -> LaneStatistics:
        """The lane at this instant. Costs time in proportion to the tenants that have something queued."""
        now = self._clock.current_time()
        room = self._slots.room
        queued, by_tenant = Counter[str](), Counter[str | None]()
        for (priority, tenant), count in self._order.census().items():
            queued[priority] += count
            by_tenant[tenant] += count
        oldest = self._order.oldest()
        return LaneStatistics(
            capacity=room.capacity,
            ceiling=room.ceiling,
            tickets_in_flight=room.tickets,
            weight_in_flight=room.weight,
            queued=queued,
            queued_by_tenant=by_tenant,
            longest_wait=0.0 if oldest is None else now - oldest,
            accounts=tuple(self._order.accounts()),
            furthest_behind=tuple(self._order.furthest_behind(_SHOWN_BEHIND)),
            held_by_ceiling=tuple(self._order.held_by_ceiling(room)),
            held_for=self._slots.held_for,
            slots=len(self._slots),
            ledger_failures=self._register.failures,
            totals=Totals(queued=len(self._order), in_flight=room.tickets, **self._register.counts),
        )

    @trio.lowlevel.enable_ki_protection
    def refresh(self) -> None:
        """The capacity callable would now answer otherwise: read it, and use what has grown. Nothing polls it."""
        self._slots.refresh_capacity()
        self._slots.rouse()

    @trio.lowlevel.enable_ki_protection
    def close(self, cause: BaseException | None = None) -> None:
        """Take nothing more: shed what is queued with ``LaneClosed``, retire idle slots. Calls that are out go on.

        Args:
            cause: What ended the lane: the ``__cause__`` of each ``LaneClosed``, if it is an ``Exception``.

        A thousand tickets are shed before it returns. If more are queued, the rest follows in portions, with a
        checkpoint after each, so that nothing else is held up.
        """
        self._slots.close(cause)

    async def drained(self) -> None:
        """Wait until the lane is closed, nobody is queued and no call is out.

        Cancellation:
            Changes nothing; it may be awaited again.
        """
        await self._slots.drained()

    # What a circuit asks of a lane.

    @trio.lowlevel.enable_ki_protection
    def shed(self, work: Passage, error: ProviderCircuitOpen) -> bool:
        """See ``circuit.Sheds``."""
        if work.state == "queued":
            self._slots.shed(work, error)
            return True
        work.end_pause()
        return False

    def rouse(self) -> None:
        """See ``circuit.Sheds``."""
        self._slots.rouse()

    # The door.

    def _offer(self, passage: Passage) -> None:
        """All or nothing: whatever may refuse, raise or call back comes before the ticket is counted."""
        slots, circuit = self._slots, passage.circuit
        if slots.is_closed:
            raise LaneClosed(f"lane {self.name} is closed")
        check(passage.ticket)  # it may have been changed since it was made
        if slots.reads_capacity:
            slots.refresh_capacity()
        passage.open(self._clock.current_time())
        # The circuit was open before, or the recorder, which has heard of it, closed the lane or tripped the circuit.
        refusal: EmbedkitError | None = None
        if circuit is not None and circuit.is_open:
            refusal = circuit.refusal()
        elif slots.is_closed:
            refusal = LaneClosed(f"lane {self.name} is closed")
        if refusal is not None:
            passage.settle("shed", refusal, self._clock.current_time())
            raise refusal
        try:
            self._order.add(passage)
        except Exception as error:
            passage.settle("shed", error, self._clock.current_time())
            raise
        passage.offer(self)
        slots.rouse()

    @trio.lowlevel.enable_ki_protection
    def _abort(self, passage: Passage) -> trio.lowlevel.Abort:
        """The caller is being cancelled: trio runs this inside ``cancel()``, or at the take of a passed deadline."""
        if passage.state == "settled":
            return trio.lowlevel.Abort.FAILED  # its outcome is on its way, in this very step
        passage.caller = None
        if passage.state == "queued":
            self._slots.withdraw(passage)
            self._slots.rouse()  # it may have held back what fits now
        else:
            passage.leave(self.name, self._clock.current_time())
            self.leave_call(passage)
        return trio.lowlevel.Abort.SUCCEEDED

    @abc.abstractmethod
    def leave_call(self, passage: Passage) -> None:
        """The kind's answer to a cancelled caller whose call is out: what becomes of that call."""


def _check(
    name: str,
    max_queued: object,
    reserve: object,
    lead: float,
    batch_share: float,
    shares: Mapping[str | None, float],
) -> None:
    """Refuse what no lane could have, with the name of the lane and of the value."""
    if type(max_queued) is not int or max_queued < 1:
        raise UsageError(f"lane {name}: max_queued must be a positive whole number, not {max_queued!r}")
    if type(reserve) is not int or reserve < 0:
        raise UsageError(f"lane {name}: reserve must be a whole number, 0 or more, not {reserve!r}")
    if not 0 <= lead < math.inf:
        raise UsageError(f"lane {name}: lead must be a number of seconds, 0 or more, not {lead!r}")
    of_tenants = ((f"the share of {tenant!r}", share) for tenant, share in shares.items())
    for whose, share in (("batch_share", batch_share), *of_tenants):
        if not 0 < share < math.inf:
            raise UsageError(f"lane {name}: {whose} must be a positive number, not {share!r}")
