from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from knowledge_base import prepared

from embedkit.knowledge.searching.matrix import TenantMatrix, load
from embedkit.knowledge.storing import documents, repositories, schema

# Rows along an axis: products and their sums are exact, so that equal cosines are equal to the last bit.
AXES = np.concatenate([np.eye(3, dtype=np.float32), -np.eye(3, dtype=np.float32), np.zeros((1, 3), np.float32)])


def matrix_of(rows: list[int], repository_ids: list[int] | None = None) -> TenantMatrix:
    count = len(rows)
    ids = np.arange(10, 10 + 2 * count, 2, dtype=np.int64)
    repository = np.asarray(repository_ids if repository_ids is not None else [1] * count, np.int64)
    return TenantMatrix(1, ids, repository, AXES[rows].reshape(count, 3))


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 2)), max_size=30), st.integers(1, 12), st.integers(0, 6))
def test_the_nearest_are_those_of_a_full_sort_ties_by_number(
    rows: list[tuple[int, int]], count: int, query: int
) -> None:
    matrix = matrix_of([row for row, _ in rows], [repository for _, repository in rows])
    for repository in (None, 1, 2, 3):
        everything = [
            (int(number), float(vector @ AXES[query]))
            for number, owner, vector in zip(matrix.chunk_ids, matrix.repository_ids, matrix.vectors, strict=True)
            if repository in (None, owner)
        ]
        expected = sorted(everything, key=lambda hit: (-hit[1], hit[0]))[:count]
        assert matrix.nearest(AXES[query], count, repository) == expected


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("store"), st.sampled_from("ab"), st.integers(0, 4), st.lists(st.integers(0, 9), max_size=4)),
        st.tuples(st.just("remove"), st.sampled_from("ab"), st.integers(0, 4), st.just([])),
        st.tuples(st.just("load"), st.sampled_from("ab"), st.just(0), st.just([])),
    ),
    max_size=25,
)


@given(STEPS)
def test_a_matrix_that_follows_the_store_equals_one_read_anew(steps: list[tuple[str, str, int, list[int]]]) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for step in schema.STEPS:
            connection.executescript(step) if isinstance(step, str) else step(connection)
        held: dict[str, TenantMatrix] = {}
        for what, tenant, path, numbers in steps:
            record = repositories.ensure(connection, tenant, "api")
            if what == "store":
                document = prepared(f"{path}.txt", *map(str, numbers))
                vectors = {part.hash: vector(int(part.chunk.text)) for part in document.chunks}
                documents.stage(connection, record.tenant_id, record.id, vectors)
                documents.switch(connection, record.tenant_id, record.id, [document])
            elif what == "remove":
                documents.remove(connection, record.tenant_id, record.id, [f"{path}.txt"])
            else:
                held[tenant] = load(connection, record.tenant_id, 3, held.get(tenant))
                assert_same(held[tenant], load(connection, record.tenant_id, 3, None))


def vector(number: int) -> bytes:
    return np.asarray([number, 1, -number], "<f4").tobytes()


def assert_same(one: TenantMatrix, other: TenantMatrix) -> None:
    assert one.version == other.version
    np.testing.assert_array_equal(one.chunk_ids, other.chunk_ids)
    np.testing.assert_array_equal(one.repository_ids, other.repository_ids)
    np.testing.assert_array_equal(one.vectors, other.vectors)


def test_a_matrix_of_an_unchanged_store_is_the_same_object() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for step in schema.STEPS:
            connection.executescript(step) if isinstance(step, str) else step(connection)
        record = repositories.ensure(connection, "a", "api")
        first = load(connection, record.tenant_id, 3, None)
        assert load(connection, record.tenant_id, 3, first) is first
        assert first.nearest(AXES[0], 5) == []


def test_more_rows_than_are_read_at_once() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for step in schema.STEPS:
            connection.executescript(step) if isinstance(step, str) else step(connection)
        record = repositories.ensure(connection, "a", "api")
        for start in (0, 2500):
            document = prepared(f"{start}.txt", *map(str, range(start, start + 2500)))
            vectors = {part.hash: vector(int(part.chunk.text)) for part in document.chunks}
            documents.stage(connection, record.tenant_id, record.id, vectors)
            documents.switch(connection, record.tenant_id, record.id, [document])
        matrix = load(connection, record.tenant_id, 3, None)
        np.testing.assert_array_equal(matrix.vectors[:, 0], np.arange(5000))
