"""A base class for lanes that keep no tickets, clocks and totals of their own.

A queue, a semaphore or a pool becomes a lane that can be held to the laws by telling ``LaneBase`` what happens to each
ticket. The lane decides who waits where, who is next, and which task makes the call; everything that the laws want
written down is written here.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Literal

import attrs
import outcome
import trio

from embedkit import (
    AdmissionError,
    Clocks,
    DeadlineExceeded,
    EmbedkitError,
    LaneClosed,
    ProviderError,
    ProviderTimeout,
    QueueWaitExceeded,
    Retry,
    Ticket,
    TicketWithdrawn,
    Totals,
    attribution,
    notify_provider_timeout,
)
from embedkit.testing.lane_under_test import Settlement

Call = Callable[[Any], Awaitable[Any]]
Result = outcome.Value[Any] | outcome.Error
Word = Literal["succeeded", "failed", "withdrawn", "shed", "aborted", "unsettled"]


@attrs.frozen
class Snapshot:
    """What ``LaneBase.statistics`` returns."""

    totals: Totals


@attrs.define(eq=False)
class LaneEntry:
    """One ticket in a lane; also what an ``Order`` and a ``Room`` see of it.

    Attributes:
        ticket: Whose.
        call: Makes one attempt.
        offered_at: When it was offered.
        state: Where it is.
        dispatched_at: When it was dispatched.
        settled_at: When it was settled.
        parting: What its caller leaves with, where it leaves by the ticket's own scope or deadline.
        is_detached: Its caller has left.
    """

    ticket: Ticket
    call: Call
    offered_at: float
    state: Literal["queued", "in-flight", "settled"] = "queued"
    dispatched_at: float = math.nan
    settled_at: float = math.nan
    parting: AdmissionError = attrs.field(factory=lambda: TicketWithdrawn("the ticket was cancelled"))
    is_detached: bool = False
    _caller: trio.lowlevel.Task | None = None
    _answer: Result | None = None
    _scope: trio.CancelScope | None = None  # around an attempt, or the sleep before the next
    _is_asleep: bool = False
    _is_aborted: bool = False
    _retry_wait: float = 0.0

    @property
    def priority(self) -> Literal["interactive", "batch", "probe"]:
        """Its class."""
        return self.ticket.priority

    @property
    def tenant(self) -> str | None:
        """Whose it is."""
        return self.ticket.tenant

    @property
    def weight(self) -> int:
        """Units it takes."""
        return self.ticket.weight

    @property
    def deadline_at(self) -> float:
        """When its caller's patience ends: the ticket's deadline, or that of its scope where it is earlier."""
        return min(self.ticket.deadline_at, self.ticket.scope.deadline)

    @property
    def seconds(self) -> float:
        """From its dispatch to its settlement, or to now."""
        return (trio.current_time() if self.state == "in-flight" else self.settled_at) - self.dispatched_at

    async def wait(self, abort: Callable[[LaneEntry], None]) -> Any:
        """Park the caller until the entry is settled.

        Args:
            abort: Called inside ``cancel()`` if the caller leaves: ``LaneBase.leave``, and what the lane does then.

        Cancellation:
            ``abort`` has been called.
        """

        def leave(_: object) -> trio.lowlevel.Abort:
            self._caller = None
            abort(self)
            return trio.lowlevel.Abort.SUCCEEDED

        if self._answer is not None:
            return self._answer.unwrap()
        self._caller = trio.lowlevel.current_task()
        return await trio.lowlevel.wait_task_rescheduled(leave)

    def answer(self, result: Result) -> None:
        """Give the caller its outcome, unless it has left."""
        if self._caller is None:
            self._answer = result
        else:
            caller, self._caller = self._caller, None
            trio.lowlevel.reschedule(caller, result)

    def clocks(self) -> Clocks:
        """The three times, as of now."""
        now = trio.current_time()
        if self.state == "queued" or math.isnan(self.dispatched_at):
            return Clocks(now - self.offered_at, 0.0, 0.0)
        spent = now - self.dispatched_at - self._retry_wait
        return Clocks(self.dispatched_at - self.offered_at, spent, self._retry_wait)

    def end_pause(self) -> None:
        """If it sleeps between attempts: end that."""
        if self._is_asleep and self._scope is not None:
            self._scope.cancel()

    def abort(self) -> None:
        """End its call, or its sleep between attempts."""
        self._is_aborted = True
        if self._scope is not None:
            self._scope.cancel()

    @property
    def _is_unwanted(self) -> bool:
        circuit = self.ticket.circuit
        return self.is_detached or (circuit is not None and circuit.is_open)


class LaneBase(abc.ABC):
    """Keeps tickets, clocks and totals for a lane. See the page on the contract for a whole lane that uses it.

    Args:
        nursery: The engine's.
        retry: Which failures are followed by another attempt.

    Attributes:
        settlement: What the lane's kind declares (law 2).
        is_closed: The lane takes nothing more. Written by the lane.
        held_until: Instant before which the engine wants nothing sent; ``rouse`` is called then.
    """

    settlement: ClassVar[Settlement] = "provider"

    def __init__(self, nursery: trio.Nursery, retry: Retry) -> None:
        self.is_closed = False
        self.held_until = -math.inf
        self._nursery = nursery
        self._retry = retry
        self._totals = Totals()
        nursery.start_soon(self._close_at_the_end)

    @abc.abstractmethod
    def close(self) -> None:
        """Set ``is_closed`` and refuse what is queued. Called at the end of the engine's nursery, too."""

    @abc.abstractmethod
    def shed(self, work: Any, error: EmbedkitError) -> bool:
        """If the entry ``work`` is queued: take it out, ``refuse`` it, and return True. A circuit calls it.

        Else call ``work.end_pause()`` and return False.
        """

    @abc.abstractmethod
    def rouse(self) -> None:
        """Something has changed: dispatch whatever may be dispatched now."""

    def statistics(self) -> Snapshot:
        """The totals of law 6."""
        return Snapshot(attrs.evolve(self._totals))

    def offer(self, call: Call, ticket: Ticket) -> LaneEntry:
        """A ticket comes to the lane: it is queued from now on.

        Raises:
            LaneClosed: The lane is closed.
            ProviderCircuitOpen: The ticket's circuit is open.
        """
        if self.is_closed:
            raise LaneClosed("the lane is closed")
        if ticket.circuit is not None and ticket.circuit.is_open:
            raise ticket.circuit.refusal()
        entry = LaneEntry(ticket, call, trio.current_time())
        self._totals.offered += 1
        self._totals.queued += 1
        if ticket.circuit is not None:
            ticket.circuit.bind(entry, self)
        return entry

    def refuse(self, entry: LaneEntry, error: EmbedkitError) -> None:
        """A queued entry is shed: its caller gets ``error``."""
        self.settle(entry, "shed", outcome.Error(error))

    def leave(self, entry: LaneEntry) -> bool:
        """The caller leaves; whether the entry was queued, and is withdrawn. To be called inside ``cancel()``.

        A call that is out goes on or is ended, as ``settlement`` says.
        """
        entry.is_detached = True
        if entry.state == "queued":
            self.withdraw(entry)
            return True
        entry.parting = self._parting(entry, DeadlineExceeded)
        if self.settlement == "queue":
            entry.abort()
        else:
            entry.end_pause()
        return False

    def withdraw(self, entry: LaneEntry) -> None:
        """A queued entry's caller has left, or its deadline has passed."""
        entry.parting = self._parting(entry, QueueWaitExceeded)
        self.settle(entry, "withdrawn", outcome.Error(entry.parting))

    def dispatch(self, entry: LaneEntry) -> None:
        """The entry is taken: it is in flight from now on."""
        entry.state = "in-flight"
        entry.dispatched_at = trio.current_time()
        self._totals.queued -= 1
        self._totals.in_flight += 1

    async def make_attempts(self, entry: LaneEntry) -> tuple[Word, Result | None]:
        """Call until it succeeds or fails for good. What it returns is for ``settle``.

        Cancellation:
            The engine's end cut the call off; the entry is settled as ``unsettled``.
        """
        try:
            result = await self._attempt(entry)
            while (delay := self._delay(entry, result)) is not None and await self._sleep(entry, delay):
                result = await self._attempt(entry)
        except BaseException:
            self.settle(entry, "unsettled", outcome.Error(LaneClosed("the lane ended while the call was out")))
            raise
        if entry._is_aborted and not isinstance(result, outcome.Value):
            return "aborted", None
        return ("succeeded" if isinstance(result, outcome.Value) else "failed"), result

    def settle(self, entry: LaneEntry, word: Word, result: Result | None) -> None:
        """It is over: written down, answered, and the run's hook told, in this order and in one step."""
        was, error = entry.state, _error(result) or entry.parting
        entry.settled_at = trio.current_time()
        entry.ticket.clocks = entry.clocks()
        entry.state = "settled"
        if was == "queued":
            self._totals.queued -= 1
        else:
            self._totals.in_flight -= 1
        setattr(self._totals, word, getattr(self._totals, word) + 1)
        if word != "succeeded":
            self._describe(entry, error, entry.ticket.clocks)
        if entry.ticket.circuit is not None:
            entry.ticket.circuit.unbind(entry)
        if result is not None:
            entry.answer(result)
            notify_provider_timeout(_error(result), entry.ticket.on_provider_timeout)

    def _parting(self, entry: LaneEntry, late: type[AdmissionError]) -> AdmissionError:
        is_late = entry.deadline_at <= trio.current_time()
        error = late("the deadline has passed") if is_late else TicketWithdrawn("the ticket was cancelled")
        self._describe(entry, error, entry.clocks())
        return error

    def _describe(self, entry: LaneEntry, error: BaseException | None, clocks: Clocks) -> None:
        if isinstance(error, EmbedkitError) and error.clocks is None:
            error.clocks, error.attempts, error.attribution = clocks, entry.ticket.attempts, attribution(clocks)

    async def _attempt(self, entry: LaneEntry) -> Result:
        entry.ticket.attempts += 1
        result: Result | None = None
        with trio.CancelScope(deadline=trio.current_time() + self._limit(entry)) as entry._scope:
            try:
                result = outcome.Value(await entry.call(None))
            except Exception as error:
                result = outcome.Error(error)
        was_cut = entry._scope.cancelled_caught or (entry._scope.deadline < math.inf and entry._scope.cancel_called)
        entry._scope = None
        if result is None or (was_cut and isinstance(result, outcome.Error)):
            return outcome.Error(ProviderTimeout("the limit of an attempt has passed"))
        return result

    def _limit(self, entry: LaneEntry) -> float:
        ticket = entry.ticket
        of_policy = self._retry.attempt_limit(ticket.priority, has_deadline=ticket.deadline_at < math.inf)
        return min(seconds for seconds in (ticket.timeout, of_policy, math.inf) if seconds is not None)

    def _delay(self, entry: LaneEntry, result: Result) -> float | None:
        """Seconds to the next attempt; ``None``: there is none."""
        error, ticket = _error(result), entry.ticket
        if not isinstance(error, ProviderError):
            return None
        self._hold(self._retry.stay_away(error))
        if entry._is_unwanted:
            return None
        delay = self._retry.next_delay(
            error,
            ticket.attempts,
            priority=ticket.priority,
            spent=entry._retry_wait,
            has_deadline=ticket.deadline_at < math.inf,
        )
        return None if delay is None else max(delay, self.held_until - trio.current_time())

    async def _sleep(self, entry: LaneEntry, delay: float) -> bool:
        """Whether there is to be another attempt."""
        began = trio.current_time()
        until = began + delay
        entry._is_asleep = True
        with trio.CancelScope() as entry._scope:
            while until < entry.deadline_at:
                await trio.sleep_until(until)
                if self.held_until <= trio.current_time():
                    break
                until = self.held_until  # a longer hint has come meanwhile
        entry._is_asleep, entry._scope = False, None
        entry._retry_wait += trio.current_time() - began
        return trio.current_time() >= until and not entry._is_unwanted

    def _hold(self, seconds: float | None) -> None:
        if seconds is not None and trio.current_time() + seconds > self.held_until:
            self.held_until = trio.current_time() + seconds
            self._nursery.start_soon(self._release, self.held_until)

    async def _close_at_the_end(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self.close()

    async def _release(self, until: float) -> None:
        await trio.sleep_until(until)
        self.rouse()


def _error(result: Result | None) -> BaseException | None:
    return result.error if isinstance(result, outcome.Error) else None
