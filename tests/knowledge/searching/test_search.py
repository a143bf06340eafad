from __future__ import annotations

from pathlib import Path

import pytest
import trio
from fakes import FakeProvider, opened
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from knowledge_base import open_store, prepared, put

from embedkit.knowledge.searching.search import Mode
from embedkit.knowledge.storing.store import SqliteStore

MODES: tuple[Mode, ...] = ("hybrid", "vector", "text")
SYNTAX = ['"', "*", "(", ")", "AND", "OR", "NOT", "NEAR", ":", "^", "-", "tenant", "t1", "t2", "{", "}", "'", ";", "\0"]
WORDS = st.one_of(st.sampled_from([*SYNTAX, "apple", "pear", "Äpfel", "parseDate", "²", "漢字"]), st.text(max_size=6))
LINES = st.lists(WORDS, min_size=1, max_size=4).map(" ".join).filter(lambda text: bool(text.encode("utf-8", "ignore")))
UTF8 = LINES.map(lambda text: text.encode("utf-8", "replace").decode())


async def texts_found(path: Path, tenant: str, query: str, mode: Mode, k: int = 50) -> list[tuple[str, str]]:
    async with opened(path) as engine:
        return [(hit.tenant, hit.text) for hit in await engine.search(query, tenant=tenant, k=k, mode=mode)]


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(UTF8, min_size=1, max_size=4), st.lists(UTF8, min_size=1, max_size=4), st.lists(LINES, max_size=4))
@example(["apple"], ["pear"], ['tenant : t1 OR "', "t1", "t2", 't1" OR "t2', "* NOT apple", "\udcff", "apple\0pear"])
def test_no_tenant_sees_another_ones_text(
    tmp_path_factory: pytest.TempPathFactory, ours: list[str], theirs: list[str], queries: list[str]
) -> None:
    """Two tenants with equal paths, and with texts that are equal but for a tenant's own mark."""
    path = tmp_path_factory.mktemp("search") / "store.sqlite3"
    trio.run(two_tenants, path, ours, theirs, [*queries, *ours, *theirs])


async def two_tenants(path: Path, ours: list[str], theirs: list[str], queries: list[str]) -> None:
    held = {"a": [*ours, "both"], "b": [*theirs, "both"]}
    async with opened(path) as engine:
        store = await engine.knowledge()
        for tenant, texts in held.items():
            await put(store, tenant, "api", prepared("same/path.txt", *texts))
        await store.claim_space(engine.space_of(8))
        for tenant, texts in held.items():
            for query in [*queries, "both"]:
                for mode in MODES:
                    hits = await engine.search(query, tenant=tenant, k=50, mode=mode)
                    assert {hit.tenant for hit in hits} <= {tenant}
                    assert {hit.text for hit in hits} <= set(texts)
            assert [hit.text for hit in await engine.search("both", tenant=tenant, k=1)] == ["both"]


async def test_a_text_is_found_by_its_own_words_and_by_its_own_vector(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    async with open_store(path) as store:
        await put(store, "a", "api", prepared("fruit.txt", "apple pie", "pear tart", "plum jam"))
    for mode in MODES:
        assert (await texts_found(path, "a", "pear tart", mode))[0] == ("a", "pear tart")


async def test_scores_descend_and_no_more_than_k_come(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    async with open_store(path) as store:
        await put(store, "a", "api", prepared("fruit.txt", *(f"apple {number}" for number in range(150))))
    async with opened(path) as engine:
        for k in (1, 7, 149, 1000):
            hits = await engine.search("apple", tenant="a", k=k)
            assert len(hits) == min(k, 150)
            assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
            assert len({hit.lines for hit in hits}) == len(hits)


async def test_a_query_as_large_as_it_likes(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    async with open_store(path) as store:
        await put(store, "a", "api", prepared("fruit.txt", "apple"))
    query = " ".join(f"word{number}" for number in range(20_000)) + " apple"
    async with opened(path) as engine:
        assert len(await engine.search(query, tenant="a", k=10**30)) == 1


async def test_full_text_alone_asks_no_engine(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    async with open_store(path) as store:
        await put(store, "a", "api", prepared("fruit.txt", "apple"))
    provider = FakeProvider()
    async with opened(path, provider) as engine:
        assert len(await engine.search("apple", tenant="a", mode="text")) == 1
    assert provider.calls == []


async def test_a_chunk_that_goes_between_ranking_and_reading_is_left_out(tmp_path: Path) -> None:
    async with open_store(tmp_path / "store.sqlite3") as store:
        await put(store, "a", "api", prepared("fruit.txt", "apple"), prepared("tree.txt", "apple tree"))
        ranked = await store.by_words("a", "apple", 10)
        await remove(store, "fruit.txt")
        assert [hit.text for hit in await store.hits("a", ranked)] == ["apple tree"]
        assert [hit.text for hit in await store.hits("a", await store.by_words("a", "apple", 10))] == ["apple tree"]


async def test_a_ranked_chunk_of_another_tenant_is_not_shown(tmp_path: Path) -> None:
    async with open_store(tmp_path / "store.sqlite3") as store:
        await put(store, "a", "api", prepared("fruit.txt", "apple"))
        await put(store, "b", "api", prepared("fruit.txt", "pear"))
        ranked = [*await store.by_words("a", "apple", 10), *await store.by_words("b", "pear", 10)]
        assert [hit.text for hit in await store.hits("b", ranked)] == ["pear"]


async def test_a_search_sees_what_was_stored_since_the_last_one(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    async with opened(path) as engine:
        store = await engine.knowledge()
        for count in range(1, 4):
            await put(store, "a", "api", prepared(f"{count}.txt", f"apple {count}"))
            hits = await engine.search("apple", tenant="a", mode="vector")
            assert {hit.text for hit in hits} == {f"apple {number}" for number in range(1, count + 1)}


async def remove(store: SqliteStore, path: str) -> None:
    record = await store.repository("a", "api")
    lease = await store.lease(record)
    await store.remove(record, lease, [path])
    await store.release(lease)
