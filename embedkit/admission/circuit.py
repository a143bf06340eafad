"""The circuit of one run: trips once, and sheds that run's queued tickets in the same synchronous step.

A circuit is made by a sweep and dies with it (a service may make its own). It knows the work that is bound to it, from
its offer to its settlement, and of the lane that has it only that it can shed. Tripping ends no call and cancels
nobody: it takes what is still queued out of the lanes, and lets no ticket of the run start another attempt.

Tested in ``tests/admission/test_circuit.py`` and ``tests/laws/test_law_3_notify.py``.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Protocol

import trio

from embedkit.errors import ProviderCircuitOpen


class Sheds(Protocol):
    """What a circuit needs of a lane. ``work`` is whatever the lane bound: opaque here, and hashable."""

    def shed(self, work: Any, error: ProviderCircuitOpen) -> bool:
        """If ``work`` is queued: take it out, give its caller ``error``, and return True.

        Else return False: it starts no further attempt, and one that sleeps before its next settles with its last
        error. Work that has ended meanwhile is no fault.
        """
        ...

    def rouse(self) -> None:
        """Something was shed: whoever it held back may fit now."""
        ...


class Circuit:
    """One run's switch: closed until the first ``trip``, open for ever after."""

    def __init__(self) -> None:
        self._cause: Exception | None = None
        self._shed = 0
        # In the order of offers, so that work is shed in the order it came. Written by bind and unbind alone.
        self._bound: dict[Hashable, Sheds] = {}

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
        settles with its last error. It may be called from anywhere in the run, a recorder or a lane's own hook
        included: it looks at a copy, and asks each lane whether the work is still there.
        """
        if self._cause is not None:
            return
        self._cause = error
        lanes: dict[int, Sheds] = {}
        for work, lane in tuple(self._bound.items()):
            if lane.shed(work, self.refusal()):
                self._shed += 1
                lanes[id(lane)] = lane
        for lane in lanes.values():
            lane.rouse()  # a shed head may have held back what fits now

    def refusal(self) -> ProviderCircuitOpen:
        """A new error for one shed ticket; its ``__cause__`` is what tripped the circuit."""
        error = ProviderCircuitOpen("shed without a provider call: this run's circuit is open")
        error.__cause__ = self._cause
        return error

    def bind(self, work: Hashable, lane: Sheds) -> None:
        """The lane's: ``work`` has been offered to it."""
        self._bound[work] = lane

    def unbind(self, work: Hashable) -> None:
        """The lane's: ``work`` has been settled."""
        self._bound.pop(work, None)
