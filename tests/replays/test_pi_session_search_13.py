"""pi-session-search#13: an engine leaves out an index where it is 0, and every batch above one was refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from embedkit.errors import ResponseInvalid
from embedkit.providers.vectors import read_openai_vectors

MISSING = object()


def reply(*indexes: object) -> dict[str, Any]:
    """An item for each index, whose vector tells where it stood."""
    items: list[dict[str, object]] = [{"embedding": [float(place), 1.0]} for place in range(len(indexes))]
    for item, index in zip(items, indexes, strict=True):
        if index is not MISSING:
            item["index"] = index
    return {"data": items}


@pytest.mark.parametrize(
    ("indexes", "rows"),
    [
        ((MISSING, 1, 2), [0, 1, 2]),
        ((2, MISSING, 1), [1, 2, 0]),
        ((1, MISSING), [1, 0]),
        ((MISSING,), [0]),
        ((MISSING, MISSING), [0, 1]),
    ],
)
def test_the_index_that_is_left_out_is_zero(indexes: tuple[object, ...], rows: list[int]) -> None:
    vectors = read_openai_vectors(reply(*indexes), len(indexes), None)
    np.testing.assert_array_equal(vectors[:, 0], rows)


@pytest.mark.parametrize(
    "indexes",
    [
        (MISSING, 0, 1),  # then it is not the first that is left out
        (MISSING, 2, 3),
        (MISSING, 1, 1),
        (MISSING, MISSING, 1),
        (None, 1, 2),  # said to be nothing is not left out
        (MISSING, "1", 2),
        (MISSING, True, 2),
        (MISSING, 1.0, 2),
        (MISSING, -1, 1),
        (0, 1, MISSING),
        (None, MISSING, 1),
    ],
)
def test_every_other_mixture_is_refused(indexes: tuple[object, ...]) -> None:
    with pytest.raises(ResponseInvalid):
        read_openai_vectors(reply(*indexes), len(indexes), None)
