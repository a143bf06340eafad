from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedkit.knowledge.searching.ranking import RANK_OFFSET, TEXT_WEIGHT, VECTOR_WEIGHT, fuse

Hits = list[tuple[int, float]]

# Few ids and few scores, so that lists overlap and tie.
hit_lists = st.dictionaries(st.integers(0, 12), st.sampled_from([-3.0, 0.0, 0.25, 0.5, 9.0])).map(
    lambda found: list(found.items())
)


def places(hits: Hits) -> dict[int, int]:
    return {hit: place for place, (hit, _) in enumerate(sorted(hits, key=lambda one: (-one[1], one[0])), start=1)}


@given(hit_lists, hit_lists)
def test_a_score_is_the_weighted_sum_of_reciprocal_ranks(vector: Hits, text: Hits) -> None:
    by_vector, by_text = places(vector), places(text)
    expected = {
        hit: (VECTOR_WEIGHT / (RANK_OFFSET + by_vector[hit]) if hit in by_vector else 0)
        + (TEXT_WEIGHT / (RANK_OFFSET + by_text[hit]) if hit in by_text else 0)
        for hit in by_vector | by_text
    }
    assert dict(fuse(vector, text, k=99)) == pytest.approx(expected)


@given(hit_lists, hit_lists)
def test_what_is_nowhere_worse_and_somewhere_better_stands_higher(vector: Hits, text: Hits) -> None:
    nowhere = 1_000
    by_vector, by_text = places(vector), places(text)
    order = [hit for hit, _ in fuse(vector, text, k=99)]
    for higher, first in enumerate(order):
        for second in order[higher + 1 :]:
            assert by_vector.get(first, nowhere) < by_vector.get(second, nowhere) or by_text.get(
                first, nowhere
            ) < by_text.get(second, nowhere)


@given(hit_lists, hit_lists, st.integers(0, 30))
def test_scores_descend_ties_go_by_id_and_each_hit_comes_once(vector: Hits, text: Hits, k: int) -> None:
    fused = fuse(vector, text, k=k)
    assert fused == sorted(fused, key=lambda hit: (-hit[1], hit[0]))
    assert len({hit for hit, _ in fused}) == len(fused)
    assert len(fused) == min(k, len(dict(vector) | dict(text)))


@given(hit_lists, hit_lists, st.integers(0, 30))
def test_fewer_are_the_beginning_of_more(vector: Hits, text: Hits, k: int) -> None:
    assert fuse(vector, text, k=k) == fuse(vector, text, k=99)[:k]


@given(hit_lists, hit_lists, st.randoms(use_true_random=False))
def test_the_order_of_the_given_lists_does_not_matter(vector: Hits, text: Hits, rng: random.Random) -> None:
    before = fuse(vector, text, k=99)
    rng.shuffle(vector)
    rng.shuffle(text)
    assert fuse(vector, text, k=99) == before


@given(hit_lists)
def test_one_list_alone_keeps_its_order(hits: Hits) -> None:
    order = list(places(hits))
    assert [hit for hit, _ in fuse(hits, [], k=99)] == order
    assert [hit for hit, _ in fuse([], hits, k=99)] == order


def test_a_hit_given_twice_counts_once_at_its_best_place() -> None:
    assert fuse([(7, 0.1), (7, 0.9), (8, 0.5)], [], k=9) == fuse([(7, 0.9), (8, 0.5)], [], k=9)


def test_full_text_leads_and_vectors_promote() -> None:
    text = [(number, 10.0 - number) for number in range(1, 9)]
    assert [hit for hit, _ in fuse([(99, 1.0)], text, k=2)] == [1, 2], "the vectors' first does not displace its first"
    assert fuse([(3, 1.0)], text, k=1)[0][0] == 3, "a third place that the vectors put first comes first"
