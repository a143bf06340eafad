"""The first ticket of a repository goes alone, until the engine has answered once; then all go that may."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import trio
from fakes import FakeCall, FakeProvider, Script, numbered, opened, settings_of, tenant, until, write_tree
from store_content import content_of
from trio.testing import MockClock, wait_all_tasks_blocked

from embedkit.engine import open_engine
from embedkit.errors import ConnectionRefused, ContentRefused, ProviderTimeout
from embedkit.knowledge.indexing.bisecting import CONTROL
from embedkit.settings import ProviderSettings
from embedkit.sweep.sweep import open_sweep


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tree(tmp_path_factory.mktemp("large"), numbered(2_260))


async def nobody_listens(call: FakeCall) -> None:
    raise ConnectionRefused("nobody listens there")


@pytest.mark.parametrize("capacity", [1, 4, 16])
async def test_s_1_an_engine_that_always_refuses_costs_two_attempts_a_repository(
    capacity: int, large: Path, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """With the retries of a real lane, which tries a refused connection once more."""
    provider = FakeProvider(nobody_listens)
    described = ProviderSettings(
        kind="openai-compatible", base_url="http://127.0.0.1:9/v1", model="hash", capacity=capacity
    )
    settings = attrs.evolve(
        settings_of(tmp_path / "store.sqlite3", batch=5, concurrency=1, slice=1e9), providers={"fake": described}
    )
    async with (
        open_engine(settings, reserve=0, providers={"fake": provider}) as engine,
        open_sweep(engine, [tenant("acme", one=large, two=large)], all=True) as sweep,
    ):
        report = await sweep.run()
        records = await (await engine.knowledge()).repositories()
    assert (report.status, report.circuit) == ("deferred", None)
    for item in report.repositories:
        assert (item.outcome, item.code) == ("deferred", "KB_VECTOR_EMBED_CONNECTION_REFUSED")
        assert (item.outstanding, item.embedded, item.provider_calls) == (2_260, 0, 2)
    assert len(provider.calls) == 4
    assert [record.streak for record in records] == [0, 0]
    assert content_of(tmp_path / "store.sqlite3").vectors == []


class Watched:
    """An engine that answers when it is let, and says how many calls were out when each came."""

    def __init__(self, fails: Script | None = None) -> None:
        self.out_at_each: list[int] = []
        self.out = 0
        self.answer = trio.Semaphore(0)
        self._fails = fails

    async def __call__(self, call: FakeCall) -> None:
        self.out += 1
        self.out_at_each.append(self.out)
        try:
            await self.answer.acquire()
            if self._fails is not None:
                await self._fails(call)
        finally:
            self.out -= 1


async def test_one_goes_alone_and_after_its_answer_as_many_as_there_are_slots(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "root", numbered(24))
    script = Watched()
    async with (
        opened(tmp_path / "store.sqlite3", FakeProvider(script), batch=2, capacity=4) as engine,
        open_sweep(engine, [tenant("acme", one=root)], all=True) as sweep,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(sweep.run)
        await until(lambda: script.out)
        await until(lambda: not engine.lane().statistics().totals.queued)
        await wait_all_tasks_blocked(0.05)  # whoever was to come has come
        assert script.out_at_each == [1]
        script.answer.release()
        await until(lambda: script.out == 4)
        await until(lambda: engine.lane().statistics().totals.queued == 4)
        assert script.out_at_each == [1, 1, 2, 3, 4]
        for _ in range(11):
            script.answer.release()
    assert len(script.out_at_each) == 12


async def test_a_second_round_and_a_repository_with_nothing_to_buy_wait_for_nobody(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "root", {})
    provider = FakeProvider()
    async with (
        opened(tmp_path / "store.sqlite3", provider, capacity=4) as engine,
        open_sweep(engine, [tenant("acme", one=root)], all=True) as sweep,
    ):
        with trio.fail_after(10):
            assert (await sweep.run()).status == "completed"
    assert provider.calls == []


async def test_a_first_ticket_whose_content_is_refused_opens_the_way_with_its_control(tmp_path: Path) -> None:
    async def first_refused(call: FakeCall) -> None:
        if any("number 0" in text for text in call.texts):
            raise ContentRefused("refused")

    root = write_tree(tmp_path / "root", numbered(24))
    script = Watched(first_refused)
    provider = FakeProvider(script)
    async with (
        opened(tmp_path / "store.sqlite3", provider, batch=2, capacity=4) as engine,
        open_sweep(engine, [tenant("acme", one=root)], all=True) as sweep,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(sweep.run)
        for _ in range(2):
            await until(lambda: script.out == 1)
            script.answer.release()
            await until(lambda: script.out == 0)
        assert provider.inputs[2:3] == [CONTROL]
        with trio.fail_after(10):
            await until(lambda: script.out == 4)
        for _ in range(30):
            script.answer.release()
    assert len(content_of(tmp_path / "store.sqlite3").chunks) == 23


@pytest.mark.parametrize("capacity", [1, 4, 16])
async def test_an_engine_that_never_answers_is_waited_for_once(capacity: int, tmp_path: Path) -> None:
    async def slow(call: FakeCall) -> None:
        raise ProviderTimeout("slow")

    root = write_tree(tmp_path / "root", numbered(100))
    provider = FakeProvider(slow)
    async with (
        opened(tmp_path / "store.sqlite3", provider, capacity=capacity) as engine,
        open_sweep(engine, [tenant("acme", one=root)], all=True) as sweep,
    ):
        await sweep.run()
    assert len(provider.calls) == 1
