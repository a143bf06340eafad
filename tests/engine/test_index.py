"""``Engine.index``: texts that are in no folder, under the laws of a sweep."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trio
from fakes import FakeCall, FakeProvider, cancelled_at_step, numbered, opened, tenant, write_tree
from store_content import content_of, paths_in

from embedkit import (
    ContentRefused,
    Document,
    EmbedkitError,
    Engine,
    Leased,
    ProviderTimeout,
    SourceError,
    UsageError,
    open_sweep,
)
from embedkit.engine import adding


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite3"


def some(count: int, word: str = "text") -> list[Document]:
    return [Document(path, text) for path, text in numbered(count, word).items()]


async def held_path(engine: Engine) -> list[str]:
    base = await engine.knowledge()
    return [path for record in await base.repositories() for path in await base.stored(record)]


async def test_texts_are_stored_and_found_with_their_metadata(store: Path) -> None:
    async with opened(store) as engine:
        given = [
            Document("mail/1", "the night train leaves late", {"by": "ann", "year": 2020}),
            Document("mail/2", "the day train leaves early", {"by": "bob", "year": 2020.0, "tags": ["a", None]}),
        ]
        done = await engine.index("acme", "mail", given)
        assert (done.documents, done.chunks, done.embedded, done.provider_calls) == (2, 2, 2, 1)
        hits = await engine.search("train", tenant="acme")
        assert {hit.path: hit.metadata for hit in hits} == {item.path: item.metadata for item in given}
        for wanted, found in (
            ({"year": 2020}, {"mail/1", "mail/2"}),
            ({"by": "ann"}, {"mail/1"}),
            ({"by": "ann", "year": 2020}, {"mail/1"}),
            ({"tags": ["a", None]}, {"mail/2"}),
            ({"by": "2020"}, set()),
            ({"year": "2020"}, set()),
            ({"year": True}, set()),
            ({"tags": "a"}, set()),
        ):
            for mode in ("vector", "text"):
                hits = await engine.search("train", tenant="acme", metadata=wanted, mode=mode)
                assert {hit.path for hit in hits} == found, (wanted, mode)


async def test_what_has_not_changed_is_not_bought_again(store: Path) -> None:
    provider = FakeProvider()
    async with opened(store, provider) as engine:
        await engine.index("acme", "mail", some(3))
        again = await engine.index("acme", "mail", some(3))
        assert (again.documents, again.embedded, again.provider_calls) == (3, 0, 0)
        told = await engine.index("acme", "mail", [Document("file000.txt", "text number 0\n", {"new": True})])
        assert (told.embedded, told.reused, told.deleted, told.chunks) == (0, 1, 1, 3)
        assert [hit.path for hit in await engine.search("text", tenant="acme", metadata={"new": True})] == [
            "file000.txt"
        ]
    assert len(provider.inputs) == 3 + 1  # the query


async def test_complete_removes_what_is_not_named_and_nothing_else(store: Path) -> None:
    async with opened(store) as engine:
        await engine.index("acme", "mail", some(5))
        await engine.index("acme", "other", some(1, "else"))
        assert (await engine.index("acme", "mail", some(2))).chunks == 5
        done = await engine.index("acme", "mail", some(2), complete=True)
        assert (done.documents, done.deleted, done.chunks) == (2, 3, 2)
        assert (await engine.index("acme", "mail", some(1), complete=lambda: False)).deleted == 0
        with pytest.raises(SourceError, match="none was given") as raised:
            await engine.index("acme", "mail", [], complete=True)
        assert raised.value.code == "KB_SOURCE_EMPTY"
        assert (await engine.index("acme", "mail", [], complete=True, allow_empty=True)).chunks == 0
    assert paths_in(store) == ["file000.txt"]


async def test_more_than_fits_in_a_portion_comes_from_an_async_iterable(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adding, "_DOCUMENTS_AT_ONCE", 4)
    ahead: list[int] = []
    async with opened(store, batch=2) as engine:

        async def given() -> AsyncIterator[Document]:
            for number, document in enumerate(some(18)):
                await trio.lowlevel.checkpoint()
                ahead.append(number - len(paths_in(store)))
                yield document

        done = await engine.index("acme", "mail", given(), complete=True)
    assert (done.documents, done.chunks) == (18, 18)
    assert max(ahead) == 3  # what came before is stored by then


async def test_the_last_of_a_path_counts(store: Path) -> None:
    async with opened(store) as engine:
        await engine.index("acme", "mail", [Document("a", "first"), Document("b", "x"), Document("a", "second")])
        assert {hit.text for hit in await engine.search("first", tenant="acme")} == {"second", "x"}


async def test_what_the_iterable_raises_comes_out_after_what_it_gave_is_stored(store: Path) -> None:
    def given() -> Iterator[Document]:
        yield from some(3)
        raise KeyError("mine")

    async with opened(store) as engine:
        await engine.index("acme", "mail", [Document("old", "old")])
        with pytest.raises(KeyError, match="mine"):
            await engine.index("acme", "mail", given(), complete=True)
        assert len(paths_in(store)) == 4  # nothing was removed
        assert (await engine.index("acme", "mail", some(3), complete=True)).embedded == 0  # and the lease is free


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("text", "not str"),
        (Document("", "x"), "path"),
        (Document("a\nb", "x"), "path"),
        (Document("a" * 1025, "x"), "path"),
        (Document("a", "\ud800"), "lone surrogate"),
        (Document("a", "x", {"a": float("nan")}, content_hash="h"), "metadata is JSON"),
        (Document("a", "x", {"a": "b" * 4096}), "4,096"),
        (Document("a", "x", {"a": object()}, content_hash="h"), "metadata is JSON"),
        (Document("a", "x", {1: 2}, content_hash="h"), "metadata is JSON"),  # type: ignore[dict-item]
        (Document("a", "x", ["a"], content_hash="h"), "metadata is an object"),  # type: ignore[arg-type]
    ],
)
async def test_what_cannot_be_stored_is_one_line_and_costs_nothing_else(store: Path, bad: Document, said: str) -> None:
    async with opened(store) as engine:
        with pytest.raises(UsageError, match=said):
            await engine.index("acme", "mail", [*some(2), bad, *some(3)])
    assert len(paths_in(store)) == 2


async def test_a_text_that_is_too_large_is_named_and_its_old_version_stays(store: Path) -> None:
    async with opened(store, max_file_bytes=20) as engine:
        await engine.index("acme", "mail", [Document("a", "small")])
        done = await engine.index("acme", "mail", [Document("a", "x" * 21), Document("b", "y" * 20)], complete=True)
    assert (done.oversized, done.deleted, paths_in(store)) == (("a",), 0, ["a", "b"])


async def test_a_failure_keeps_what_was_bought_and_removes_nothing(store: Path) -> None:
    async def times_out(call: FakeCall) -> None:
        if call.number == 3:
            raise ProviderTimeout("too slow")

    provider = FakeProvider(times_out)
    async with opened(store, provider, batch=1) as engine:
        with pytest.raises(ProviderTimeout):
            await engine.index("acme", "mail", some(6), complete=True)
        (record,) = await (await engine.knowledge()).repositories()
        assert record.last is not None
        assert (record.last.code, record.outstanding) == ("KB_VECTOR_EMBED_PROVIDER_TIMEOUT", 4)
        assert len(content_of(store).chunks) == 2
        done = await engine.index("acme", "mail", some(6), complete=True)
    assert (done.documents, done.embedded) == (6, 4)


async def test_poison_is_fenced_and_named(store: Path) -> None:
    async def refuses(call: FakeCall) -> None:
        if any("poison" in text for text in call.texts):
            raise ContentRefused("no")

    async with opened(store, FakeProvider(refuses)) as engine:
        done = await engine.index("acme", "mail", [*some(3), Document("bad.txt", "poison")])
    assert (dict(done.fenced), done.documents, done.chunks) == ({"bad.txt": 1}, 4, 3)


async def test_given_texts_and_a_folder_never_replace_each_other(store: Path, tmp_path: Path) -> None:
    root = write_tree(tmp_path / "root", numbered(2))
    async with opened(store) as engine:
        await engine.index("acme", "a", [Document("x", "given")])
        async with open_sweep(engine, [tenant("acme", a=root, b=root)], all=True) as sweep:
            one, two = (await sweep.run()).repositories
        assert (one.outcome, two.outcome) == ("failed", "complete")
        assert "embedkit add" in (one.reason or "")
        with pytest.raises(UsageError, match="holds the files of"):
            await engine.index("acme", "b", [Document("x", "given")], complete=True)
        assert len(await held_path(engine)) == 3


async def test_one_at_a_time_works_on_a_repository(store: Path) -> None:
    async with opened(store) as engine:

        async def given() -> AsyncIterator[Document]:
            with pytest.raises(Leased):
                await engine.index("acme", "mail", some(1))
            yield Document("a", "a")

        assert (await engine.index("acme", "mail", given())).documents == 1


async def test_cancelled_at_each_await_nothing_is_lost_and_the_lease_is_free(store: Path) -> None:
    provider = FakeProvider()
    async with opened(store, provider, batch=1) as engine:
        await engine.index("acme", "mail", [Document("old", "old")])
        for steps in range(1, 400):
            with cancelled_at_step(steps) as scope:
                await engine.index("acme", "mail", some(3, f"v{steps % 5}"), complete=True)
            held = content_of(store)
            assert len(held.chunks) >= 1
            done = await engine.index("acme", "mail", some(3, f"v{steps % 5}"))
            assert done.documents == 3
            if not scope.cancelled_caught:
                break
        else:
            raise AssertionError("never ended")
    assert len(provider.inputs) <= 1 + 3 * (steps + 1)


async def test_names_are_names(store: Path) -> None:
    async with opened(store) as engine:
        for names in (("", "a"), ("a", " "), ("a\n", "b")):
            with pytest.raises(EmbedkitError, match="name in one line"):
                await engine.index(*names, [])


async def test_progress_counts_over_all_portions(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adding, "_DOCUMENTS_AT_ONCE", 4)
    told: list[tuple[int, int]] = []
    async with opened(store) as engine:
        await engine.index("acme", "mail", some(10), on_progress=lambda *seen: told.append(seen))
    assert told == sorted(told)
    assert told[-1] == (10, 10)
    assert len(told) > 3
