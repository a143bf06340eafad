"""Claims on inputs between the repositories of a tenant: the moments between a look-up and a claim."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import trio
from fakes import numbered, write_tree
from indexing_bench import Meddling, Shop, bench
from trio.testing import wait_all_tasks_blocked

from embedkit.knowledge.indexing.claims import Claims


async def test_a_claim_is_one_s_alone_until_it_is_released() -> None:
    sought = Claims()
    assert sought.claim([b"a", b"b"]) == {b"a", b"b"}
    assert sought.claim([b"b", b"c"]) == {b"c"}
    passed: list[str] = []

    async def wait(name: str) -> None:
        await sought.released([b"a", b"b", b"nobody's"])
        passed.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, "one")
        nursery.start_soon(wait, "two")
        for released in (b"b", b"a"):
            await wait_all_tasks_blocked()
            assert passed == []
            sought.release([released])
    assert sorted(passed) == ["one", "two"]
    with pytest.raises(KeyError):
        sought.release([b"a"])


async def test_what_a_sibling_stores_after_our_look_up_is_not_bought_again(tmp_path: Path) -> None:
    """It is not known by the look-up, and not claimed any more afterwards."""
    texts = numbered(3)
    async with bench(tmp_path, texts) as first:
        record = await first.store.repository("a", "two")
        second = attrs.evolve(
            first,
            root=write_tree(tmp_path / "second", texts),
            store=Meddling(first.store),
            record=record,
            lease=await first.store.lease(record),
        )
        claims, shop = Claims(), Shop()
        has_claimed, has_looked_up, has_ended = trio.Event(), trio.Event(), trio.Event()

        async def claimed(number: int, batch: object) -> None:
            has_claimed.set()
            await has_looked_up.wait()

        async def looked_up() -> None:
            has_looked_up.set()
            await has_ended.wait()

        async def index_first() -> None:
            await first.indexing(Shop(claimed), claims=claims).run(first.look())
            has_ended.set()

        second.store.after_look_up = looked_up
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(index_first)
                await has_claimed.wait()
                indexing = second.indexing(shop, claims=claims)
                await indexing.run(second.look())
        assert (shop.asked, indexing.tally.reused, indexing.tally.outstanding) == ([], 3, 0)
