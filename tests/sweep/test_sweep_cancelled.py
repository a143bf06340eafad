"""A sweep that is cancelled at any step leaves a store that the next one completes, and loses nothing it bought."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
from fakes import FakeCall, FakeProvider, opened, tenant, write_tree
from store_content import Content, content_of

from embedkit.errors import ContentRefused
from embedkit.sweep.outcome import SweepReport
from embedkit.sweep.sweep import Sweep, open_sweep

BEFORE = {
    "same.txt": "same\n",
    "changed.txt": "old\n",
    "moved.txt": "moved\n",
    "gone.txt": "gone\n",
    "two.txt": "same\n",
}
AFTER = {
    "same.txt": "same\n",
    "changed.txt": "new\n",
    "place/moved.txt": "moved\n",
    "added.py": "def added():\n    1\n",
}


class CancelAtStep(trio.abc.Instrument):
    """Cancels ``scope`` just before the task step of this number, counted from 1."""

    def __init__(self, step: int, scope: trio.CancelScope, provider: FakeProvider) -> None:
        self.steps = 0
        self.answered: list[str] | None = None
        self._at = step
        self._scope = scope
        self._provider = provider

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps += 1
        if self.steps == self._at:
            self.answered = list(self._provider.answered)
            self._scope.cancel()


async def yields(call: FakeCall) -> None:
    await trio.lowlevel.checkpoint()


@attrs.frozen
class Place:
    root: Path
    store: Path

    @classmethod
    async def made(cls, folder: Path) -> Place:
        """A store that holds ``BEFORE``, and a folder that holds ``AFTER``."""
        place = cls(folder / "root", folder / "store.sqlite3")
        write_tree(place.root, BEFORE)
        await place.sweep(FakeProvider())
        for path in BEFORE:
            (place.root / path).unlink()
        write_tree(place.root, AFTER)
        return place

    async def sweep(self, provider: FakeProvider) -> SweepReport:
        async with self.opened_sweep(provider) as sweep:
            return await sweep.run()

    @asynccontextmanager
    async def opened_sweep(self, provider: FakeProvider) -> AsyncGenerator[Sweep]:
        async with (
            opened(self.store, provider, batch=1) as engine,
            open_sweep(engine, [tenant("a", api=self.root)], all=True) as sweep,
        ):
            yield sweep

    async def interrupted(self, step: int, *, engine_too: bool) -> tuple[CancelAtStep, FakeProvider, bool]:
        """Cancel at a step; also says whether the sweep was over before."""
        provider = FakeProvider(yields)
        scope = trio.CancelScope()
        instrument = CancelAtStep(step, scope, provider)
        over = False
        if engine_too:
            trio.lowlevel.add_instrument(instrument)
            with scope:
                await self.sweep(provider)
                over = True
        else:
            async with self.opened_sweep(provider) as sweep:
                trio.lowlevel.add_instrument(instrument)
                with scope:
                    await sweep.run()
                    over = True
        trio.lowlevel.remove_instrument(instrument)
        return instrument, provider, over


async def undisturbed(folder: Path) -> Content:
    place = await Place.made(folder)
    await place.sweep(FakeProvider())
    return content_of(place.store)


async def check(folder: Path, step: int, expected: Content, *, engine_too: bool) -> bool:
    """One cell of the matrix; whether ``step`` lies behind the sweep's end."""
    place = await Place.made(folder)
    instrument, first, over = await place.interrupted(step, engine_too=engine_too)
    at_rest = content_of(place.store)  # asserts that it holds together
    second = FakeProvider()
    report = await place.sweep(second)
    assert report.status == "completed"
    assert content_of(place.store) == expected
    if instrument.answered is not None:
        # Bought is kept: what had been answered by then is in the store, and is not asked for again.
        assert not set(instrument.answered) & set(second.inputs), at_rest
    assert sorted(first.inputs) == sorted(set(first.inputs))
    return over


def steps_of(most: int, count: int) -> Sequence[int]:
    return sorted(random.Random(0).sample(range(1, most + 1), min(count, most)))


async def length(folder: Path, *, engine_too: bool) -> int:
    place = await Place.made(folder)
    instrument, _, over = await place.interrupted(10**9, engine_too=engine_too)
    assert over
    return instrument.steps


@pytest.mark.parametrize("engine_too", [False, True], ids=["the sweep", "the engine too"])
async def test_cancelled_at_some_steps(tmp_path: Path, engine_too: bool) -> None:
    most = await length(tmp_path / "length", engine_too=engine_too)
    expected = await undisturbed(tmp_path / "undisturbed")
    for step in steps_of(most, 8):
        await check(tmp_path / str(step), step, expected, engine_too=engine_too)


@pytest.mark.soak
@pytest.mark.parametrize("engine_too", [False, True], ids=["the sweep", "the engine too"])
async def test_cancelled_at_every_step(tmp_path: Path, engine_too: bool) -> None:
    expected = await undisturbed(tmp_path / "undisturbed")
    step = 1
    while not await check(tmp_path / str(step), step, expected, engine_too=engine_too):
        step += 1
    assert step > 50


async def test_a_cancelled_sweep_gives_its_lease_back_and_says_how_far_it_came(tmp_path: Path) -> None:
    asked = trio.Event()

    async def third_waits(call: FakeCall) -> None:
        if call.number == 3:
            asked.set()
            await trio.sleep_forever()

    root = write_tree(tmp_path / "root", {f"{number}.txt": f"text {number}\n" for number in range(5)})
    provider = FakeProvider(third_waits)
    reports: list[SweepReport] = []
    async with opened(tmp_path / "store.sqlite3", provider, batch=1) as engine:
        async with trio.open_nursery() as nursery:

            async def run() -> None:
                async with open_sweep(engine, [tenant("a", api=root)], all=True) as sweep:
                    try:
                        await sweep.run()
                    finally:
                        reports.append(sweep.report())

            nursery.start_soon(run)
            await asked.wait()
            nursery.cancel_scope.cancel()
        store = await engine.knowledge()
        (record,) = await store.repositories()
        assert (record.last, record.streak, record.next_due_at) == (None, 0, None)
        await store.lease(record)
        engine.nursery.cancel_scope.cancel()
    (report,) = reports
    assert report.status == "aborted"
    (item,) = report.repositories
    assert (item.outcome, item.code, item.embedded, item.outstanding) == ("aborted", "KB_SWEEP_ABORTED", 2, 3)
    assert (item.chunks, item.fenced) == (2, 0)


async def test_the_report_of_what_was_cut_off_counts_what_is_stored(tmp_path: Path) -> None:
    """Also what earlier sweeps had stored, and what fences leave out."""
    root = write_tree(tmp_path / "root", {f"{number}.txt": f"text {number}\n" for number in range(4)})
    store = tmp_path / "store.sqlite3"

    async def refuses_one(call: FakeCall) -> None:
        if "text 0" in "".join(call.texts):
            raise ContentRefused("refused")

    await Place(root, store).sweep(FakeProvider(refuses_one))
    write_tree(root, {"4.txt": "text 4\n", "5.txt": "text 5\n"})

    async def second_cancels(call: FakeCall) -> None:
        if call.number == 2:
            scope.cancel()

    async with Place(root, store).opened_sweep(FakeProvider(second_cancels)) as sweep:
        with trio.CancelScope() as scope:
            await sweep.run()
        (item,) = sweep.report().repositories
    assert (item.outcome, item.chunks, item.fenced, item.embedded) == ("aborted", 4, 1, 1)
