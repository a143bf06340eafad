"""The probe broker: one for each engine object, shared by every consumer, and with other processes through a file.

Whoever asks after a provider gets what is known, if that is fresh; else they join the *flight*: one task in the
engine's nursery, at most one for each provider at a time, which decides (``probe_rules``), sends one ticket of class
``probe`` through the provider's own lane if it may, and wakes all who joined. Nobody owns a flight: an asker that is
cancelled just leaves, the call goes on, and its answer, which has been paid for, serves the others and the next. A
flight in the task of one asker would need to be handed on when that asker is cancelled, and every hand-over would buy
another call: pollers with a short patience would put the load on the engine that probes are to keep off it.

Between processes the flight is a row of the file (``probe_tables``), taken in the transaction that decides. A process
that finds another's looks again every quarter of a second: a file tells nobody.

Real work is learned as a listener of the ledger, without polling.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs
import trio

from embedkit.activity.process import Process, this_process
from embedkit.admission.ticket import Ids, Ticket
from embedkit.errors import UsageError
from embedkit.probing.call import Answer, Target, ask
from embedkit.probing.rules import (
    BusyBehindBatch,
    Decision,
    Finding,
    Join,
    Reuse,
    Send,
    Verdict,
    decide,
    find,
    next_result,
)
from embedkit.probing.sharing import SharedFile, prepare
from embedkit.probing.tables import Writer
from embedkit.probing.watched import Flight, Watched
from embedkit.probing.work import Work

if TYPE_CHECKING:
    from embedkit.activity.rows import TicketRow
    from embedkit.database import Database
    from embedkit.settings import ProbeSettings

# Seconds that one probe call may take, and that it may wait in the lane besides.
CALL_SECONDS = 60.0
QUEUE_SECONDS = 60.0
# What a flight may take besides, before others take its holder for lost.
_MARGIN = 10.0
_LOOK_EVERY = 0.25
_GOODBYE = 1.0


class ProbeBroker:
    """Answers "can this provider answer at all", for everybody.

    Args:
        nursery: The engine's; flights run in it.
        rules: How long answers are fresh, and what share of the calls probes may be.
        wall_clock: Seconds since the epoch; the clock of the ledger that it listens to.
        interval: Seconds between two entries of real work into the file, at least.
        process: Who writes there.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        rules: ProbeSettings,
        *,
        wall_clock: Callable[[], float] = time.time,
        interval: float = 5.0,
        process: Process | None = None,
    ) -> None:
        self._nursery = nursery
        self._rules = rules
        self._wall_clock = wall_clock
        self._interval = interval
        self._process = process or this_process()
        self._watched: dict[str, Watched] = {}
        self._file: SharedFile | None = None
        self._stirred = trio.Event()
        self._quiet = True

    def watch(self, target: Target[Any]) -> None:
        """``target`` can be probed from now on, and its real work counts."""
        work = Work(math.inf if target.timeout is None else target.timeout)
        self._watched[target.provider] = Watched(target, work, Writer(secrets.token_hex(8), self._process))

    def changed(self, row: TicketRow) -> None:
        """The ledger's word: a row changed. Synchronous, a fraction of a microsecond."""
        watched = self._watched.get(row.lane)
        if watched is None or row.priority == "probe":
            return
        if watched.work.changed(row) and self._quiet:
            self._quiet = False
            self._stirred.set()

    async def probe(self, provider: str) -> Verdict:
        """Whether ``provider`` can answer: from what is known if that is fresh, else by at most one call for everybody.

        Raises:
            UsageError: Nobody watches such a provider, or no call to it can be made at all.

        Cancellation:
            The asker has left. A call that is out goes on, and its answer is kept.
        """
        asked_at = trio.current_time()
        watched = self._of(provider)
        await trio.lowlevel.checkpoint()
        decision: Decision | None = self._decide_alone(watched, asked_at)
        if self._file is not None and not isinstance(decision, Reuse | BusyBehindBatch):
            decision = await self._file.consult(watched, asked_at)
        if isinstance(decision, Reuse | BusyBehindBatch):
            return _verdict(watched, decision.finding, asked_at)
        dimension = await watched.target.prepare()
        flight, joined = watched.flight, True
        if flight is None:
            flight, joined = self._take_off(watched, asked_at, dimension), False
        await flight.landed.wait()
        return _verdict(watched, flight.finding, asked_at, shared=joined or not flight.asked)

    def verdict(self, provider: str) -> Verdict:
        """What this process knows, now. Starts nothing and reads no file: for health endpoints.

        Raises:
            UsageError: Nobody watches such a provider.
        """
        watched = self._of(provider)
        return _verdict(watched, self._find_alone(watched), trio.current_time())

    async def read(self, provider: str) -> Verdict:
        """What all processes know, now. Reads the file where there is one, and starts nothing.

        Raises:
            UsageError: Nobody watches such a provider.
            StoreError: The file's trouble, by kind.

        Cancellation:
            Nothing was changed.
        """
        watched = self._of(provider)
        await trio.lowlevel.checkpoint()
        if self._file is None:
            return self.verdict(provider)
        asked_at = trio.current_time()
        told = await self._file.read(watched)
        watched.learn(told)
        now = trio.current_time()
        own = watched.state(now, self._wall_clock())
        everybody = attrs.evolve(own, busy_until=max(own.busy_until, told.busy_until))
        return _verdict(watched, find(everybody, self._rules, now), asked_at)

    async def share(self, database: Database) -> None:
        """Share verdicts, flights and the budget through ``database`` from now on, to the engine's end.

        Raises:
            StoreError: Its tables cannot be made. What fails later is logged, and ends nothing.

        Cancellation:
            Nothing is shared, but for tables that may have been made.
        """
        await prepare(database)
        # No checkpoint from here.
        patience = QUEUE_SECONDS + CALL_SECONDS + _MARGIN
        self._file = SharedFile(database, self._rules, self._wall_clock, self._process, patience)
        self._nursery.start_soon(self._keep_telling, self._file, name="embedkit probes in the file")

    async def _keep_telling(self, file: SharedFile) -> None:
        """Write real work into the file. When it ends it says, within a second, that no batch call is out any more."""
        try:
            while True:
                await self._stirred.wait()
                self._stirred, self._quiet = trio.Event(), True
                await file.tell(self._watched.values())
                await trio.sleep(self._interval)
        finally:
            with trio.move_on_after(_GOODBYE, shield=True):
                await file.tell(self._watched.values(), idle=True)

    def _take_off(self, watched: Watched, asked_at: float, dimension: int | None) -> Flight:
        flight = Flight()
        name = f"embedkit probe of {watched.target.provider}"
        self._nursery.start_soon(self._fly, watched, flight, asked_at, dimension, name=name)
        watched.flight = flight
        return flight

    async def _fly(self, watched: Watched, flight: Flight, asked_at: float, dimension: int | None) -> None:
        """Get an answer. All who joined are woken, however it ends."""
        try:
            while isinstance(decision := await self._claim(watched, asked_at), Join):  # noqa: ASYNC110  # a file
                await trio.sleep(_LOOK_EVERY)
            if isinstance(decision, Send):
                flight.asked = True
                flight.finding = await self._send(watched, dimension)
            else:
                flight.finding = decision.finding
        finally:
            watched.flight = None
            flight.landed.set()

    async def _claim(self, watched: Watched, asked_at: float) -> Decision:
        if self._file is None:
            await trio.lowlevel.checkpoint()
            return self._decide_alone(watched, asked_at)
        return await self._file.claim(watched, asked_at) or self._decide_alone(watched, asked_at)

    def _decide_alone(self, watched: Watched, asked_at: float) -> Decision:
        now = trio.current_time()
        return decide(watched.state(now, self._wall_clock()), self._rules, now, asked_at)

    def _find_alone(self, watched: Watched) -> Finding:
        now = trio.current_time()
        return find(watched.state(now, self._wall_clock()), self._rules, now)

    async def _send(self, watched: Watched, dimension: int | None) -> Finding:
        """Make the call, and write down what came of it.

        Cancellation:
            The engine is ending. The flight is given back within a second.
        """
        limit = watched.target.timeout
        ticket = Ticket(
            priority="probe",
            timeout=CALL_SECONDS if limit is None else min(limit, CALL_SECONDS),
            limit_name="a probe's limit",
            deadline_at=trio.current_time() + QUEUE_SECONDS + CALL_SECONDS,
            ids=Ids(stage="probe"),
        )
        answer: Answer | None = None
        called_at: float | None = None

        def note_call() -> None:
            nonlocal called_at
            called_at = trio.current_time() if called_at is None else called_at

        try:
            answer = await ask(watched.target, ticket, dimension, note_call)
        finally:
            await self._land(watched, called_at, answer)
        known = self._find_alone(watched)
        # Where the probe came to nothing, real work may have told meanwhile.
        return answer.finding() if answer.learned or known.word == "unknown" else known

    async def _land(self, watched: Watched, called_at: float | None, answer: Answer | None) -> None:
        """Enter the call and its answer; ``None``: it was cut off, and nothing was learned."""
        now = trio.current_time()
        outcome = (answer.reason,) if answer is not None and answer.learned else None
        if called_at is not None:
            watched.calls.append(called_at)
        if outcome is not None:
            watched.result = next_result(watched.state(now, self._wall_clock()), outcome[0], now)
        if self._file is not None:
            cut_off = answer is None
            with trio.move_on_after(_GOODBYE if cut_off else math.inf, shield=cut_off):
                await self._file.land(watched, called_at, outcome)

    def _of(self, provider: str) -> Watched:
        watched = self._watched.get(provider)
        if watched is None:
            known = ", ".join(sorted(self._watched)) or "none"
            raise UsageError(f"no lane of provider {provider!r} is open, so it has no verdict; open: {known}")
        return watched


def _verdict(watched: Watched, finding: Finding, asked_at: float, *, shared: bool = True) -> Verdict:
    elapsed = trio.current_time() - asked_at
    return Verdict(watched.target.provider, finding.word, finding.reason, finding.age, shared, elapsed)
