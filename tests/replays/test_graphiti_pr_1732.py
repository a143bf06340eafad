"""getzep/graphiti PR 1732: vectors in another order than the inputs, told apart by ``index`` alone.

Right: placed by index; a reply that is short, long, or has an index twice or too high is refused whole.
"""

from __future__ import annotations

import numpy as np
import pytest
from replay_lane import embed, openai_lane

from embedkit.errors import ResponseInvalid
from embedkit.testing.engine_answers import vector_of
from embedkit.testing.engine_rules import (
    Behaviour,
    Rule,
    always,
    duplicate_index,
    long,
    reorder,
    short,
    sparse_index,
)
from embedkit.testing.scripted_engine import open_scripted_engine

TEXTS = ["first", "second", "third"]


async def test_vectors_are_placed_by_index() -> None:
    async with open_scripted_engine(rules=[Rule(always, reorder())]) as engine, openai_lane(engine) as lane:
        vectors = await embed(lane, TEXTS)
    for row, text in zip(vectors, TEXTS, strict=True):
        np.testing.assert_array_equal(row, np.array(vector_of(text, 8), dtype=np.float32))


@pytest.mark.parametrize("wrong", [short(), long(), duplicate_index(), sparse_index()])
async def test_anything_else_is_refused_after_one_more_try(wrong: Behaviour) -> None:
    async with open_scripted_engine(rules=[Rule(always, wrong)]) as engine, openai_lane(engine) as lane:
        with pytest.raises(ResponseInvalid) as caught:
            await embed(lane, TEXTS)
        assert caught.value.durable_code == "KB_VECTOR_EMBED_RESPONSE_INVALID"
        assert engine.log.requests == 2
