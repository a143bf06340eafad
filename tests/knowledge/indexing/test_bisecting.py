"""A batch that is refused for its content: the input at fault is found and fenced, and the rest is stored."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from fakes import FakeCall, FakeProvider, numbered, opened, tenant, write_tree
from store_content import content_of, paths_in

from embedkit.errors import (
    ConnectionRefused,
    ContentRefused,
    EmbedkitError,
    ModelNotResident,
    ProviderAuthError,
    ProviderBusy,
    ProviderError,
    ProviderFailure,
    ProviderTimeout,
    QueueWaitExceeded,
    ResponseInvalid,
    TransportClosed,
)
from embedkit.knowledge.indexing.bisecting import (
    CONTROL,
    MOST_IN_A_ROW,
    Answer,
    Batch,
    Control,
    Found,
    Offer,
    Split,
    Step,
    bisect,
    may_be_an_inputs,
)
from embedkit.sweep.outcome import RepositoryReport
from embedkit.sweep.sweep import open_sweep

POISON = {"poison.txt": "a poison text\n"}


def refusing(part: str = "poison", *, names_it: bool = False) -> Any:
    """The script of an engine that refuses every batch with ``part`` in it."""

    async def script(call: FakeCall) -> None:
        for index, text in enumerate(call.texts):
            if part in text:
                raise ContentRefused("unsupported value: NaN", status=500, input_index=index if names_it else None)

    return script


async def sync(store: Path, root: Path, provider: FakeProvider, *, batch: int = 8) -> RepositoryReport:
    async with (
        opened(store, provider, batch=batch) as engine,
        open_sweep(engine, [tenant("acme", one=root)], all=True) as sweep,
    ):
        (report,) = (await sweep.run()).repositories
    return report


@pytest.mark.parametrize("names_it", [False, True])
async def test_the_one_at_fault_is_fenced_and_the_rest_is_stored(names_it: bool, tmp_path: Path) -> None:
    root = write_tree(tmp_path / "tree", numbered(15) | POISON)
    provider = FakeProvider(refusing(names_it=names_it))
    report = await sync(tmp_path / "store", root, provider)

    assert (report.outcome, report.code, report.fenced, report.outstanding) == ("complete", None, 1, 0)
    assert (report.embedded, report.chunks, report.documents) == (15, 15, 16)
    assert report.provider_calls == len(provider.calls)
    # Two whole batches; then a control, halves down to one (or at once, where the engine names it), and a control.
    assert len(provider.calls) == (6 if names_it else 10)
    assert provider.inputs.count(CONTROL) == 2
    bought = [text for text in provider.answered if text != CONTROL]
    assert len(bought) == len(set(bought)) == 15
    assert len(paths_in(tmp_path / "store")) == 16


async def test_it_is_not_offered_again_in_this_generation_and_is_in_the_next(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "tree", numbered(3) | POISON)
    await sync(tmp_path / "store", root, FakeProvider(refusing()))

    again = FakeProvider(refusing())
    report = await sync(tmp_path / "store", root, again)
    assert (report.outcome, report.fenced, report.provider_calls) == ("complete", 1, 0)

    write_tree(tmp_path / "tree", {"copy.txt": POISON["poison.txt"]})
    report = await sync(tmp_path / "store", root, again)
    assert (report.outcome, report.fenced, report.provider_calls, report.reused) == ("complete", 2, 0, 0)

    with closing(sqlite3.connect(tmp_path / "store")) as connection, connection:
        connection.execute("UPDATE fences SET generation = 'another'")
        connection.execute("UPDATE documents SET generation = generation - 1 WHERE fenced > 0")
        connection.execute("DELETE FROM sightings")
    mended = FakeProvider()
    report = await sync(tmp_path / "store", root, mended)
    assert (report.outcome, report.fenced, report.embedded) == ("complete", 0, 1)
    assert mended.inputs == [POISON["poison.txt"].rstrip("\n")] or mended.inputs == [POISON["poison.txt"]]


async def test_a_document_serves_its_other_chunks(tmp_path: Path) -> None:
    sections = [f"# Part {number}\n\n{f'word{number} ' * 220}\n" for number in range(3)]
    sections[1] = sections[1].replace("word1 word1", "poison word1", 1)
    root = write_tree(tmp_path / "tree", {"whole.md": "\n".join(sections)})
    report = await sync(tmp_path / "store", root, FakeProvider(refusing()))
    assert (report.outcome, report.documents, report.fenced) == ("complete", 1, 1)
    assert report.chunks >= 2
    assert not any("poison" in row[8] for row in content_of(tmp_path / "store").chunks)


async def test_a_refusal_of_everything_fences_nothing(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "tree", numbered(4))
    provider = FakeProvider(refusing(""))
    report = await sync(tmp_path / "store", root, provider)
    assert (report.outcome, report.code, report.fenced) == ("failed", "KB_VECTOR_EMBED_INPUT_REFUSED", 0)
    assert len(provider.calls) == 2  # the batch and one control
    assert paths_in(tmp_path / "store") == []


async def test_an_engine_that_breaks_before_the_second_control_fences_nothing(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "tree", numbered(3) | POISON)
    controls = 0

    async def script(call: FakeCall) -> None:
        nonlocal controls
        await refusing()(call)
        controls += call.texts[0] == CONTROL
        if controls == 2:
            raise ConnectionRefused("nobody listens there")

    report = await sync(tmp_path / "store", root, FakeProvider(script))
    assert (report.outcome, report.code, report.fenced) == ("deferred", "KB_VECTOR_EMBED_CONNECTION_REFUSED", 0)
    assert (report.embedded, report.outstanding) == (3, 1)
    mended = await sync(tmp_path / "store", root, FakeProvider(refusing()))
    assert (mended.outcome, mended.fenced, mended.embedded) == ("complete", 1, 0)


async def test_a_batch_that_is_too_large_as_a_whole_fences_nothing(tmp_path: Path) -> None:
    async def script(call: FakeCall) -> None:
        if len(call.texts) > 2:
            raise ContentRefused("413", code="INPUT_TRUNCATED", status=413)

    root = write_tree(tmp_path / "tree", numbered(8))
    report = await sync(tmp_path / "store", root, FakeProvider(script))
    assert (report.outcome, report.fenced, report.embedded) == ("complete", 0, 8)


async def test_a_fence_is_one_tenants(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "tree", POISON)
    provider = FakeProvider(refusing())
    async with (
        opened(tmp_path / "store", provider, concurrency=1) as engine,
        open_sweep(engine, [tenant("acme", one=root), tenant("other", one=root)], all=True) as sweep,
    ):
        report = await sweep.run()
    assert [item.fenced for item in report.repositories] == [1, 1]
    assert sum("poison" in text for text in provider.inputs) == 4  # each tenant's own batch, and it alone


async def test_cancelling_the_search_keeps_what_was_bought(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "tree", numbered(7) | POISON)
    halves = 0

    async def script(call: FakeCall) -> None:
        nonlocal halves
        await refusing()(call)
        if call.texts[0] != CONTROL:
            halves += 1
            if halves == 2:
                run.cancel()
                await trio.sleep_forever()

    with trio.CancelScope() as run:
        await sync(tmp_path / "store", root, FakeProvider(script))
    bought = len(content_of(tmp_path / "store").vectors)
    assert 0 < bought < 7
    rest = FakeProvider(refusing())
    report = await sync(tmp_path / "store", root, rest)
    assert (report.outcome, report.fenced, report.embedded) == ("complete", 1, 7 - bought)


# -- the search by itself --------------------------------------------------------------------------------------------


@attrs.define
class Recorded:
    """Drives a search: an engine that refuses what it is told to, and inputs that have halves down to a length."""

    refuses: Callable[[str], ProviderError | None] = lambda text: None
    shortest: int = 1_000_000
    window: int = 1_000_000
    asked: list[list[str]] = attrs.field(factory=list)
    kept: list[str] = attrs.field(factory=list)
    controls: int = 0

    def run(self, batch: Batch, refused: ProviderError) -> Found:
        search = bisect(batch, refused, window=self.window)
        answer: Answer = None
        while True:
            try:
                answer = self._answer(search.send(answer))
            except StopIteration as ended:
                found: Found = ended.value
                return found

    def _answer(self, step: Step) -> Answer:
        match step:
            case Control():
                self.controls += 1
                self.asked.append([CONTROL])
                if (refusal := self.refuses(CONTROL)) is not None:
                    raise refusal
                return None
            case Split():
                text = step.hash.decode()
                middle = len(text) // 2
                return None if len(text) < self.shortest else [inputs(text[:middle], text[middle:])]
            case Offer():
                self.asked.append([text for _, text in step.batch])
                refusals = [refusal for _, text in step.batch if (refusal := self.refuses(text)) is not None]
                self.kept += [] if refusals else [text for _, text in step.batch]
                return refusals[0] if refusals else None


def inputs(*texts: str) -> Batch:
    return [(text.encode(), text) for text in texts]


def poison(text: str) -> ContentRefused | None:
    return ContentRefused("refused") if "poison" in text else None


def longer_than(window: int) -> Callable[[str], ContentRefused | None]:
    return lambda text: ContentRefused("too long", code="INPUT_TRUNCATED") if len(text) > window else None


@pytest.mark.parametrize("size", [1, 2, 5, 32])
@pytest.mark.parametrize("poisonous", [0, 1, 3])
def test_any_number_at_fault_is_found(size: int, poisonous: int) -> None:
    batch = inputs(*(f"{'poison' if number < poisonous else 'good'} {number}" for number in range(size)))
    books = Recorded(refuses=poison)
    at_fault = books.run(batch, ContentRefused("refused")).at_fault
    expected = {hash_ for hash_, text in batch if "poison" in text}
    assert at_fault.keys() == expected
    assert sorted(books.kept) == sorted(text for hash_, text in batch if hash_ not in expected)
    assert books.controls == (2 if expected else 1)
    assert len(books.asked) <= 2 + 2 * max(size.bit_length(), 1) * max(len(expected), 1)


@pytest.mark.parametrize("batch", [1, 8, 32])
@pytest.mark.parametrize("parts", [2, 4, 16])
def test_what_is_too_long_is_bought_in_parts_and_nobody_is_at_fault(batch: int, parts: int) -> None:
    long = "".join(f"{number:08}" for number in range(8 * parts))
    books = Recorded(refuses=longer_than(64), shortest=16)
    others = [f"other {number}" for number in range(batch - 1)]
    at_fault = books.run(inputs(*others, long), ContentRefused("too long", code="INPUT_TRUNCATED")).at_fault
    assert at_fault == {}
    assert sorted(books.kept) == sorted([*others, *(long[at : at + 64] for at in range(0, len(long), 64))])
    assert books.controls == 1
    # The control, the way down to it, and of the tree of its halves each inner knot alone and its two children at once.
    assert len(books.asked) <= 1 + 2 * batch.bit_length() + 3 * parts


def test_what_is_too_long_and_too_short_for_halves_is_at_fault() -> None:
    books = Recorded(refuses=longer_than(0), shortest=16)
    with pytest.raises(ContentRefused):  # the control is too long as well: nobody is at fault
        books.run(inputs("short"), ContentRefused("too long", code="INPUT_TRUNCATED"))
    books = Recorded(refuses=lambda text: longer_than(0)(text) if text != CONTROL else None, shortest=16)
    at_fault = books.run(inputs("short"), ContentRefused("too long", code="INPUT_TRUNCATED")).at_fault
    assert list(at_fault) == [b"short"]
    assert books.asked == [[CONTROL], ["short"], [CONTROL]]


def test_only_what_is_too_long_has_halves() -> None:
    books = Recorded(refuses=poison, shortest=0)
    assert list(books.run(inputs("poison" * 9), ContentRefused("NaN")).at_fault) == [b"poison" * 9]


@pytest.mark.parametrize("error", [ConnectionRefused("x"), ContentRefused("x"), ProviderFailure("x", status=500)])
def test_a_control_that_fails_is_the_failure(error: ProviderError) -> None:
    books = Recorded(refuses=lambda text: error if text == CONTROL else None)
    with pytest.raises(EmbedkitError) as caught:
        books.run(inputs("text"), ContentRefused("refused"))
    assert caught.value is error


UNKNOWN = ProviderFailure("engine answered 424 (Eingabe abgelehnt)", status=424)


def test_what_is_refused_in_words_that_nobody_knows_is_found_by_evidence() -> None:
    books = Recorded(refuses=lambda text: UNKNOWN if "poison" in text else None)
    found = books.run(inputs(*(f"good {n}" for n in range(15)), "poison"), UNKNOWN)
    assert (list(found.at_fault), found.was_too_large, len(books.kept)) == ([b"poison"], False, 15)


def test_what_is_accepted_in_parts_was_too_large_together() -> None:
    found = Recorded().run(inputs("a", "b", "c", "d"), UNKNOWN)
    assert (found.at_fault, found.was_too_large) == ({}, True)
    assert not Recorded().run(inputs("a"), UNKNOWN).was_too_large
    assert not Recorded().run(inputs("a", "b"), TransportClosed("cut")).was_too_large


def test_a_large_input_is_split_before_it_is_fenced() -> None:
    """Over-long in words that say nothing: "range of input length should be", "must have less than"."""
    books = Recorded(refuses=lambda text: UNKNOWN if len(text) > 40 else None, shortest=16, window=20)
    found = books.run(inputs("word " * 16), UNKNOWN)
    assert (found.at_fault, books.kept) == ({}, [("word " * 8), ("word " * 8)])
    small = Recorded(refuses=lambda text: UNKNOWN if text != CONTROL else None, shortest=0, window=1000)
    assert list(small.run(inputs("word " * 16), UNKNOWN).at_fault) == [b"word " * 16]


def test_an_engine_that_takes_nothing_but_the_control_is_at_fault_itself() -> None:
    books = Recorded(refuses=lambda text: UNKNOWN if text != CONTROL else None)
    with pytest.raises(ProviderFailure):
        books.run(inputs(*map(str, range(64))), UNKNOWN)
    assert len(books.asked) < 3 * MOST_IN_A_ROW


@pytest.mark.parametrize(
    ("error", "may_be"),
    [
        (ContentRefused("x"), True),
        (ResponseInvalid("x"), True),
        (TransportClosed("x"), True),
        *((ProviderFailure("x", status=status), True) for status in (400, 422, 424, 500, 501)),
        (ProviderFailure("x", status=302), False),
        (ProviderAuthError("x", status=400), False),
        (ProviderBusy("x", status=503), False),
        (ModelNotResident("x", status=404), False),
        (ConnectionRefused("x"), False),
        (ProviderTimeout("x"), False),
        (QueueWaitExceeded("x"), False),
    ],
)
def test_which_failures_may_belong_to_one_input(error: EmbedkitError, may_be: bool) -> None:
    assert may_be_an_inputs(error) is may_be


# -- evidence, in a sweep --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "refusal",
    [
        *(
            ProviderFailure(f"engine answered {status} (unbekannt)", status=status)
            for status in (400, 422, 424, 500, 501)
        ),
        ResponseInvalid("the vector of input 1 holds a number that is not finite"),
        TransportClosed("broke before the end of the reply"),
    ],
    ids=lambda error: str(error)[:24],
)
async def test_a_refusal_that_belongs_to_one_input_in_any_words(tmp_path: Path, refusal: ProviderError) -> None:
    """ollama#6094, TEI#61: the repository stopped there for ever; 10 of 40 were stored after three sweeps."""

    async def script(call: FakeCall) -> None:
        if any("poison" in text for text in call.texts):
            raise refusal

    root = write_tree(tmp_path / "tree", numbered(39) | POISON)
    report = await sync(tmp_path / "store", root, FakeProvider(script))
    assert (report.outcome, report.fenced, report.embedded, report.outstanding) == ("complete", 1, 39, 0)
    again = FakeProvider(script)
    assert (await sync(tmp_path / "store", root, again)).provider_calls == 0


