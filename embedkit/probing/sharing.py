"""One process's dealings with the file in which processes share verdicts, flights and the budget.

Here trio's clock is translated to the wall clock and back, and here a file that cannot be used is survived: what others
are to know, or could have told, is no reason why a probe should fail. That is logged once, and the process decides by
what it knows itself.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import attrs
import trio

from embedkit.activity.process import Process, this_process
from embedkit.errors import StoreError
from embedkit.probing import tables
from embedkit.probing.rules import NEVER, Decision, ProbeState, Verdict, decide, find

if TYPE_CHECKING:
    import sqlite3

    from embedkit.database import Database
    from embedkit.probing.watched import Watched
    from embedkit.probing.work import News
    from embedkit.settings import ProbeSettings

logger = logging.getLogger("embedkit.probing")

T = TypeVar("T")


class SharedFile:
    """The knowledge base's file, as the broker uses it.

    Args:
        database: Open, with the tables of ``prepare``.
        rules: As the broker's.
        wall_clock: Seconds since the epoch.
        process: Who asks.
        patience: Seconds that a flight may take before others take its holder for lost.
    """

    def __init__(
        self,
        database: Database,
        rules: ProbeSettings,
        wall_clock: Callable[[], float],
        process: Process,
        patience: float,
    ) -> None:
        self._database = database
        self._rules = rules
        self._wall_clock = wall_clock
        self._process = process
        self._patience = patience
        self._complained = False

    async def claim(self, watched: Watched, asked_at: float) -> Decision | None:
        """Decide with all that processes know; after ``Send`` the flight is ours. ``None``: the file cannot be used.

        Cancellation:
            Nothing was decided. If it came too late for that, it is raised at the next checkpoint.
        """
        wall, ahead = self._clocks()
        work = partial(
            tables.claim,
            watched.target.engine,
            watched.writer,
            watched.work.news(ahead),
            self._rules,
            wall,
            asked_at + ahead,
            self._patience,
        )
        claim = await self._survived(partial(self._database.write, work))
        if claim is None:
            return None
        watched.learn(_moved(claim.state, -ahead))
        return claim.decision

    async def consult(self, watched: Watched, asked_at: float) -> Decision | None:
        """What all processes know says, with nothing told or taken; see ``claim``.

        Cancellation:
            Nothing was changed.
        """
        told = await self._survived(partial(self.read, watched))
        if told is None:
            return None
        watched.learn(told)
        return decide(told, self._rules, trio.current_time(), asked_at)

    async def land(self, watched: Watched, called_at: float | None, outcome: tuple[str | None] | None) -> None:
        """Give the flight back; see ``tables.land``.

        Cancellation:
            It was given back, or stands until this process claims again or ends.
        """
        wall, ahead = self._clocks()
        called = None if called_at is None else called_at + ahead
        work = partial(tables.land, watched.target.engine, watched.writer, called, outcome, wall)
        await self._survived(partial(self._database.write, work))

    async def tell(self, watched: Iterable[Watched], *, idle: bool = False) -> None:
        """Enter real work; with ``idle``, that no batch call is out any more.

        Cancellation:
            All of it was entered, or nothing.
        """
        wall, ahead = self._clocks()
        news = [(item, item.work.news(ahead)) for item in watched]
        if idle:
            news = [(item, attrs.evolve(seen, busy_until=NEVER)) for item, seen in news]
        if news:
            await self._survived(partial(self._database.write, partial(_tell_all, news, wall)))

    async def read(self, watched: Watched) -> ProbeState:
        """All that processes know, on trio's clock; but not which batch calls this one has out.

        Raises:
            StoreError: The file's trouble, by kind.

        Cancellation:
            Nothing was changed.
        """
        wall, ahead = self._clocks()
        read = partial(
            tables.read_state,
            watched.target.engine,
            self._process,
            wall,
            apart_from=watched.writer.id,
        )
        return _moved(await self._database.read(read), -ahead)

    async def _survived(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """Do ``work``, or complain.

        Cancellation:
            As ``work``.
        """
        try:
            return await work()
        except StoreError as error:
            if not self._complained:
                self._complained = True
                logger.warning("probes are not shared with other processes while this lasts: %s", error)
            return None

    def _clocks(self) -> tuple[float, float]:
        """The wall clock, and how far it is ahead of trio's."""
        wall = self._wall_clock()
        return wall, wall - trio.current_time()


async def prepare(database: Database) -> None:
    """Make or bring up to date the tables.

    Raises:
        StoreError: The file's trouble, by kind.

    Cancellation:
        Each step was done whole or not at all.
    """
    await database.migrate(tables.COMPONENT, tables.STEPS)


async def read_verdict(
    database: Database, provider: str, engine: str, rules: ProbeSettings, now: float
) -> Verdict | None:
    """What the file says of an engine at wall-clock time ``now``, for those who have no broker; ``None``: nothing.

    Raises:
        StoreError: The file's trouble, by kind.

    Cancellation:
        Nothing was changed.
    """
    await prepare(database)
    state = await database.read(partial(tables.read_state, engine, this_process(), now))
    finding = find(state, rules, now)
    if finding.age is None:
        return None
    return Verdict(provider, finding.word, finding.reason, finding.age, shared=True, elapsed=0.0)


def _moved(state: ProbeState, by: float) -> ProbeState:
    """``state`` on another clock."""
    result = state.result
    return attrs.evolve(
        state,
        result=None if result is None else attrs.evolve(result, ended_at=result.ended_at + by),
        success_at=state.success_at + by,
        busy_until=state.busy_until + by,
        called_at=state.called_at + by,
        flight_until=state.flight_until + by,
    )


def _tell_all(news: list[tuple[Watched, News]], now: float, connection: sqlite3.Connection) -> None:
    for watched, seen in news:
        tables.tell(watched.target.engine, watched.writer, seen, now, connection)
