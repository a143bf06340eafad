"""``embedding.chunk_tokens`` bounds the chunks that a sweep makes."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from fakes import FakeProvider, settings_of, tenant, write_tree

from embedkit.engine import open_engine
from embedkit.sweep.sweep import open_sweep

TEXT = "".join(
    f"The {number}th sentence says that nothing of note has happened on that day.\n\n" for number in range(200)
)


@pytest.mark.parametrize("chunk_tokens", [64, 128, 512, 2_048])
async def test_chunks_are_as_large_as_that_at_most(chunk_tokens: int, tmp_path: Path) -> None:
    root = write_tree(tmp_path / "root", {"a.md": TEXT})
    settings = settings_of(tmp_path / "store.sqlite3", batch=4)
    settings = attrs.evolve(settings, embedding=attrs.evolve(settings.embedding, chunk_tokens=chunk_tokens))
    provider = FakeProvider()
    async with (
        open_engine(settings, providers={"fake": provider}) as engine,
        open_sweep(engine, [tenant("acme", one=root)], all=True) as sweep,
    ):
        await sweep.run()
    longest = max(len(text) for text in provider.inputs)
    assert longest <= 6 * chunk_tokens  # six letters a token: more than English has
    assert longest >= chunk_tokens
