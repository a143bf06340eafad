from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing
from fakes import numbered, write_tree
from indexing_bench import Bench, Shop, bench, cancelled_after
from store_content import content_of, paths_in

from embedkit.clocks import Clocks
from embedkit.errors import ConnectionRefused, ProviderTimeout, StoreFull, StoreLocked
from embedkit.knowledge.chunking import ChunkLimits
from embedkit.knowledge.indexing.bisecting import CONTROL
from embedkit.knowledge.indexing.preparing import prepare
from embedkit.knowledge.model import input_hash


def expected(texts: Mapping[str, str]) -> dict[str, str]:
    return {path: text.rstrip("\n") for path, text in texts.items()}


def plain(stored: Mapping[str, str]) -> dict[str, str]:
    return {path: text.rstrip("\n") for path, text in stored.items()}


async def test_everything_is_bought_once_and_stored(tmp_path: Path) -> None:
    texts = numbered(37)
    async with bench(tmp_path, texts) as at:
        shop = Shop()
        work = await at.index(shop, batch=5, tickets=2)
        assert plain(at.stored()) == expected(texts)
        assert sorted(shop.asked) == sorted(set(shop.asked))
        assert (work.embedded, work.documents, work.done, work.outstanding) == (37, 37, 37, 0)
        assert work.provider_calls == len(shop.batches) == 8  # 7 full, and the rest
        assert work.clocks == Clocks(8.0, 16.0, 32.0)
        assert max(map(len, shop.batches)) == 5


async def test_no_more_tickets_are_out_than_the_width_says_and_that_many_are(tmp_path: Path) -> None:
    async with bench(tmp_path, numbered(20)) as at:
        for tickets in (1, 3):
            shop = Shop()
            await at.index(shop, batch=1, tickets=tickets)
            assert shop.most_open <= tickets
            at.record = await at.store.repository("a", f"again{tickets}")
            at.lease = await at.store.lease(at.record)


async def test_an_unchanged_repository_buys_nothing_and_writes_nothing(tmp_path: Path) -> None:
    async with bench(tmp_path, numbered(9)) as at:
        await at.index(Shop())
        at.store.commits.clear()
        shop = Shop()
        work = await at.index(shop)
        assert (shop.batches, at.store.commits) == ([], [])
        assert (work.embedded, work.reused, work.deleted, work.outstanding) == (0, 0, 0, 0)


async def test_a_changed_file_costs_its_own_chunks_only(tmp_path: Path) -> None:
    async with bench(tmp_path, numbered(9)) as at:
        await at.index(Shop())
        (at.root / "file004.txt").write_text("changed\n")
        shop = Shop()
        work = await at.index(shop)
        assert [text.strip() for text in shop.asked] == ["changed"]
        assert (work.embedded, work.deleted) == (1, 1)


async def test_a_renamed_file_is_not_bought_again_and_a_deleted_one_is_gone(tmp_path: Path) -> None:
    async with bench(tmp_path, numbered(9)) as at:
        await at.index(Shop())
        (at.root / "file004.txt").rename(at.root / "moved.txt")
        (at.root / "file005.txt").unlink()
        shop = Shop()
        work = await at.index(shop)
        assert shop.asked == []
        assert (work.embedded, work.reused, work.deleted) == (0, 1, 2)
        paths = paths_in(at.path)
        assert "moved.txt" in paths
        assert "file004.txt" not in paths
        assert "file005.txt" not in paths
        assert content_of(at.path).unused == 0


async def test_equal_texts_are_one_purchase(tmp_path: Path) -> None:
    async with bench(tmp_path, {f"{number:02}.txt": f"text {number % 3}\n" for number in range(50)}) as at:
        shop = Shop()
        await at.index(shop, batch=2)
        assert len(shop.asked) == 3
        assert len(content_of(at.path).documents) == 50


async def test_a_text_that_lands_while_it_is_looked_up_is_not_bought_again(tmp_path: Path) -> None:
    """The look-up says no, and by the time it says so the batch that was out has landed and been forgotten."""
    texts = numbered(16) | {"last.txt": numbered(16)["file015.txt"]}  # a portion, and one with the same text behind it
    async with bench(tmp_path, texts) as at:
        asked = 0

        async def landed() -> None:
            nonlocal asked
            asked += 1
            while asked == 2 and len(at.store.kept) < 16:
                await at.store.changed.wait()

        at.store.after_look_up = landed
        shop = Shop()
        work = await at.index(shop, batch=1, tickets=1)
        assert asked == 2
        assert len(shop.asked) == 16
        assert work.outstanding == 0
        assert plain(at.stored()) == expected(texts)


@pytest.mark.parametrize("locked", [1, 2])
async def test_a_locked_database_is_tried_again_with_the_vectors_in_hand(tmp_path: Path, locked: int) -> None:
    async with bench(tmp_path, numbered(5)) as at:
        left = [StoreLocked("held")] * locked

        async def maybe_locked() -> None:
            if left:
                raise left.pop()

        at.store.before_commit = maybe_locked
        shop = Shop()
        work = await at.index(shop)
        assert sorted(shop.asked) == sorted(set(shop.asked))
        assert work.failures == []
        assert work.embedded == len(content_of(at.path).vectors) == 5


