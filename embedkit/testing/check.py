"""Holds a lane to the seven laws, and says what it found."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import trio
from trio.testing import MockClock

from embedkit import Ledger
from embedkit.testing.lane_under_test import LaneUnderTest, MakeLane, Settlement
from embedkit.testing.laws import scenarios_of
from embedkit.testing.laws.conservation import accounted
from embedkit.testing.laws.scenario import TITLES, Scenario
from embedkit.testing.schedules import Watch, run_scenario
from embedkit.testing.stage import Stage
from embedkit.testing.trace import LawBroken, Trace

SEEDS = (1, 2, 3)
FOR_EVER = 100_000.0


@attrs.frozen
class LawVerdict:
    """One scenario under one schedule.

    Attributes:
        law: 1 to 7.
        scenario: Its name.
        seed: Of the schedule.
        broken: What was wrong; ``None``: the law was kept.
        trace: The interleaving, a line an event.
    """

    law: int
    scenario: str
    seed: int
    broken: str | None
    trace: str

    def __str__(self) -> str:
        head = f"law {self.law} ({TITLES[self.law]}), {self.scenario!r}, seed {self.seed}"
        return f"{head}: kept" if self.broken is None else f"{head}:\n  {self.broken}\n{self.trace}"


@attrs.frozen
class LawReport:
    """What ``judge_lane`` found.

    Attributes:
        verdicts: One for each scenario and seed.
    """

    verdicts: tuple[LawVerdict, ...]

    @property
    def broken(self) -> tuple[LawVerdict, ...]:
        """Those that show a broken law."""
        return tuple(verdict for verdict in self.verdicts if verdict.broken is not None)

    @property
    def broken_laws(self) -> frozenset[int]:
        """The numbers of the laws that were broken."""
        return frozenset(verdict.law for verdict in self.broken)

    def __str__(self) -> str:
        """A line a law, then the first failure of each scenario that failed."""
        first: dict[str, LawVerdict] = {}
        for verdict in self.broken:
            first.setdefault(verdict.scenario, verdict)
        return "\n\n".join(
            ["\n".join(map(self._line, sorted({verdict.law for verdict in self.verdicts}))), *map(str, first.values())]
        )

    def _line(self, law: int) -> str:
        of_law = [verdict for verdict in self.verdicts if verdict.law == law]
        scenarios = {verdict.scenario for verdict in of_law}
        broken = {verdict.scenario for verdict in of_law if verdict.broken is not None}
        word = f"BROKEN in {len(broken)} of" if broken else "kept in all"
        return f"law {law}, {TITLES[law]}: {word} {len(scenarios)} scenarios"


def judge_lane(
    make_lane: MakeLane, *, settlement: Settlement, laws: Sequence[int] = (), seeds: Sequence[int] = SEEDS
) -> LawReport:
    """Play every scenario under every seed, in virtual time, and report. Not to be called inside a trio run.

    Args:
        make_lane: Makes a new lane for each play.
        settlement: What the lane's kind declares.
        laws: Which laws; all, if none is named.
        seeds: Of the schedules.
    """
    scenarios = [scenario for scenario in scenarios_of(*laws) if scenario.settlement in (None, settlement)]
    return LawReport(tuple(play(scenario, make_lane, settlement, seed) for scenario in scenarios for seed in seeds))


def check_lane(
    make_lane: MakeLane, *, settlement: Settlement, laws: Sequence[int] = (), seeds: Sequence[int] = SEEDS
) -> LawReport:
    """``judge_lane``, for a test.

    Raises:
        LawBroken: The report, with the interleaving of each scenario that failed.
    """
    report = judge_lane(make_lane, settlement=settlement, laws=laws, seeds=seeds)
    if report.broken:
        raise LawBroken(str(report))
    return report


def play(scenario: Scenario, make_lane: MakeLane, settlement: Settlement, seed: int) -> LawVerdict:
    """One scenario on a new lane."""
    production = _Production(scenario, make_lane, settlement)
    run_scenario(production.main, seed, production.watch)
    return LawVerdict(scenario.law, scenario.name, seed, production.broken, str(production.trace))


class _Production:
    """A scenario with its stage built around it."""

    def __init__(self, scenario: Scenario, make_lane: MakeLane, settlement: Settlement) -> None:
        self._scenario = scenario
        self._make_lane = make_lane
        self._settlement = settlement
        self._stage: Stage | None = None
        self._crash: BaseException | None = None
        self.trace = Trace()
        self.broken: str | None = None
        self.watch = Watch(self._weigh) if scenario.conserves else Watch()

    async def main(self, clock: MockClock) -> None:
        async with trio.open_nursery() as root:
            self.watch.scope = root.cancel_scope
            engine, lane = await root.start(self._host)
            self._stage = Stage(lane, self._settlement, root, engine, clock, self.trace)
            await self._perform(self._stage)
            root.cancel_scope.cancel()
        if self.watch.spins:
            self._say("tasks run and run at one instant: the lane spins, and no time passes")

    async def _perform(self, stage: Stage) -> None:
        try:
            with trio.fail_after(FOR_EVER):
                await self._play(stage)
            crash = stage.crash or self._crash
            if crash is not None and not _consists_of(crash, self._scenario.passes):
                self._say(f"the lane raised {crash!r}")
        except trio.TooSlowError:
            self._say("somebody waits for ever")

    async def _play(self, stage: Stage) -> None:
        try:
            await self._scenario.play(stage)
        except* LawBroken as group:  # a group, where it comes out of a nursery of the play's own
            self._say(str(_first(group)))
        except* Exception as group:
            self._say(f"the scenario cannot go on: {_first(group)!r}")

    async def _host(
        self, task_status: trio.TaskStatus[tuple[trio.Nursery, LaneUnderTest]] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """The lane's nursery, in a task of its own: its end is not the callers' end."""
        try:
            async with trio.open_nursery() as engine:
                lane = self._make_lane(engine, ledger=Ledger(), **attrs.asdict(self._scenario.options, recurse=False))
                task_status.started((engine, lane))
                await trio.sleep_forever()
        except BaseExceptionGroup as group:
            _, crash = group.split(trio.Cancelled)
            self._note_crash(crash)

    def _note_crash(self, crash: BaseException | None) -> None:
        self._crash = crash
        if self._stage is not None and crash is not None:
            self._stage.crash = crash

    def _say(self, what: str) -> None:
        if self.broken is None:
            self.broken = what

    def _weigh(self) -> None:
        """Law 6, between any two steps."""
        if self._stage is None or self.broken is not None:
            return
        totals = self._stage.totals
        if totals.offered != accounted(totals):
            self._say(f"{totals.offered} tickets were offered and {accounted(totals)} are accounted for: {totals}")


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _consists_of(crash: BaseException, kind: type[BaseException] | None) -> bool:
    if kind is None:
        return False
    if isinstance(crash, BaseExceptionGroup):
        return all(_consists_of(part, kind) for part in crash.exceptions)
    return isinstance(crash, kind)
