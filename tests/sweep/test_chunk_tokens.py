"""``embedding.chunk_tokens`` bounds the chunks that a sweep makes, and a change of it cuts again what is stored."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from fakes import FakeProvider, settings_of, tenant, write_tree

from embedkit.engine import open_engine
from embedkit.knowledge.chunking import CHUNKING_GENERATION, ChunkLimits
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


async def test_another_bound_cuts_again_what_is_stored_and_buys_only_what_is_new(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "root", {"a.md": TEXT, "short.md": "One sentence is the same under every bound.\n"})
    described = settings_of(tmp_path / "store.sqlite3", batch=4)
    provider = FakeProvider()
    longest, bought = list[int](), list[int]()
    for chunk_tokens in (512, 128, 128, 512):
        settings = attrs.evolve(described, embedding=attrs.evolve(described.embedding, chunk_tokens=chunk_tokens))
        before = len(provider.inputs)
        async with (
            open_engine(settings, providers={"fake": provider}) as engine,
            open_sweep(engine, [tenant("acme", one=root)], all=True) as sweep,
        ):
            (report,) = (await sweep.run()).repositories
            assert (report.outcome, report.documents) == ("complete", 2)
            hits = await engine.search("sentence", tenant="acme", mode="text", k=200)
            longest.append(max(len(hit.text) for hit in hits))
        new = list(provider.inputs)[before:]
        assert sum("same under every bound" in text for text in new) == (0 if before else 1)
        bought.append(len(new))
    assert longest[1] == longest[2] < longest[3] == longest[0]
    assert bought[1] > 0
    assert bought[2] == 0


def test_every_limit_counts_and_so_does_the_cutting_itself() -> None:
    seen = {
        ChunkLimits().generation,
        ChunkLimits(max_tokens=513).generation,
        ChunkLimits(target_tokens=241).generation,
        CHUNKING_GENERATION,
    }
    assert len(seen) == 4
    assert ChunkLimits(target_tokens=32_768, max_tokens=1_000_000).generation < 2**63