async def test_an_engine_that_takes_nothing_but_the_control_fences_nothing(tmp_path: Path) -> None:
    async def script(call: FakeCall) -> None:
        if call.texts[0] != CONTROL:
            raise ProviderFailure("engine answered 500 (out of order)", status=500)

    for batch in (1, 8):
        store, root = tmp_path / f"store{batch}", write_tree(tmp_path / "tree", numbered(40))
        report = await sync(store, root, FakeProvider(script), batch=batch)
        assert (report.outcome, report.code) == ("failed", "KB_VECTOR_EMBED_PROVIDER_FAILED")
        assert report.fenced < MOST_IN_A_ROW


async def test_fences_are_named_and_lifted_by_whoever_says_so_or_by_another_engine(tmp_path: Path) -> None:
    """A fenced text, and then a mended engine: the file was named nowhere, and stayed out till it changed."""
    store, root = tmp_path / "store", write_tree(tmp_path / "tree", numbered(3) | POISON)
    report = await sync(store, root, FakeProvider(refusing()))
    assert report.fenced_in == {"poison.txt": 1}
    async with opened(store, FakeProvider(), batch=8) as engine:
        for retry, fenced, bought in ((False, 1, 0), (True, 0, 1)):
            async with open_sweep(engine, [tenant("acme", one=root)], all=True, retry_fenced=retry) as sweep:
                (report,) = (await sweep.run()).repositories
            assert (report.fenced, report.embedded) == (fenced, bought)

    write_tree(root, {"other.txt": "poison too\n"})
    assert (await sync(store, root, FakeProvider(refusing()))).fenced_in == {"other.txt": 1}
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("UPDATE fences SET engine = 'another address'")
    assert (await sync(store, root, FakeProvider())).fenced_in == {}


async def test_a_batch_that_is_only_too_large_makes_the_next_sweeps_smaller(tmp_path: Path) -> None:
    async def script(call: FakeCall) -> None:
        if len(call.texts) > 3:
            raise ProviderFailure("engine answered 400 (zu viel)", status=400)

    root = write_tree(tmp_path / "tree", numbered(16))
    report = await sync(tmp_path / "store", root, FakeProvider(script))
    assert (report.outcome, report.fenced, report.embedded) == ("complete", 0, 16)
    write_tree(root, numbered(16, "other"))
    later = FakeProvider(script)
    await sync(tmp_path / "store", root, later)
    assert max(len(call.texts) for call in later.calls) <= 4
