"""A chunk that the window of the engine does not hold: its halves are stored in its place, and nobody asks again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from fakes import FakeCall, FakeProvider, Script, opened, tenant, write_tree
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from indexing_bench import Bench, Shop, bench, cancelled_after
from knowledge_base import prepared
from store_content import content_of
from trio.testing import MockClock, wait_all_tasks_blocked

from embedkit.errors import ContentRefused, ProviderTimeout
from embedkit.knowledge.chunking.halving import LEAST_CHARACTERS
from embedkit.knowledge.indexing.bisecting import CONTROL
from embedkit.knowledge.indexing.buying import Buying
from embedkit.knowledge.indexing.claims import Claims
from embedkit.knowledge.indexing.preparing import Portion
from embedkit.knowledge.indexing.stopping import Stop
from embedkit.knowledge.indexing.tally import Tally
from embedkit.knowledge.model import input_hash
from embedkit.knowledge.searching.search import Hit
from embedkit.sweep.outcome import RepositoryReport
from embedkit.sweep.sweep import open_sweep

WINDOW = 200


class Narrow(Shop):
    """A shop with a window, in characters: a batch with anything longer is refused whole."""

    def __init__(self, window: int = WINDOW) -> None:
        super().__init__(self._refuse)
        self.window = window
        self.refused: list[list[str]] = []

    async def _refuse(self, number: int, texts: Sequence[str]) -> None:
        if any(len(text) > self.window for text in texts):
            self.refused.append(list(texts))
            raise ContentRefused("an input is too long", code="INPUT_TRUNCATED", status=400)

    @property
    def refused_alone(self) -> list[str]:
        return [texts[0] for texts in self.refused if len(texts) == 1]


def lines(count: int, word: str = "line") -> str:
    return "".join(f"{word} number {number:04} of a text\n" for number in range(count))


def ink(text: str) -> str:
    return "".join(text.split())


def ink_by_path(at: Bench) -> dict[str, str]:
    """What the stored chunks of each document hold, in order."""
    found: dict[str, str] = {}
    for row in content_of(at.path).chunks:
        found[row[2]] = found.get(row[2], "") + ink(row[8])
    return found


def check_lines(at: Bench, texts: Mapping[str, str]) -> None:
    """Each chunk stands in the lines that it says, and a document's chunks are numbered without a gap."""
    numbers: dict[str, list[int]] = {}
    for _, _, path, _, ordinal, start, end, _, text, *_ in content_of(at.path).chunks:
        held = "\n".join(texts[path].split("\n")[start - 1 : end])
        assert text == held if start < end else text in held
        numbers.setdefault(path, []).append(ordinal)
    assert all(found == list(range(len(found))) for found in numbers.values())


