from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from fakes import FakeProvider, opened
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from knowledge_base import open_store, prepared, put

from embedkit.errors import UsageError
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


# -- what scores mean ------------------------------------------------------------------------------------------------


async def test_a_score_is_what_the_mode_says_and_can_be_compared_across_tenants(tmp_path: Path) -> None:
    """SocratiCode#94: ranks were shown as scores, and over all tenants the wrong tenant came first."""
    path = tmp_path / "store.sqlite3"
    async with open_store(path) as store:
        await put(store, "a", "api", prepared("far.txt", *(f"nothing of the kind {n}" for n in range(3))))
        await put(store, "b", "api", prepared("near.txt", "pear tart", "plum jam"))
    async with opened(path) as engine:
        for mode in MODES:
            hits = await engine.search("pear tart", tenant=["a", "b"], mode=mode)
            assert (hits[0].tenant, hits[0].text) == ("b", "pear tart")
            assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
            assert all((hit.cosine is None) == (mode == "text") for hit in hits)
        vector = await engine.search("pear tart", tenant=["a", "b"], mode="vector")
        assert [hit.cosine for hit in vector] == [hit.score for hit in vector]
        assert vector[0].score == pytest.approx(1.0)
        assert len(vector) == 5
        hybrid = {hit.text: hit.cosine for hit in await engine.search("pear tart", tenant=["a", "b"])}
        assert hybrid == pytest.approx({hit.text: hit.score for hit in vector})
        for mode in ("vector", "hybrid"):
            close = await engine.search("pear tart", tenant=["a", "b"], mode=mode, min_score=0.999)
            assert [hit.text for hit in close] == ["pear tart"]
        assert await engine.search("pear tart", tenant="b", mode="text", min_score=1000.0) == []


async def test_a_hybrid_hit_that_only_words_found_has_its_cosine(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    async with open_store(path) as store:
        await put(store, "a", "api", prepared("a.txt", *(f"filler {n}" for n in range(300)), "the one needle"))
    async with opened(path) as engine:
        everything = {hit.text: hit.score for hit in await engine.search("needle", tenant="a", mode="vector", k=999)}
        hits = {hit.text: hit.cosine for hit in await engine.search("needle", tenant="a", k=999)}
        assert hits["the one needle"] == pytest.approx(everything["the one needle"], abs=1e-5)


async def test_copies_are_one_hit_that_says_where_else_it_stands(tmp_path: Path) -> None:
    """gptme-rag#7, zoekt#15: fifteen copies of a file took all ten places."""
    path = tmp_path / "store.sqlite3"
    async with open_store(path) as store:
        copies = [prepared(f"copy{n:03}/test_tart.txt", "pear tart") for n in range(150)]
        await put(store, "a", "api", *copies, prepared("src/tart.txt", "pear tart"), prepared("jam.txt", "plum jam"))
        await put(store, "a", "site", prepared("other.txt", "pear cake"))
    async with opened(path) as engine:
        for mode in MODES:
            hits = await engine.search("pear tart", tenant="a", mode=mode, k=3)
            assert (hits[0].text, hits[0].path) == ("pear tart", "src/tart.txt")
            assert "pear cake" in [hit.text for hit in hits]
            assert len(hits[0].also) == 20
            assert hits[0].also[0].path == "copy000/test_tart.txt"


async def test_only_what_patterns_and_languages_name_is_searched(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    names = ["src/a.py", "src/b.js", "docs/c.md", "test/d.py"]
    async with open_store(path) as store:
        await put(store, "a", "api", *(prepared(name, f"apple {name}") for name in names))
    async with opened(path) as engine:
        for mode in MODES:

            async def found(mode: Mode = mode, **options: Any) -> list[str]:
                return sorted(hit.path for hit in await engine.search("apple", tenant="a", mode=mode, **options))

            assert await found(path=["src/"]) == ["src/a.py", "src/b.js"]
            assert await found(path=["*.py", "!test/"], language=["python"]) == ["src/a.py", "test/d.py"]
            assert await found(language=["md", "javascript"]) == ["docs/c.md", "src/b.js"]
            assert await found(path=["nowhere/**"]) == []
            with pytest.raises(UsageError, match="'klingon' is no language"):
                await found(language=["klingon"])


async def test_the_neighbours_of_a_chunk_are_found_without_an_engine(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    async with open_store(path) as store:
        await put(store, "a", "api", prepared("fruit.txt", "apple pie", "pear tart", "plum jam"))
        await put(store, "b", "api", prepared("other.txt", "apple pie"))
    provider = FakeProvider()
    async with opened(path, provider) as engine:
        hits = await engine.search(tenant="a", like=("fruit.txt", 2))
        assert sorted(hit.text for hit in hits) == ["apple pie", "plum jam"]
        for place in (("fruit.txt", 9), ("other.txt", 1)):
            with pytest.raises(UsageError, match="nothing is stored at"):
                await engine.search(tenant="a", like=place)
    assert provider.calls == []


async def test_at_equal_score_sources_come_before_tests(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    async with open_store(path) as store:
        await put(store, "a", "api", prepared("tests/x.py", "pear one"), prepared("src/x.py", "pear two"))
    async with opened(path) as engine:
        hits = await engine.search("pear", tenant="a", mode="text")
        assert hits[0].score == hits[1].score
        assert [hit.path for hit in hits] == ["src/x.py", "tests/x.py"]
