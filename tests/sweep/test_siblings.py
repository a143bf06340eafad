"""Repositories of one tenant in one sweep: what was bought for one is not another's to throw away."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest
import trio
from fakes import FakeCall, FakeProvider, numbered, opened, tenant, until, write_tree
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_content import content_of
from trio.testing import MockClock, wait_all_tasks_blocked

from embedkit.errors import ConnectionRefused, ContentRefused, EmbedkitError, ProviderBusy
from embedkit.sweep.sweep import open_sweep

# One document of many chunks: all of them are staged until the last is in.
LARGE = "\n\n".join(f"paragraph {number} " + f"word{number} " * 300 for number in range(6))


@pytest.mark.parametrize(("held_up_by", "seconds"), [("a rate limit", 1e9), ("its slice", 4.0)])
async def test_s_3_half_a_document_in_hand_outlives_a_sibling_that_completes(
    held_up_by: str, seconds: float, tmp_path: Path, autojump_clock: MockClock
) -> None:
    large = write_tree(tmp_path / "large", {"large.txt": LARGE})
    busy = held_up_by == "a rate limit"

    async def script(call: FakeCall) -> None:
        nonlocal busy
        await trio.sleep(1.0)
        if busy and call.number == 5:
            busy = False
            raise ProviderBusy("rate limit")

    provider = FakeProvider(script)
    outcomes: list[str] = []
    while "complete" not in outcomes:
        assert len(outcomes) < 40, outcomes
        # It completes in each sweep, with something changed.
        sibling = write_tree(tmp_path / "sibling", {f"{len(outcomes)}.txt": f"number {len(outcomes)}\n"})
        folders = {"a": large, "b": sibling}
        async with (
            opened(tmp_path / "store.sqlite3", provider, batch=1, concurrency=1, slice=seconds) as engine,
            open_sweep(engine, [tenant("acme", **folders)], all=True) as sweep,
        ):
            first, second = (await sweep.run()).repositories
        assert (second.name, second.outcome) == ("b", "complete")
        outcomes.append(first.outcome)
    assert len(outcomes) > 1
    assert [text for text, times in Counter(provider.answered).items() if times > 1] == []


# -- texts that stand in several of them ------------------------------------------------------------------------------


# These run by the real clock, in which nobody sleeps: a virtual one would jump to the end of a slice while all that is
# under way is a transaction in its thread.
async def slowly(call: FakeCall) -> None:
    for _ in range(20):
        await trio.lowlevel.checkpoint()


def bought_twice(provider: FakeProvider) -> list[str]:
    return [text for text, times in Counter(provider.answered).items() if times > 1]


@pytest.mark.parametrize("repositories", [2, 3])
async def test_what_stands_in_several_is_bought_once_though_they_are_swept_at_once(
    repositories: int, tmp_path: Path
) -> None:
    provider = FakeProvider(slowly)
    folders = {
        name: write_tree(tmp_path / name, {**numbered(40), f"{name}.txt": f"of {name} alone\n"})
        for name in "abc"[:repositories]
    }
    async with (
        opened(tmp_path / "store.sqlite3", provider, batch=4, capacity=2, tenant_concurrency=3) as engine,
        open_sweep(engine, [tenant("acme", **folders)], all=True) as sweep,
    ):
        report = await sweep.run()
    assert report.status == "completed"
    assert bought_twice(provider) == []
    assert len(provider.answered) == 40 + repositories
    assert sum(item.embedded for item in report.repositories) == 40 + repositories
    assert sum(item.reused for item in report.repositories) == 40 * (repositories - 1)
    assert [item.chunks for item in report.repositories] == [41] * repositories


async def test_tenants_do_not_wait_for_each_other(tmp_path: Path) -> None:
    provider = FakeProvider()
    root = write_tree(tmp_path / "root", numbered(6))
    async with (
        opened(tmp_path / "store.sqlite3", provider) as engine,
        open_sweep(engine, [tenant("acme", one=root), tenant("zeta", one=root)], all=True) as sweep,
    ):
        report = await sweep.run()
    assert [item.embedded for item in report.repositories] == [6, 6]
    assert len(provider.answered) == 12


async def test_what_the_other_did_not_get_is_bought_after_all(tmp_path: Path) -> None:
    """The first to ask is refused for good; whoever waited for it goes on by itself."""

    async def first_fails(call: FakeCall) -> None:
        await slowly(call)
        if call.number == 1:
            raise ConnectionRefused("just now")

    provider = FakeProvider(first_fails)
    folders = {name: write_tree(tmp_path / name, numbered(8)) for name in "ab"}
    async with (
        opened(tmp_path / "store.sqlite3", provider, batch=4) as engine,
        open_sweep(engine, [tenant("acme", **folders)], all=True) as sweep,
    ):
        report = await sweep.run()
    assert sorted(item.outcome for item in report.repositories) == ["complete", "deferred"]
    assert bought_twice(provider) == []
    assert len(provider.answered) == 8


async def test_who_waits_for_a_sibling_waits_no_longer_than_its_slice(tmp_path: Path, mock_clock: MockClock) -> None:
    let_go = trio.Event()

    async def hangs(call: FakeCall) -> None:
        await let_go.wait()

    def outcomes() -> list[str]:
        return sorted(item.outcome for item in sweep.report().repositories)

    folders = {name: write_tree(tmp_path / name, numbered(1)) for name in "ab"}
    async with (
        opened(tmp_path / "store.sqlite3", FakeProvider(hangs), slice=30.0) as engine,
        open_sweep(engine, [tenant("acme", **folders)], all=True) as sweep,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(sweep.run)
        claims = sweep.claims("acme")._claims
        await until(lambda: any(ended is not None for ended in claims.values()))
        mock_clock.jump(29.0)
        await wait_all_tasks_blocked()
        assert outcomes() == ["aborted", "aborted"], "neither has ended"
        mock_clock.jump(1.0)
        await until(lambda: outcomes() == ["aborted", "partial-progress"])
        let_go.set()


@given(seed=st.integers(0, 2**32), repositories=st.integers(2, 4), batch=st.integers(1, 5), capacity=st.integers(1, 3))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_happens_meanwhile_all_is_stored_in_the_end_and_little_is_bought_twice(
    seed: int, repositories: int, batch: int, capacity: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Refusals, slices and cancellations, sweep after sweep: nobody waits for ever, and a calm sweep ends it."""
    place = tmp_path_factory.mktemp("siblings")
    draw = Random(seed)
    folders = {}
    for name in "abcd"[:repositories]:
        chosen = draw.sample(range(12), draw.randint(1, 12))
        folders[name] = write_tree(place / name, {f"{number}.txt": f"text number {number}\n" for number in chosen})
    calm = False
    cancel_at = 0
    running = trio.CancelScope()
    out: set[int] = set()
    lost: set[int] = set()
    sold: list[str] = []

    async def weather(call: FakeCall) -> None:
        out.add(call.number)
        if call.number == cancel_at:
            lost.update(out)  # nobody waits for these any more
            running.cancel()
        for _ in range(draw.randrange(20)):
            await trio.lowlevel.checkpoint()
        if any(text.strip() == "text number 5" for text in call.texts):
            raise ContentRefused("that one", code="INPUT_REFUSED", status=400)
        trouble: list[EmbedkitError | None] = [None, None, None, ConnectionRefused("gone"), ProviderBusy("busy")]
        out.discard(call.number)
        if not calm and (error := draw.choice(trouble)) is not None:
            raise error
        if call.number not in lost:
            sold.extend(text.strip() for text in call.texts)

    provider = FakeProvider(weather)

    async def sweeps() -> None:
        nonlocal calm, cancel_at, running
        for number in range(5):
            calm = number == 4
            cancel_at = 0 if calm else len(provider.calls) + draw.randrange(1, 12)
            options = {"slice": 1e9 if calm else draw.choice([1e-9, 1e9])}
            async with (
                opened(place / "store.sqlite3", provider, batch=batch, capacity=capacity, **options) as engine,
                open_sweep(engine, [tenant("acme", **folders)], all=True) as sweep,
            ):
                with trio.fail_after(30), trio.CancelScope() as running:
                    report = await sweep.run()
        assert report.status == "completed", report

    trio.run(sweeps)
    wanted = {path.read_text().strip() for root in folders.values() for path in root.iterdir()} - {"text number 5"}
    assert {row[8].strip() for row in content_of(place / "store.sqlite3").chunks} == wanted
    assert {text for text, times in Counter(sold).items() if times > 1} <= {"control"}