async def test_the_parts_are_stored_with_their_lines_and_nothing_is_fenced(tmp_path: Path) -> None:
    texts = {"long.txt": lines(25), "wide.txt": "x" * 1000 + "\n", "a.txt": "short\n", "b.txt": "shorter\n"}
    async with bench(tmp_path, texts) as at:
        shop = Narrow()
        work = await at.index(shop, batch=8)
        assert (work.failures, work.outstanding) == ([], 0)
        assert ink_by_path(at) == {path: ink(text) for path, text in texts.items()}
        check_lines(at, texts)
        chunks = len(content_of(at.path).chunks)
        assert work.embedded + work.reused == chunks
        assert work.provider_calls + len(shop.refused) == len(shop.batches)
        assert await at.fenced() == 0

        again = Narrow()
        assert (await at.index(again)).provider_calls == 0
        assert again.batches == []


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=st.lists(st.lists(st.integers(0, 5), max_size=12), max_size=6),
    window=st.integers(24, 120),
    batch=st.integers(1, 6),
    tickets=st.integers(1, 3),
)
async def test_whatever_is_too_long_all_of_it_is_stored_and_nothing_is_asked_for_nothing(
    files: list[list[int]], window: int, batch: int, tickets: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # Few different paragraphs, so that documents share chunks, whole and in parts.
    texts = {f"{n}.txt": "\n\n".join(lines(3 * k, f"paragraph {k}") for k in ks) for n, ks in enumerate(files)}
    async with bench(tmp_path_factory.mktemp("at"), texts) as at:
        shop = Narrow(window)
        work = await at.index(shop, batch=batch, tickets=tickets)
        assert (work.failures, work.outstanding) == ([], 0)
        assert ink_by_path(at) == {path: ink(text) for path, text in texts.items() if ink(text)}
        check_lines(at, texts)
        sold = [text for text in shop.sold if text != CONTROL]
        assert len(sold) == len(set(sold)) == work.embedded
        assert len(shop.refused_alone) == len(set(shop.refused_alone))
        assert max(map(len, shop.batches), default=0) <= batch
        assert work.embedded + work.reused == len(content_of(at.path).chunks)


async def test_two_chunks_of_a_document_may_be_split_at_once(tmp_path: Path) -> None:
    """While the halves of one are looked up, the other is refused: its document must be found, or it has no halves."""
    async with bench(tmp_path, {"a.txt": "short\n", "b.txt": lines(50)}) as at:
        looking_up, second_is_alone = trio.Event(), trio.Event()
        shop = Narrow()

        async def one_behind_the_other(number: int, texts: Sequence[str]) -> None:
            if texts == [CONTROL]:
                if shop.asked.count(CONTROL) == 2:
                    await looking_up.wait()
                    second_is_alone.set()
                return
            if max(map(len, texts)) > WINDOW and len(shop.refused) < 2:
                at.store.after_look_up = look_up
            await shop._refuse(number, texts)

        async def look_up() -> None:
            looking_up.set()
            await second_is_alone.wait()
            await wait_all_tasks_blocked(0.02)

        shop._before = one_behind_the_other
        with trio.fail_after(20):
            work = await at.index(shop, batch=1, tickets=3)
        assert looking_up.is_set()
        assert (work.failures, work.outstanding, await at.fenced()) == ([], 0, 0)
        assert ink_by_path(at)["b.txt"] == ink(lines(50))


async def test_what_another_repository_finds_too_long_meanwhile_has_halves_all_the_same(tmp_path: Path) -> None:
    """Our ticket for it is out, and by the time it is refused nobody waits for the whole any more."""
    one, two = "x" * 250, "y" * 250
    async with bench(tmp_path, {}) as at:
        shop = Shop()
        buying = Buying(
            at.store,
            at.record,
            at.lease,
            shop,
            batch=8,
            tally=Tally(),
            claims=Claims(),
            stop=Stop(Tally(), math.inf),
            window=512,
            on_progress=lambda work: None,
        )
        assert await buying.admit(Portion([prepared("ours.txt", one, two)])) == dict(hashed(one, two))
        await at.store.record_finding(at.record, at.lease, input_hash(one), "over-window")
        assert await buying.admit(Portion([prepared("later.txt", one)])) == dict(hashed("x" * 125))
        assert await buying.split(input_hash(two)) == [hashed("y" * 125)]
        assert await buying.split(input_hash(one)) == []
        await buying.buy_batch(hashed("x" * 125, "y" * 125))
        assert ink_by_path(at) == {"ours.txt": one + two, "later.txt": one}


def hashed(*texts: str) -> list[tuple[bytes, str]]:
    return [(input_hash(text), text) for text in texts]


@pytest.mark.parametrize("parts", [2, 4, 8])
async def test_calls_grow_with_the_parts_and_the_depth_of_the_batch_alone(tmp_path: Path, parts: int) -> None:
    async with bench(tmp_path, {f"{n:02}.txt": f"short {n}\n" for n in range(31)} | {"z.txt": lines(28)}) as at:
        shop = Narrow(28 * len(lines(1)) // parts)
        await at.index(shop, batch=32)
        found = len(content_of(at.path).chunks) - 31
        assert parts <= found <= 2 * parts
        # The batch, a control, two at each level on the way down; then each inner knot alone and both its children.
        assert len(shop.batches) <= 2 + 2 * 5 + 2 * (2 * found - 1)


async def test_who_comes_with_the_same_chunk_does_not_ask_about_it(tmp_path: Path) -> None:
    async with bench(tmp_path, {"one.txt": lines(25)}) as at:
        await at.index(Narrow(), batch=4)
        write_tree(at.root, {"two.txt": lines(25)})
        shop = Narrow()
        work = await at.index(shop)
        assert (shop.batches, work.outstanding) == ([], 0)
        assert work.reused == len(content_of(at.path).chunks) // 2 > 1

        # The vectors go with the last chunk that needs them; what is known of the window stays.
        for path in ("one.txt", "two.txt"):
            (at.root / path).unlink()
        await at.index(Narrow(), may_empty=True)
        write_tree(at.root, {"three.txt": lines(25)})
        await at.index(shop)
        assert shop.refused == []
        assert ink_by_path(at) == {"three.txt": ink(lines(25))}


async def test_a_tenant_does_not_learn_of_another(tmp_path: Path) -> None:
    async with bench(tmp_path, {"one.txt": lines(25)}) as at:
        await at.index(Narrow())
        other = await at.store.repository("b", "api")
        theirs = attrs.evolve(at, record=other, lease=await at.store.lease(other))
        shop = Narrow()
        await theirs.index(shop)
        assert shop.refused_alone


async def test_another_generation_offers_the_whole_again(tmp_path: Path) -> None:
    async with bench(tmp_path, {"one.txt": lines(15)}) as at:
        await at.index(Narrow(300))
        assert len(content_of(at.path).chunks) > 1
        await at.store._database.write(lambda connection: connection.execute("UPDATE marks SET generation = 'another'"))
        await at.store._database.write(lambda connection: connection.execute("UPDATE documents SET generation = 0"))
        wide = Shop()
        await at.index(wide)
        assert [ink(text) for text in wide.asked] == [ink(lines(15))]
        assert len(content_of(at.path).chunks) == 1


async def test_a_part_of_a_few_characters_that_is_still_refused_is_fenced(tmp_path: Path) -> None:
    texts = {"one.txt": "four words are here, and a few more\n", "two.txt": "tiny\n"}
    async with bench(tmp_path, texts) as at:
        # Anything with an "h" is too long to this engine, however short.
        shop = Narrow()

        async def refuse(number: int, texts: Sequence[str]) -> None:
            if any("h" in text for text in texts):
                raise ContentRefused("too long", code="INPUT_TRUNCATED")

        shop._before = refuse
        work = await at.index(shop, batch=4)
        assert (work.failures, work.outstanding) == ([], 0)
        assert 1 <= await at.fenced() <= 2
        kept = ink_by_path(at)
        assert kept["two.txt"] == "tiny"
        assert "few" in kept["one.txt"]
        assert min(len(text) for text in shop.asked if "h" in text) < LEAST_CHARACTERS
        assert shop.asked.count(CONTROL) == 2

        asked = len(shop.batches)
        await at.index(shop)
        assert len(shop.batches) == asked


async def test_an_engine_that_finds_everything_too_long_has_nothing_halved_or_fenced(tmp_path: Path) -> None:
    async with bench(tmp_path, {"one.txt": lines(12), "two.txt": "short\n"}) as at:
        shop = Narrow(0)
        work = await at.index(shop, batch=4)
        assert [error.code for error in work.failures] == ["INPUT_TRUNCATED"]
        assert shop.asked[-1] == CONTROL
        assert (await at.index(Shop())).outstanding == 0
        assert ink_by_path(at) == {"one.txt": ink(lines(12)), "two.txt": "short"}
        assert len(content_of(at.path).chunks) == 2


async def test_a_long_scope_is_no_reason_to_halve_for_ever(tmp_path: Path) -> None:
    heading = "A heading that alone is longer than the window of this engine"
    async with bench(tmp_path, {"one.md": f"# {heading}\n\n{lines(10)}"}) as at:
        work = await at.index(Narrow(len(heading)), batch=4)
        assert (work.failures, work.outstanding) == ([], 0)
        assert await at.fenced() > 0


async def test_cancelled_at_any_step_nothing_is_lost_and_nothing_bought_twice(tmp_path: Path) -> None:
    texts = {"long.txt": lines(25), "copy.txt": lines(25), "wide.txt": "x" * 500 + "\n", "a.txt": "short\n"}
    async with bench(tmp_path / "undisturbed", texts) as at:
        await at.index(Narrow(), batch=3)
        undisturbed = content_of(at.path)
    steps = 0
    finished = False
    while not finished:
        steps += 1
        async with bench(tmp_path / str(steps), texts) as at:
            shop = Narrow()
            finished = await cancelled_after(steps, at.indexing(shop, batch=3), at.look())
            again = Narrow()
            await at.index(again, batch=3)
            assert content_of(at.path) == undisturbed
            assert not (set(again.sold) - {CONTROL}) & set(shop.sold)
            refused = [*shop.refused_alone, *again.refused_alone]
            assert len(refused) <= len(set(refused)) + 1  # but for the one that was about to be written down
    assert steps > 20


async def test_a_timeout_among_the_halves_keeps_what_was_bought(tmp_path: Path) -> None:
    async with bench(tmp_path, {"long.txt": lines(25)}) as at:
        shop = Narrow()
        refuse = shop._refuse

        async def then_slow(number: int, texts: Sequence[str]) -> None:
            await refuse(number, texts)
            if len(shop.sold) == 3:
                raise ProviderTimeout("slow")

        shop._before = then_slow
        work = await at.index(shop, batch=2)
        assert [type(error) for error in work.failures] == [ProviderTimeout]
        again = Narrow()
        await at.index(again, batch=2)
        assert ink_by_path(at) == {"long.txt": ink(lines(25))}
        assert not set(again.sold) & (set(shop.sold) - {CONTROL})
        assert not set(again.refused_alone) & set(shop.refused_alone)


# -- the whole way ---------------------------------------------------------------------------------------------------


def windowed(window: int = WINDOW) -> Script:
    async def script(call: FakeCall) -> None:
        if any(len(text) > window for text in call.texts):
            raise ContentRefused("an input is too long", code="INPUT_TRUNCATED", status=400)

    return script


async def sync_and_search(
    store: Path, root: Path, query: str, provider: FakeProvider
) -> tuple[RepositoryReport, list[Hit]]:
    async with opened(store, provider, batch=8, capacity=2) as engine:
        async with open_sweep(engine, [tenant("acme", one=root, two=root)], all=True) as sweep:
            report, _ = (await sweep.run()).repositories
        return report, await engine.search(query, tenant="acme", repository="one", k=3)


async def test_search_finds_the_part_and_says_where_it_stands(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "root", {"long.txt": lines(20), "a.txt": "short\n"})
    provider = FakeProvider(windowed())
    report, hits = await sync_and_search(tmp_path / "store", root, "number 0013", provider)
    assert (report.outcome, report.code, report.fenced) == ("complete", None, 0)
    best = hits[0]
    assert best.path == "long.txt"
    first, last = best.lines
    assert first <= 14 <= last
    assert best.text == "\n".join(lines(20).split("\n")[first - 1 : last])
    calls = len(provider.calls)
    again, _ = await sync_and_search(tmp_path / "store", root, "number 0013", provider)
    assert (again.outcome, again.provider_calls, len(provider.calls)) == ("complete", 0, calls + 1)  # the query's


async def test_a_search_yields_when_the_slice_is_spent_and_the_next_one_goes_on(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A batch in which everything is too long takes many tickets: more than one slice's worth."""
    texts = {f"{number:02}.txt": lines(12, f"text {number:02}") for number in range(16)}
    ended: list[float] = []
    sold: list[str] = []
    async with bench(tmp_path, texts) as at:
        outstanding = len(texts)
        while outstanding:
            assert len(ended) < 40
            shop = Narrow()
            began = trio.current_time()

            async def takes_time(number: int, batch: Sequence[str], refuse: Any = shop._refuse) -> None:
                await trio.sleep(10.0)
                await refuse(number, batch)

            shop._before = takes_time
            work = await at.index(shop, batch=16, slice_ends_at=began + 60.0)
            ended.append(trio.current_time() - began)
            sold += [text for text in shop.sold if text != CONTROL]
            outstanding = work.outstanding
            assert work.sliced == (outstanding > 0)
        assert ink_by_path(at) == {path: ink(text) for path, text in texts.items()}
    # What was out when the slice ended, on two tickets, and what each buyer's next batch costs to be refused.
    assert max(ended) <= 60.0 + 40.0
    assert len(sold) == len(set(sold))
    assert len(ended) > 3
