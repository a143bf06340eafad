"""A ticket's passage through a lane: where it is, and everything that is written down of it.

This file is the only writer of a ticket's state, its clocks and attempts, its row in the ledger, the lane's totals, and
what binds it to a circuit. Lanes decide what happens to a ticket; they say so by one of the methods here, and each
checks the move against the table, writes it down everywhere, and only then tells the ledger::

    new ── offer ──> queued ── dispatch ──> in flight <── pause, resume ──> paused
     │                 │                       │
     └───── shed ──────┴── withdraw, shed ──>  └── succeeded, failed, aborted, unsettled ──>  settled

A ledger is told and asked nothing: what it raises is counted, logged once, and changes nothing here. It may also call
back (trip a circuit, close the lane, cancel a caller), so nothing is told before all of the move is true.

Tested by all of ``tests/laws``; what is foreign, in ``tests/laws/test_fault_boundary.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal

import outcome
import trio

from embedkit.admission.statistics import COUNTED
from embedkit.clocks import Clocks, attribution
from embedkit.errors import DeadlineExceeded, EmbedkitError, QueueWaitExceeded, TicketWithdrawn

if TYPE_CHECKING:
    from embedkit.activity.recorder import Recorder
    from embedkit.activity.rows import AttemptRow, TicketRow
    from embedkit.admission.circuit import Circuit, Sheds
    from embedkit.admission.slot import Result, Slot
    from embedkit.admission.ticket import Ticket
    from embedkit.admission.waiting import Priority

logger = logging.getLogger("embedkit.admission")

State = Literal["new", "queued", "in-flight", "paused", "settled"]
Settled = Literal["succeeded", "failed", "aborted", "unsettled"]
Ending = Settled | Literal["withdrawn", "shed"]

# Where each move leads from each state. A move that is not here is a defect of the lane.
MOVES: dict[State, dict[str, State]] = {
    "new": {"offer": "queued", "dispatch": "in-flight", "shed": "settled"},
    "queued": {"dispatch": "in-flight", "withdrawn": "settled", "shed": "settled"},
    "in-flight": {
        "pause": "paused",
        "succeeded": "settled",
        "failed": "settled",
        "aborted": "settled",
        "unsettled": "settled",
    },
    "paused": {"resume": "in-flight"},
    "settled": {},
}


class Register:
    """What one lane counts and writes down: the totals of law 6, and its way to the ledger.

    Args:
        ledger: Told of everything, asked nothing.
        lane: The lane's name.
        provider: The provider, for the ledger.
        model: The model, for the ledger.
        disposition: ``queued``, or ``not-applicable`` where no lane is in between.
    """

    __slots__ = ("counts", "disposition", "failures", "lane", "ledger", "model", "provider")

    def __init__(self, ledger: Recorder, *, lane: str, provider: str, model: str, disposition: str = "queued") -> None:
        self.ledger = ledger
        self.lane = lane
        self.provider = provider
        self.model = model
        self.disposition = disposition
        self.counts = dict.fromkeys(COUNTED, 0)
        self.failures = 0

    def note_failure(self, error: BaseException) -> None:
        """The ledger raised ``error``: that is its own business, whatever it is.

        A Ctrl-C is none of these: the moves of a ticket are protected from it.
        """
        self.failures += 1
        if self.failures == 1:
            logger.warning(
                "lane %s: the ledger raised %s; the work goes on, further failures are only counted",
                self.lane,
                type(error).__name__,
            )


class Passage:
    """One ticket's way through one lane. Hashed by identity; what ``order`` and ``room`` see of a ticket.

    Attributes:
        ticket: Whose.
        call: Makes one attempt on a slot's connection.
        state: See the table. Written by the moves alone.
        caller: The parked task; ``None`` before it parks, once it has left (the call is detached then), and once it
            has been answered.
        answered: What it was answered with before it parked.
        parting: Why the caller left, where it left by its ticket's own scope or deadline.
        is_aborted: The call was told to end, since its caller has left and the lane's kind closes the transport then.
        offered_at: Instant, as the next.
        dispatched_at: When a slot took it.
        slot: The slot that has it.
    """

    # What a ticket begins with. Most never change most of it, so it stands in the class, and not in every ticket.
    state: State = "new"
    caller: trio.lowlevel.Task | None = None
    answered: Result | None = None
    parting: EmbedkitError | None = None
    is_aborted = False
    offered_at = 0.0
    dispatched_at = 0.0
    slot: Slot | None = None
    _row: TicketRow | None = None
    _attempt: AttemptRow | None = None
    # Around a sleep between attempts, while there is one.
    _pause: trio.CancelScope | None = None
    _paused_at = 0.0
    _retry_wait = 0.0

    def __init__(self, register: Register, ticket: Ticket, call: Callable[[Any], Awaitable[Any]]) -> None:
        self.ticket = ticket
        self.call = call
        # Read a dozen times a call by the pure files.
        self.priority: Priority = ticket.priority
        self.tenant = ticket.tenant
        self.weight = ticket.weight
        self.circuit: Circuit | None = ticket.circuit
        self._register = register

    # Moves, in the order in which a ticket makes them.

    def open(self, now: float) -> None:
        """Open its row, before admission: a wait of zero is a measured zero. Nothing is counted yet."""
        self.offered_at = now
        register, ticket = self._register, self.ticket
        try:
            ids = ticket.ids
            self._row = register.ledger.open(
                lane=register.lane,
                service=ids.service,
                stage=ids.stage,
                role=ids.role,
                provider=register.provider,
                model=register.model,
                priority=ticket.priority,
                tenant=ticket.tenant,
                run=ids.run,
                weight=ticket.weight,
                inputs=ticket.inputs,
                now=now,
                disposition=register.disposition,
            )
        except BaseException as error:
            register.note_failure(error)

    def offer(self, lane: Sheds) -> None:
        """It waits in ``lane`` from now on."""
        self.state = MOVES[self.state]["offer"]
        self._register.counts["offered"] += 1
        if self.circuit is not None:
            self.circuit.bind(self, lane)

    def dispatch(self, slot: Slot, now: float) -> None:
        """``slot`` has taken it."""
        self.state = MOVES[self.state]["dispatch"]
        self.slot = slot
        self.dispatched_at = now
        if self._row is not None:
            try:
                self._register.ledger.dispatched(self._row, now)
            except BaseException as error:
                self._register.note_failure(error)

    def begin_attempt(self, now: float) -> None:
        """A provider call begins."""
        number = self.ticket.attempts + 1
        self.ticket.attempts = number
        self._attempt = None
        if self._row is not None:
            try:
                self._attempt = self._register.ledger.attempt_started(self._row, number, now)
            except BaseException as error:
                self._register.note_failure(error)

    def end_attempt(self, now: float, result: Result | None) -> None:
        """The provider call has ended; ``None``: it was cut off."""
        if self._attempt is None:
            return
        code: str | None = None
        status: object = None
        try:
            if result is None:
                code = "ABORTED"
            elif type(result) is outcome.Error:
                code = code_of(result.error)
                status = getattr(result.error, "status", None)
            self._register.ledger.attempt_ended(
                self._attempt, now, code=code, status=status if isinstance(status, int) else None
            )
        except BaseException as error:
            self._register.note_failure(error)

    def pause(self, now: float) -> trio.CancelScope:
        """It sleeps before its next attempt: in the scope that is returned, which ``end_pause`` cancels."""
        self.state = MOVES[self.state]["pause"]
        self._paused_at = now
        self._pause = trio.CancelScope()
        return self._pause

    def resume(self, now: float) -> None:
        """It sleeps no longer."""
        self.state = MOVES[self.state]["resume"]
        self._retry_wait += now - self._paused_at
        self._pause = None

    def leave(self, lane: str, now: float) -> EmbedkitError:
        """The caller leaves the call that is out. Returns why, for the case that it left by its ticket's scope."""
        self.caller = None
        error: EmbedkitError
        if self.deadline_at <= now:
            error = DeadlineExceeded(f"lane {lane}: the deadline passed while the call was out")
        else:
            error = TicketWithdrawn(f"lane {lane}: the ticket was cancelled while its call was out")
        self._describe(error, self.measure(now))
        self.parting = error
        return error

    def withdraw(self, lane: str, now: float) -> EmbedkitError:
        """It has left the queue by its caller's scope or deadline. Returns which."""
        error: EmbedkitError
        if self.deadline_at <= now:
            error = QueueWaitExceeded(f"lane {lane}: the deadline passed in the queue; nothing was sent")
        else:
            error = TicketWithdrawn(f"lane {lane}: the ticket was withdrawn from the queue")
        self.parting = error
        self.settle("withdrawn", error, now)
        return error

    def settle(self, word: Ending, error: BaseException | None, now: float) -> None:
        """It is over. Everything is written down before the ledger, and after it the caller, is told."""
        was = self.state
        clocks = self.measure(now)
        self.state = MOVES[was][word]
        self.ticket.clocks = clocks
        register = self._register
        if was != "new":
            register.counts[word] += 1
        code = stage = put_down_to = None
        if error is not None:
            code = code_of(error)
            stage = "queue" if was in ("new", "queued") else "provider" if self.ticket.attempts else "dispatch"
            put_down_to = attribution(clocks)
            if isinstance(error, EmbedkitError):
                self._describe(error, clocks)
        if self.circuit is not None:
            self.circuit.unbind(self)
        if self._row is not None:
            try:
                register.ledger.settled(
                    self._row,
                    now,
                    outcome=word,
                    clocks=clocks,
                    code=code,
                    failure_stage=stage,
                    attribution=put_down_to,
                    detached=self.caller is None and (word == "succeeded" or word == "failed"),
                )
            except BaseException as raised:
                register.note_failure(raised)

    # What is no move.

    def answer(self, result: Result) -> None:
        """Give the caller its outcome, unless it has left. One that has not parked yet finds it."""
        caller, self.caller = self.caller, None
        if caller is None:
            self.answered = result
        else:
            trio.lowlevel.reschedule(caller, result)

    def abort(self) -> None:
        """End the call that is out: close its transport, or end the sleep before its next attempt."""
        self.is_aborted = True
        if self._pause is not None:
            self._pause.cancel()
        elif self.slot is not None:
            self.slot.cut()

    def end_pause(self) -> None:
        """If it sleeps between attempts: end that. It makes no further one."""
        if self._pause is not None:
            self._pause.cancel()

    @property
    def is_unwanted(self) -> bool:
        """Whether another attempt would be for nobody: the caller has left, or the run's circuit is open."""
        return self.caller is None or (self.circuit is not None and self.circuit.is_open)

    @property
    def deadline_at(self) -> float:
        """When its caller's patience ends: the ticket's deadline, or that of its scope where it is earlier."""
        return min(self.ticket.deadline_at, self.ticket.scope.deadline)

    @property
    def retry_wait(self) -> float:
        """Seconds slept between attempts so far."""
        return self._retry_wait

    def measure(self, now: float) -> Clocks:
        """The three times of a ticket that ends at ``now``: each second is in exactly one of them."""
        if self.state == "in-flight":
            return Clocks(
                self.dispatched_at - self.offered_at, now - self.dispatched_at - self._retry_wait, self._retry_wait
            )
        if self.state == "paused":
            slept = self._retry_wait + now - self._paused_at
            return Clocks(self.dispatched_at - self.offered_at, now - self.dispatched_at - slept, slept)
        return Clocks(now - self.offered_at, 0.0, 0.0)

    def _describe(self, error: EmbedkitError, clocks: Clocks) -> None:
        """Give ``error`` the ticket's times, once: an error that somebody has been given does not change."""
        try:
            if getattr(error, "clocks", None) is None:
                error.clocks = clocks
                error.attempts = self.ticket.attempts
                error.attribution = attribution(clocks)
        except Exception as raised:
            # A class of somebody's own that takes no attributes: its ticket still ends with it.
            logger.warning(
                "lane %s: an error would not take its times (%s)", self._register.lane, type(raised).__name__
            )


def code_of(error: BaseException) -> str:
    """The code under which the ledger knows ``error``; ``unknown`` for what is not embedkit's, or has none to show."""
    try:
        code = error.durable_code if isinstance(error, EmbedkitError) else None
    except Exception:  # a provider of one's own may give its errors any code
        code = None
    return code if isinstance(code, str) else "unknown"
