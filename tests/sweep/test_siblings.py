"""Repositories of one tenant in one sweep: what was bought for one is not another's to throw away."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import trio
from fakes import FakeCall, FakeProvider, opened, tenant, write_tree
from trio.testing import MockClock

from embedkit.errors import ProviderBusy
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
