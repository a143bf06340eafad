"""What comes out of a reply: one finite row for each input, or one error that names the input."""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from embedkit.errors import ResponseInvalid
from embedkit.providers.vectors import empty_vectors, read_ollama_vectors, read_openai_vectors


def encoded(numbers: list[float]) -> str:
    return base64.b64encode(np.array(numbers, dtype="<f4").tobytes()).decode()


def openai(*vectors: Any, order: list[Any] | None = None) -> dict[str, Any]:
    indexes = list(range(len(vectors))) if order is None else order
    return {"data": [{"index": i, "embedding": v} for i, v in zip(indexes, vectors, strict=True)]}


def test_floats_and_base64_give_the_same_rows() -> None:
    rows = [[0.5, -1.25, 3.0], [1e-20, 2.0, -0.0]]
    from_floats = read_openai_vectors(openai(*rows), 2, None)
    from_base64 = read_openai_vectors(openai(*map(encoded, rows)), 2, 3)
    from_ollama = read_ollama_vectors({"embeddings": rows}, 2, 3)

    for got in (from_floats, from_base64, from_ollama):
        assert got.dtype == np.float32
        assert got.flags.c_contiguous
        assert got.flags.writeable
        np.testing.assert_array_equal(got, np.array(rows, dtype=np.float32))


def test_rows_are_placed_by_index() -> None:
    got = read_openai_vectors(openai([3.0], [1.0], [2.0], order=[2, 0, 1]), 3, None)
    assert got[:, 0].tolist() == [1.0, 2.0, 3.0]


def test_rows_without_any_index_are_placed_by_position() -> None:
    document = {"data": [{"embedding": [1.0]}, {"embedding": [2.0]}]}
    assert read_openai_vectors(document, 2, None)[:, 0].tolist() == [1.0, 2.0]


def test_whole_numbers_are_numbers() -> None:
    assert read_ollama_vectors({"embeddings": [[1, 0, -1]]}, 1, None).tolist() == [[1.0, 0.0, -1.0]]


@pytest.mark.parametrize(
    ("order", "at_fault"),
    [
        ([0, 0], 0),
        ([0, 2], 1),
        ([0, -1], 1),
        ([0, None], 1),
        ([True, 0], 0),
        ([0, "1"], 1),
        ([0, 1.0], 1),
    ],
)
def test_an_index_that_is_not_dense_is_refused(order: list[Any], at_fault: int) -> None:
    with pytest.raises(ResponseInvalid, match="index") as caught:
        read_openai_vectors(openai([1.0], [2.0], order=order), 2, None)
    assert caught.value.input_index == at_fault


@pytest.mark.parametrize("document", [{"data": []}, openai([1.0]), openai([1.0], [1.0], [1.0])])
def test_another_count_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ResponseInvalid, match="vectors for 2 inputs"):
        read_openai_vectors(document, 2, None)


@pytest.mark.parametrize("document", [{}, [], None, "x", {"data": None}, {"data": {}}, {"embeddings": [[1.0]]}])
def test_another_shape_is_refused(document: object) -> None:
    with pytest.raises(ResponseInvalid, match="no list 'data'"):
        read_openai_vectors(document, 1, None)


@pytest.mark.parametrize(
    "row",
    [
        [1.0, None],
        [1.0, True],
        [1.0, "2"],
        [1.0, [2.0]],
        [1.0, {}],
        [],
        None,
        7,
        {},
        [1.0, math.nan],
        [1.0, math.inf],
        [1.0, 1e39],
        [1.0, 10**400],
        encoded([1.0, math.nan]),
        "",
        "AAA",
        "not base64",
        "AAAA",
    ],
    ids=repr,
)
def test_a_row_that_is_no_finite_vector_is_refused_by_its_index(row: object) -> None:
    with pytest.raises(ResponseInvalid, match="input 1") as caught:
        read_openai_vectors(openai([1.0, 2.0], row), 2, None)
    assert caught.value.input_index == 1
    with pytest.raises(ResponseInvalid):
        read_ollama_vectors({"embeddings": [[1.0, 2.0], row]}, 2, None)


@pytest.mark.parametrize("item", [None, 3, [1.0], {"index": 1}])
def test_an_item_without_a_vector_is_refused(item: object) -> None:
    with pytest.raises(ResponseInvalid):
        read_openai_vectors({"data": [{"index": 0, "embedding": [1.0]}, item]}, 2, None)


def test_dimensions_must_agree_and_be_the_expected_one() -> None:
    with pytest.raises(ResponseInvalid, match="input 1 has 2 dimensions, not 1"):
        read_openai_vectors(openai([1.0], [1.0, 2.0]), 2, None)
    with pytest.raises(ResponseInvalid, match="input 0 has 2 dimensions, not 3"):
        read_openai_vectors(openai([1.0, 2.0]), 1, 3)


def test_no_inputs_have_no_rows() -> None:
    assert empty_vectors(4).shape == (0, 4)
    assert read_ollama_vectors({"embeddings": []}, 0, 4).shape == (0, 4)


@given(
    rows=arrays(np.float32, st.tuples(st.integers(1, 6), st.integers(1, 6)), elements=st.floats(width=32)),
    data=st.data(),
)
def test_any_order_of_finite_rows_comes_back_and_any_other_is_refused(rows: Any, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(rows))))
    as_base64 = data.draw(st.booleans())
    document = {
        "data": [
            {"index": i, "embedding": encoded(rows[i]) if as_base64 else [float(x) for x in rows[i]]} for i in order
        ]
    }
    if np.isfinite(rows).all():
        np.testing.assert_array_equal(read_openai_vectors(document, len(rows), rows.shape[1]), rows)
    else:
        with pytest.raises(ResponseInvalid, match="finite") as caught:
            read_openai_vectors(document, len(rows), None)
        index = caught.value.input_index
        assert index is not None
        assert not np.isfinite(rows[index]).all()
