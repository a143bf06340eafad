"""A scenario with its stage built around it, played once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import trio
from trio.testing import MockClock

from embedkit import LaneClosed, LaneFull, Ledger
from embedkit.testing.books import accounted, check_books
from embedkit.testing.lane_under_test import Feature, LaneUnderTest, MakeLane, Settlement
from embedkit.testing.laws.scenario import Scenario
from embedkit.testing.report import LawVerdict
from embedkit.testing.schedules import Watch, run_scenario
from embedkit.testing.stage import Stage
from embedkit.testing.trace import Findings, LawBroken, Trace, require

FOR_EVER = 100_000.0
# A waiting room of this size, or less, is filled to the last place once the play is over.
_SMALL = 8
_STUCK = "; cancelling it did not end it: does the lane shield its callers, swallow Cancelled, or raise in cancel()?"


def play(
    scenario: Scenario,
    make_lane: MakeLane,
    settlement: Settlement,
    seed: int,
    *,
    without: frozenset[Feature] = frozenset(),
) -> LawVerdict:
    """One scenario on a new lane."""
    production = _Production(scenario, make_lane, settlement, without)
    try:
        run_scenario(production.main, seed, production.watch)
    except trio.TrioInternalError as error:
        production.note_downfall(error)
    return production.verdict(seed)


class _Production:
    def __init__(
        self, scenario: Scenario, make_lane: MakeLane, settlement: Settlement, without: frozenset[Feature]
    ) -> None:
        self._scenario = scenario
        self._make_lane = make_lane
        self._settlement = settlement
        self._without = without
        self._stage: Stage | None = None
        self._crash: BaseException | None = None
        self._was_made = False
        self._ledger = Ledger(keep=100_000)
        self._trace = Trace()
        self._findings = Findings()
        self.watch = Watch(self._weigh if scenario.conserves else lambda: None)

    def verdict(self, seed: int) -> LawVerdict:
        law, watch = self._scenario.law, self.watch
        if watch.given_up is not None:
            self._findings.did(law, watch.given_up)
            if watch.was_stuck and self._findings.does is not None:
                self._findings.does = attrs.evolve(self._findings.does, what=self._findings.does.what + _STUCK)
        was_given_up = watch.given_up is not None or not self._was_made
        return LawVerdict(
            law, self._scenario.name, seed, self._findings.does, self._findings.writes, str(self._trace), was_given_up
        )

    def note_downfall(self, error: trio.TrioInternalError) -> None:
        """The lane has raised where trio can only end: in a callback of its own, or inside ``cancel()``."""
        self._say(f"the lane brought trio itself down: {_first(error.__cause__ or error)!r}")

    async def main(self, clock: MockClock) -> None:
        async with trio.open_nursery() as root:
            self.watch.scope = root.cancel_scope
            made = await root.start(self._host)
            if made is not None:
                engine, lane = made
                self._was_made = True
                self._stage = self._set_stage(engine, lane, root, clock)
                await self._perform(self._stage)
            self.watch.is_ending = True
            root.cancel_scope.cancel()

    def _set_stage(self, engine: trio.Nursery, lane: LaneUnderTest, root: trio.Nursery, clock: MockClock) -> Stage:
        options = self._scenario.options
        return Stage(
            lane,
            self._settlement,
            root,
            engine,
            clock,
            self._trace,
            capacity=options.capacity,
            reserve=0 if "reserve" in self._without else options.reserve,
            without=self._without,
            ledger=self._ledger,
            findings=self._findings,
        )

    async def _perform(self, stage: Stage) -> None:
        with trio.move_on_after(FOR_EVER) as whole:
            await self._play(stage)
        crash = stage.crash or self._crash
        if crash is not None and not _consists_of(crash, self._scenario.passes):
            self._say(f"the lane raised {_first(crash)!r}")
        if whole.cancelled_caught:
            self._say("somebody waits for ever")

    async def _play(self, stage: Stage) -> None:
        try:
            await self._scenario.play(stage)
            await self._come_to_rest(stage)
        except* LawBroken as group:  # a group, where it comes out of a nursery of the play's own
            broken = _first(group)
            assert isinstance(broken, LawBroken)
            self._findings.did(broken.law or self._scenario.law, str(broken))
        except* Exception as group:
            self._say(f"the scenario cannot go on: {_first(group)!r}")

    async def _come_to_rest(self, stage: Stage) -> None:
        """Everything offered is answered, the books are right, and the lane serves as before."""
        if self._scenario.passes is not None or stage.crash is not None:
            return
        with trio.move_on_after(FOR_EVER / 2) as patience:
            await stage.run_dry()
        waiting = [caller.name for caller in stage.everybody if not caller.back.is_set()]
        require(not patience.cancelled_caught, f"{', '.join(waiting[:5])} of {len(waiting)} wait for ever", law=6)
        if self._findings.does is not None:
            return
        check_books(stage)
        if stage.is_over or stage.is_closed:
            late = await stage.park("late")
            require(isinstance(late.error, LaneClosed), f"the lane has ended, and 'late' gets {late.fate}", law=6)
        else:
            await self._check_serves(stage)

    async def _check_serves(self, stage: Stage) -> None:
        """As many calls at once as ever, and as many places to wait as ever."""
        assert stage.capacity is not None
        few = min(stage.capacity, _SMALL)
        out = [await stage.park(f"after {number}") for number in range(few)]
        began = sum(caller.calls for caller in out)
        require(began == few, f"all was over; of {few} new tickets {began} were dispatched at once", law=2)
        if few == stage.capacity and hasattr(stage.lane, "run_nowait") and self._scenario.options.max_queued <= _SMALL:
            await self._check_room_to_wait(stage, self._scenario.options.max_queued)
        with trio.move_on_after(FOR_EVER / 4) as patience:
            await stage.run_dry()
        require(not patience.cancelled_caught, "all was over; a new ticket waits for ever", law=6)

    async def _check_room_to_wait(self, stage: Stage, places: int) -> None:
        waiting = [await stage.park(f"waits {number}", by_nowait=True) for number in range(places)]
        for caller in waiting:
            require(caller.error is None, f"{places} may wait, and {caller.name} gets {caller.fate}", law=6)
        one_more = await stage.park("one more", by_nowait=True)
        require(isinstance(one_more.error, LaneFull), f"{places} may wait, and one more gets {one_more.fate}", law=6)

    async def _host(
        self, task_status: trio.TaskStatus[tuple[trio.Nursery, LaneUnderTest] | None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """The lane's nursery, in a task of its own: its end is not the callers' end."""
        try:
            async with trio.open_nursery() as engine:
                try:
                    lane = self._make_lane(engine, **self._options())
                except Exception as error:
                    self._say(f"make_lane raised {error!r}")
                    task_status.started(None)
                    return
                task_status.started((engine, lane))
                await trio.sleep_forever()
        except BaseExceptionGroup as group:
            _, crash = group.split(trio.Cancelled)
            self._note_crash(crash)

    def _options(self) -> dict[str, Any]:
        options = attrs.asdict(self._scenario.options, recurse=False)
        if "refresh" in self._scenario.calls:
            options["capacity"] = self._capacity_now(options["capacity"])
        if "reserve" in self._without:
            options["reserve"] = 0
        return {"ledger": self._ledger, **options}

    def _capacity_now(self, first: int) -> Callable[[], int]:
        def capacity() -> int:
            stage = self._stage
            return first if stage is None or stage.capacity is None else stage.capacity

        return capacity

    def _note_crash(self, crash: BaseException | None) -> None:
        self._crash = crash
        if self._stage is not None and crash is not None:
            self._stage.crash = crash

    def _say(self, what: str) -> None:
        self._findings.did(self._scenario.law, what)

    def _weigh(self) -> None:
        """Law 6, between any two steps."""
        if self._stage is None or self._findings.writes is not None:
            return
        totals = self._stage.totals
        if totals.offered != accounted(totals):
            self._findings.wrote(
                6, f"{totals.offered} tickets were offered and {accounted(totals)} are accounted for: {totals}"
            )


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _consists_of(crash: BaseException, kind: type[BaseException] | None) -> bool:
    if kind is None:
        return False
    if isinstance(crash, BaseExceptionGroup):
        return all(_consists_of(part, kind) for part in crash.exceptions)
    return isinstance(crash, kind)
