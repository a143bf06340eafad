"""No tenant learns from its hits, their order or their scores whether another's text holds a word."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from knowledge_base import open_store, prepared, put

from embedkit.knowledge.searching.search import Query
from embedkit.knowledge.searching.words import index_words, match_terms, owned, owned_terms

OURS = ("harbour ferry", "ferry ferry harbour timetable", "harbour", "ferry timetable", "night ferry harbour")


async def scores(path: Path, theirs: list[str]) -> list[tuple[str, float]]:
    async with open_store(path) as store:
        await put(store, "ours", "docs", *(prepared(f"{number}.txt", text) for number, text in enumerate(OURS)))
        await put(store, "theirs", "docs", *(prepared(f"{number}.txt", text) for number, text in enumerate(theirs)))
        hits = await store.search(Query(tenants=["ours"], text="ferry harbour timetable", mode="text"))
        assert await store.search(Query(tenants=["theirs"], text="night", mode="text")) == []
        return [(hit.path, hit.score) for hit in hits]


@pytest.mark.parametrize("word", ["ferry", "harbour", "timetable"])
async def test_scores_are_equal_to_the_bit_whatever_words_others_have(word: str, tmp_path: Path) -> None:
    with_it = await scores(tmp_path / "with.sqlite3", [f"{word} {number}" for number in range(40)])
    without = await scores(tmp_path / "without.sqlite3", [f"xylophone {number}" for number in range(40)])
    assert with_it == without
    assert len(with_it) == len(OURS)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**8), st.integers(0, 10**8), st.text(max_size=12), st.text(max_size=12))
def test_no_word_of_one_tenant_is_another_tenants(one: int, other: int, first: str, second: str) -> None:
    ours, theirs = owned(one, index_words(first)).split(), owned(other, index_words(second)).split()
    if one != other:
        assert not set(ours) & set(theirs)
    assert len(owned(one, "parseDate HTTP-server é_b").split()) == 5


def test_what_is_looked_up_is_what_is_indexed() -> None:
    for number in (1, 2_999, 3_000, 123_456_789):
        for text in ("parse_date", "naïve café", "東京都", "HTTPServer"):
            indexed = set(owned(number, index_words(text).lower()).split())
            terms = " ".join(owned_terms(number, match_terms(text))).replace('"', "").replace("*", "").split()
            assert indexed & set(terms)