async def test_a_database_that_stays_locked_is_the_repositorys_failure_and_nothing_more_is_bought(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path, numbered(9)) as at:

        async def locked() -> None:
            raise StoreLocked("held")

        at.store.before_commit = locked
        shop = Shop()
        work = await at.index(shop, tickets=1)
        assert [type(error) for error in work.failures] == [StoreLocked]
        assert len(shop.batches) == 1
        assert work.outstanding == 9


async def test_another_store_error_is_not_tried_again(tmp_path: Path) -> None:
    async with bench(tmp_path, numbered(9)) as at:
        tries = 0

        async def full() -> None:
            nonlocal tries
            tries += 1
            raise StoreFull("full")

        at.store.before_commit = full
        work = await at.index(Shop(), tickets=1)
        assert tries == 1
        assert [type(error) for error in work.failures] == [StoreFull]


async def test_a_vector_that_vanished_is_bought_after_all(tmp_path: Path) -> None:
    """Another repository of the tenant lets go of a text between our look-up and our switch."""
    async with bench(tmp_path, {"one.txt": "shared\n", "two.txt": "own\n"}) as at:
        other = await at.store.repository("a", "other")
        theirs = attrs.evolve(at, record=other, lease=await at.store.lease(other))
        write_tree(at.root, {"one.txt": "shared\n"})
        await theirs.index(Shop())
        write_tree(at.root, {"one.txt": "shared\n", "two.txt": "new\n"})
        removals = 1

        async def removed() -> None:
            nonlocal removals
            if removals:
                removals -= 1
                await at.store.remove(other, theirs.lease, ["one.txt", "two.txt"])

        at.store.after_look_up = removed
        shop = Shop()
        work = await at.index(shop)
        assert sorted(text.strip() for text in shop.asked) == ["new", "shared"]
        assert (work.outstanding, work.failures) == (0, [])
        assert plain(at.stored()) == {"one.txt": "shared", "two.txt": "new"}


async def test_vectors_that_vanish_each_time_are_left_to_the_next_sweep(tmp_path: Path) -> None:
    async with bench(tmp_path, {"one.txt": "shared\n"}) as at:
        await at.index(Shop())
        other = await at.store.repository("a", "other")
        mine = attrs.evolve(at, record=other, lease=await at.store.lease(other))

        async def vanish() -> None:
            at.store.after_look_up = None  # `remove` and `index` below are undisturbed
            await at.store.remove(at.record, at.lease, ["one.txt"])
            at.store.after_look_up = come_back

        async def come_back() -> None:
            at.store.after_look_up = vanish

        at.store.after_look_up = vanish
        work = await mine.index(Shop())
        assert work.failures == []
        assert work.outstanding == 0  # bought in the second round, with nobody left to remove it


async def test_the_first_failure_ends_the_offering_and_what_is_out_is_kept(tmp_path: Path) -> None:
    async with bench(tmp_path, numbered(20)) as at:
        refused = trio.Event()

        async def third_fails(number: int, texts: Sequence[str]) -> None:
            if number == 3:
                refused.set()
                raise ConnectionRefused("nobody listens")
            if number > 1:
                await refused.wait()
                await trio.testing.wait_all_tasks_blocked()

        shop = Shop(third_fails)
        work = await at.index(shop, batch=2, tickets=3)
        assert [type(error) for error in work.failures] == [ConnectionRefused]
        assert len(shop.batches) <= 4
        kept = {row[8] for row in content_of(at.path).chunks}
        assert kept == set(shop.sold)
        assert work.embedded == len(shop.sold) == 2 * (len(shop.batches) - 1)
        assert work.outstanding == 20 - work.embedded


async def test_a_failure_keeps_serving_what_is_stored_and_removes_nothing(tmp_path: Path) -> None:
    async with bench(tmp_path, numbered(4)) as at:
        await at.index(Shop())
        before = content_of(at.path)
        (at.root / "file000.txt").write_text("changed\n")
        (at.root / "file001.txt").unlink()

        async def fails(number: int, texts: Sequence[str]) -> None:
            raise ProviderTimeout("slow")

        work = await at.index(Shop(fails))
        assert work.outstanding == 1
        assert content_of(at.path) == before


