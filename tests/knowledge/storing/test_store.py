from __future__ import annotations

from pathlib import Path

import pytest
from fakes import vectors_of
from knowledge_base import bought, open_store, prepared, put
from store_content import content_of

from embedkit.errors import SpaceMismatch
from embedkit.knowledge.indexing.purchases import unit_rows
from embedkit.knowledge.model import Space
from embedkit.knowledge.searching.search import Query
from embedkit.knowledge.sources.source import Sighting
from embedkit.knowledge.storing.leases import Lease, Leased

SPACE = Space("fake", "hash", 8)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite3"


async def test_a_new_store_has_no_space_and_keeps_the_one_it_is_given(path: Path) -> None:
    async with open_store(path) as store:
        assert await store.space() is None
        await store.claim_space(SPACE)
        await store.claim_space(SPACE)
    async with open_store(path) as store:
        assert await store.space() == SPACE


@pytest.mark.parametrize(
    "other",
    [
        Space("fake", "hash", 16),
        Space("fake", "other", 8),
        Space("local", "hash", 8),
        Space("fake", "hash", 8, {"dimensions": "8"}),
    ],
    ids=str,
)
async def test_a_store_of_another_space_is_refused_and_both_are_named(path: Path, other: Space) -> None:
    async with open_store(path) as store:
        await store.claim_space(SPACE)
        with pytest.raises(SpaceMismatch) as refused:
            await store.claim_space(other)
        assert str(path) in str(refused.value)
        assert str(SPACE) in str(refused.value)
        assert str(other) in str(refused.value)
        assert await store.space() == SPACE


async def test_a_record_is_made_once_and_repositories_of_two_tenants_are_two(path: Path) -> None:
    async with open_store(path) as store:
        first = await store.repository("a", "api")
        assert await store.repository("a", "api") == first
        second = await store.repository("b", "api")
        assert second.id != first.id
        assert second.tenant_id != first.tenant_id
        assert await store.tenants() == ["a", "b"]
        assert await store.repositories() == [first, second]


async def test_everything_that_a_sweep_writes_needs_its_lease(path: Path) -> None:
    async with open_store(path) as store:
        await put(store, "a", "api", prepared("one.txt", "one"))
        before = content_of(path)
        record = await store.repository("a", "api")
        lost = Lease(record.id, "somebody else")
        with pytest.raises(Leased):
            await store.commit(record, lost, bought(["two"]), [prepared("two.txt", "two")])
        with pytest.raises(Leased):
            await store.commit(record, lost, bought(["two"]), [])
        with pytest.raises(Leased):
            await store.remove(record, lost, ["one.txt"])
        with pytest.raises(Leased):
            await store.finish(record, lost, {"one.txt": Sighting("stamp", "hash")})
        assert content_of(path) == before
        assert await store.sightings(record) == {}


async def test_what_was_seen_is_replaced_as_a_whole(path: Path) -> None:
    async with open_store(path) as store:
        record = await store.repository("a", "api")
        first = {"one": Sighting("1", "a"), "two": Sighting("2", None, "binary")}
        second = {"two": Sighting("3", "b"), "three": Sighting("4", "c")}
        for seen in (first, second):
            await store.finish(record, await store.lease(record), seen)
            assert await store.sightings(record) == seen
        await store.finish(record, await store.lease(record), None)
        assert await store.sightings(record) == second


async def test_a_checkpoint_gives_the_lease_back_in_the_same_transaction(path: Path) -> None:
    async with open_store(path) as store:
        record = await store.repository("a", "api")
        lease = await store.lease(record)
        await store.finish(record, lease, None)
        with pytest.raises(Leased):
            await store.renew(lease)
        await store.lease(record)


async def test_staged_vectors_are_known_and_invisible(path: Path) -> None:
    async with open_store(path) as store:
        record = await store.repository("a", "api")
        lease = await store.lease(record)
        staged = bought(["one", "two"])
        await store.commit(record, lease, staged, [])
        assert (await store.known_inputs(record.tenant_id, [*staged, b"none"])).known == set(staged)
        assert await store.nearest("a", unit("one"), 10) == []
        assert await store.search(by_words("a", "one")) == []
        assert await store.count(record) == (0, 0)


async def test_a_checkpoint_lets_go_of_what_was_staged_for_itself_unless_somebody_is_at_work(path: Path) -> None:
    every = bought(["used", "mine", "theirs"])
    async with open_store(path) as store:
        mine = await store.repository("a", "api")
        theirs = await store.repository("a", "site")
        their_lease = await store.lease(theirs)
        await store.commit(theirs, their_lease, bought(["theirs"]), [])
        await put(store, "b", "api", prepared("other.txt", "other"))
        lease = await store.lease(mine)
        await store.commit(mine, lease, bought(["used", "mine"]), [prepared("used.txt", "used")])
        await store.finish(mine, lease, {"used.txt": Sighting("1", "a")})
        assert (await store.known_inputs(mine.tenant_id, every)).known == set(every)
        await store.release(their_lease)
        await store.finish(mine, await store.lease(mine), {"used.txt": Sighting("2", "b")})
        assert (await store.known_inputs(mine.tenant_id, every)).known == set(bought(["used", "theirs"]))
        await store.finish(theirs, await store.lease(theirs), {"its.txt": Sighting("3", "c")})
        assert (await store.known_inputs(mine.tenant_id, every)).known == set(bought(["used"]))
    assert len(content_of(path).vectors) == 2


async def test_vectors_of_another_tenant_are_not_known(path: Path) -> None:
    async with open_store(path) as store:
        await put(store, "a", "api", prepared("one.txt", "one"))
        other = await store.repository("b", "api")
        assert (await store.known_inputs(other.tenant_id, bought(["one"]))).known == set()


async def test_what_is_searched_for_at_a_place_that_is_not_there_is_nothing(path: Path) -> None:
    async with open_store(path) as store:
        await put(store, "a", "api", prepared("one.txt", "one"))
        for tenant, repository in (("nobody", None), ("a", "nothing")):
            assert await store.nearest(tenant, unit("one"), 10, repository) == []
            assert await store.search(by_words(tenant, "one", repository)) == []


async def test_a_search_in_one_repository_finds_nothing_of_its_neighbours(path: Path) -> None:
    async with open_store(path) as store:
        await put(store, "a", "api", prepared("one.txt", "one"))
        await put(store, "a", "site", prepared("one.txt", "one"))
        for repository in ("api", "site"):
            for query in (by_words("a", "one", repository), by_vector("a", "one", repository)):
                (hit,) = await store.search(query)
                assert (hit.repository, hit.also) == (repository, ())


def by_words(tenant: str, text: str, repository: str | None = None) -> Query:
    return Query(tenants=[tenant], text=text, mode="text", repository=repository)


def by_vector(tenant: str, text: str, repository: str | None = None) -> Query:
    return Query(tenants=[tenant], vector=unit(text), mode="vector", repository=repository)


def unit(text: str):  # type: ignore[no-untyped-def]
    import numpy as np

    return np.frombuffer(unit_rows(vectors_of([text]))[0], "<f4")
