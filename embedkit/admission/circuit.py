"""The circuit of one run: trips once, and sheds that run's queued tickets in the same synchronous step.

A circuit is made by a sweep and dies with it (a service may make its own). It knows the tickets that are bound to it
from their offer to their settlement, in whatever lanes they are. Tripping it ends no call and cancels nobody: it
takes what is still queued out of the lanes, and lets no ticket of the run start another attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from embedkit.admission.ticket import Ticket
from embedkit.errors import ProviderCircuitOpen

if TYPE_CHECKING:
    from embedkit.admission.lane import Lane


class Circuit:
    """One run's switch: closed until the first ``trip``, open for ever after."""

    def __init__(self) -> None:
        self._cause: Exception | None = None
        self._shed = 0
        # A dict keeps the order of offers, so that tickets are shed in the order they came.
        self._bound: dict[Ticket, None] = {}

    @property
    def is_open(self) -> bool:
        """Whether it has tripped."""
        return self._cause is not None

    @property
    def cause(self) -> Exception | None:
        """What tripped it first, or ``None``."""
        return self._cause

    @property
    def shed(self) -> int:
        """How many queued tickets the trip took out of the lanes."""
        return self._shed

    @trio.lowlevel.enable_ki_protection
    def trip(self, error: Exception) -> None:
        """Open the circuit. Idempotent: the first cause wins.

        Before it returns, every queued ticket bound to it has left its lane, tickets that wait for room included, and
        its caller has been given ``ProviderCircuitOpen``. Dispatched tickets go on; one that sleeps between attempts
        settles with its last error.
        """
        if self._cause is not None:
            return
        self._cause = error
        lanes: dict[Lane[object], None] = {}
        for ticket in tuple(self._bound):
            if ticket.state == "queued":
                assert ticket.lane is not None
                lanes[ticket.lane] = None
                self._shed += 1
                ticket.lane.shed(ticket, self.refusal())
            elif ticket.pause is not None:
                ticket.pause.cancel()
        for lane in lanes:
            lane.rouse()  # a shed head may have held back what fits now

    def refusal(self) -> ProviderCircuitOpen:
        """A new error for one shed ticket; its ``__cause__`` is what tripped the circuit."""
        error = ProviderCircuitOpen("shed without a provider call: this run's circuit is open")
        error.__cause__ = self._cause
        return error

    def release(self) -> None:
        """The run has ended: calls of it that are still out belong to the engine, and call no hook of the run."""
        for ticket in self._bound:
            ticket.on_provider_timeout = None

    def bind(self, ticket: Ticket) -> None:
        """The lane's: ``ticket`` has been offered."""
        self._bound[ticket] = None

    def unbind(self, ticket: Ticket) -> None:
        """The lane's: ``ticket`` has been settled."""
        del self._bound[ticket]