async def test_after_a_failure_no_suspect_is_tried_and_after_one_that_timed_out_no_other(tmp_path: Path) -> None:
    """Also where no circuit would shed the rest."""
    async with bench(tmp_path, {"one.txt": "one\n", "two.txt": "two\n", "new.txt": "new\n"}) as at:
        for text in ("one", "two"):
            await at.store.record_finding(at.record, at.lease, input_hash(text), "timed-out")

        async def new_fails(number: int, texts: Sequence[str]) -> None:
            raise ConnectionRefused("nobody listens")

        shop = Shop(new_fails)
        await at.index(shop)
        assert shop.batches == [["new"]]

        async def suspects_time_out(number: int, texts: Sequence[str]) -> None:
            if {"one", "two"} & set(texts):
                raise ProviderTimeout("slow")

        shop = Shop(suspects_time_out)
        work = await at.index(shop)
        assert shop.batches in ([["new"], [CONTROL], [text]] for text in ("one", "two"))
        assert (work.outstanding, work.too_large, await at.fenced()) == (1, None, 1)


async def test_the_clocks_and_attempts_of_a_failure_count(tmp_path: Path) -> None:
    async with bench(tmp_path, numbered(1)) as at:

        async def fails(number: int, texts: Sequence[str]) -> None:
            error = ProviderTimeout("slow")
            error.clocks, error.attempts = Clocks(1.0, 2.0, 3.0), 4
            raise error

        work = await at.index(Shop(fails))
        assert (work.clocks, work.provider_calls, work.embedded) == (Clocks(1.0, 2.0, 3.0), 4, 0)


async def test_a_spent_slice_offers_one_batch_and_goes_on_from_there(tmp_path: Path) -> None:
    texts = numbered(6)
    async with bench(tmp_path, texts) as at:
        shop = Shop()
        for turn in range(1, 4):
            work = await at.index(shop, batch=2, slice_ends_at=-math.inf)
            assert work.embedded == 2
            assert work.outstanding == 6 - 2 * turn
            assert work.sliced == (turn < 3)
        assert plain(at.stored()) == expected(texts)
        assert len(shop.asked) == 6


async def test_a_rename_that_the_slice_cuts_off_is_not_bought_later(tmp_path: Path) -> None:
    """The new path comes after what the slice ends at: its old chunks must not go before it was seen."""
    async with bench(tmp_path, numbered(40)) as at:
        await at.index(Shop())
        write_tree(at.root, {f"a{number:02}.txt": f"new {number}\n" for number in range(40)})
        (at.root / "file000.txt").rename(at.root / "zzz.txt")
        work = await at.index(Shop(), batch=2, slice_ends_at=-math.inf)
        assert work.sliced
        shop = Shop()
        await at.index(shop, batch=2)
        assert "text number 0" not in {text.strip() for text in shop.asked}
        assert "file000.txt" not in paths_in(at.path)


async def test_what_was_bought_is_kept_whenever_the_work_is_cancelled(tmp_path: Path) -> None:
    texts = numbered(12)
    steps = 0
    while True:
        steps += 1
        async with bench(tmp_path / str(steps), texts) as at:
            shop = Shop()
            finished = await cancelled_after(steps, at.indexing(shop), at.look())
            assert set(shop.sold) <= {row[1] for row in vectors_by_text(at, shop.asked)}
            again = Shop()
            await at.index(again)
            assert plain(at.stored()) == expected(texts)
            assert not set(again.asked) & set(shop.sold)
            if finished:
                break
    assert steps > 12


def vectors_by_text(at: Bench, texts: Iterable[str]) -> list[tuple[bytes, str]]:
    held = {row[1] for row in content_of(at.path).vectors}
    return [(input_hash(text), text) for text in texts if input_hash(text) in held]


async def test_a_file_that_changes_under_the_snapshot_is_counted_and_its_old_version_serves(tmp_path: Path) -> None:
    async with bench(tmp_path, numbered(3)) as at:
        await at.index(Shop())
        (at.root / "file001.txt").write_text("second\n")
        snapshot = at.look()
        (at.root / "file001.txt").write_text("third\n")
        indexing = at.indexing(Shop())
        await indexing.run(snapshot)
        assert (indexing.tally.skipped["changed"], indexing.tally.outstanding) == (1, 1)
        assert at.stored()["file001.txt"].strip() == "text number 1"
        await at.index(Shop())
        assert at.stored()["file001.txt"].strip() == "third"


async def test_preparing_stops_between_two_documents(tmp_path: Path) -> None:
    """A portion of large files takes seconds, and a Ctrl-C is not to wait for all of them."""
    looks = 0

    def check() -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            raise KeyboardInterrupt

    async with bench(tmp_path, numbered(5)) as at:
        snapshot = at.look()
        with pytest.raises(KeyboardInterrupt):
            prepare(snapshot, snapshot.entries, ChunkLimits(), check=check)
    assert looks == 3


async def test_an_empty_repository_and_one_of_empty_files(tmp_path: Path) -> None:
    async with bench(tmp_path, {}) as at:
        work = await at.index(Shop())
        assert (work.documents, work.outstanding) == (0, 0)
        write_tree(at.root, {"empty.txt": "", "blank.py": "\n\n  \n"})
        shop = Shop()
        work = await at.index(shop)
        assert (work.documents, work.outstanding, shop.batches) == (2, 0, [])
        assert paths_in(at.path) == ["blank.py", "empty.txt"]
