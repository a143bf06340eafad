"""Fair shares of a service among flows: whoever has been served least, for its share, is next. Pure.

Start-time fair queueing (Goyal, Vin and Cheng 1996), with several servers and costs unknown beforehand (SFQ(D): Jin,
Chase and Kaur 2004). Knows no class, no tenant and no ticket: a flow is whatever competes.

Each flow has an *account*: the service that it has been charged for, divided by its share.

- ``begin`` charges for a service as it starts, with an estimate; ``correct`` charges at its end what it was off by.
- Who waits keeps its account, so it is owed what others get meanwhile. Who does not wait is owed nothing: ``wait``
  raises a flow that comes back to the *virtual time*, the furthest account at which any service has begun. Where nobody
  waits there is no contention, and nobody is owed anything: then virtual time moves to the furthest that any account
  has come. It never goes back. (Raising to the least account that waits looks the same, and is not: corrections lower
  that, and a chain of flows that come and go lowers it without bound.)
- ``rest`` touches no account: a flow that leaves without a service has paid nothing.

So a flow with nothing waiting and nothing out, whose account virtual time has passed, need not be remembered.

``docs/fair-shares.md`` states the bound that follows, and proves it; ``tests/admission/test_fair_share.py`` tests it.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace, nsmallest
from typing import Generic, TypeVar


class Flow:
    """One that competes.

    Attributes:
        account: Service charged, divided by ``share``; raised by absence.
        share: What it is entitled to, relative to the others of its level.
        is_waiting: Whether something of it waits. Written by ``FairShare`` alone.
        out: Services that have begun and not ended.
    """

    __slots__ = ("_turn", "account", "is_waiting", "out", "share")

    def __init__(self, share: float = 1.0) -> None:
        self.account = 0.0
        self.share = share
        self.is_waiting = False
        self.out = 0
        # Names its one valid entry in the heap; a later entry has a higher number. That also settles ties: of equal
        # accounts the one that was served, or came back, longest ago is first.
        self._turn = 0


F = TypeVar("F", bound=Flow)


class FairShare(Generic[F]):
    """One level of flows that compete with each other. Every operation costs O(log flows), amortized.

    Attributes:
        virtual_time: What a flow that comes back is raised to.
        horizon: The furthest that any account has come.
        waiting: How many flows wait.
        sole: The one that waits, if just one does: then there is nothing to compare, and no index is kept.
    """

    __slots__ = ("_heap", "_turns", "horizon", "sole", "virtual_time", "waiting")

    def __init__(self) -> None:
        self.virtual_time = 0.0
        self.horizon = 0.0
        self.waiting = 0
        self.sole: F | None = None
        self._turns = 0
        # Of the flows that wait, by account. An entry is valid if its number is its flow's; the others are left behind
        # by moves, and dropped when they come up, or all at once when they outnumber the valid ones.
        self._heap: list[tuple[float, int, F]] = []

    def wait(self, flow: F) -> None:
        """Something of ``flow`` waits, for the first time since ``rest``."""
        if not self.waiting:
            self.virtual_time = self.horizon
        if flow.account < self.virtual_time:
            flow.account = self.virtual_time
        flow.is_waiting = True
        self.waiting += 1
        if self.waiting == 1:
            self.sole = flow
            return
        if self.sole is not None:
            self._move(self.sole)
            self.sole = None
        self._move(flow)

    def rest(self, flow: F) -> None:
        """Nothing of ``flow`` waits any more."""
        flow.is_waiting = False
        flow._turn = 0
        self.waiting -= 1
        if self.waiting < 2:
            self.sole = self.least() if self.waiting else None
            self._heap.clear()

    # The next two are called twice for every call through a lane, and so written out, the one line that they share too.

    def begin(self, flow: F, cost: float) -> None:
        """A service of ``flow`` begins, and is expected to cost so much."""
        flow.out += 1
        account = flow.account
        if account > self.virtual_time:
            self.virtual_time = account
        flow.account = account = account + cost / flow.share
        if account > self.horizon:
            self.horizon = account
        if self._heap and flow.is_waiting:
            self._move(flow)

    def correct(self, flow: F, by: float) -> None:
        """A service of ``flow`` has ended, and cost ``by`` more than it was charged for."""
        flow.out -= 1
        flow.account = account = flow.account + by / flow.share
        if account > self.horizon:
            self.horizon = account
        if self._heap and flow.is_waiting:
            self._move(flow)

    def least(self) -> F | None:
        """Of the flows that wait, the one with the least account; ``None`` if none does."""
        heap = self._heap
        while heap:
            _, turn, flow = heap[0]
            if turn == flow._turn:
                return flow
            heappop(heap)
        return self.sole

    def behind(self, count: int) -> list[F]:
        """The ``count`` waiting flows that have been served least, least first. Costs O(flows)."""
        if self.sole is not None:
            return [self.sole]
        return [flow for _, _, flow in nsmallest(count, self._valid())]

    def may_forget(self, flow: F) -> bool:
        """Whether its account says nothing any more: it would be raised past it, should it come back."""
        return not flow.is_waiting and not flow.out and flow.account <= self.virtual_time

    def _move(self, flow: F) -> None:
        """Put ``flow`` where its account belongs, behind those with the same."""
        self._turns += 1
        heap = self._heap
        entry = (flow.account, self._turns, flow)
        # Whoever is charged was first, nearly always: then its old entry is replaced, and none is left behind.
        if heap and heap[0][2] is flow:
            heapreplace(heap, entry)
        else:
            heappush(heap, entry)
        flow._turn = self._turns
        if len(heap) > 2 * self.waiting + 8:
            heap[:] = self._valid()
            heapify(heap)

    def _valid(self) -> list[tuple[float, int, F]]:
        return [entry for entry in self._heap if entry[1] == entry[2]._turn]
