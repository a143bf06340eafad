"""The benchmarks themselves, on tiny inputs: that they measure what they say, not what comes out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import cold_sync, quality, random_store, search
from benchmarks.functions import Function
from embedkit.database import open_database
from embedkit.knowledge.storing.store import SqliteStore

SHAPE = random_store.Shape(chunks=700, dimension=16)

FUNCTIONS = [
    Function(
        "Farm.shear", "Shear every sheep of a flock", "    def shear(flock):\n        return [wool(s) for s in flock]\n"
    ),
    Function(
        "brew", "Brew tea from dry leaves", "def brew(leaves):\n    tea = pour(leaves, hot_water())\n    return tea\n"
    ),
    Function("row", "Row the boat across a river", "def row(boat, river):\n    boat.cross(river)\n"),
]


@pytest.fixture
def library(tmp_path: Path) -> Path:
    folder = tmp_path / "library"
    folder.mkdir()
    for number in range(4):
        (folder / f"m{number}.py").write_text(f'def f{number}():\n    """Say {number}."""\n    return {number}\n')
    (folder / "copy.py").write_bytes((folder / "m0.py").read_bytes())
    return folder


@pytest.mark.soak
def test_cold_sync_measures_every_figure_on_the_inputs_of_its_store(library: Path, tmp_path: Path) -> None:
    store = tmp_path / "store" / "knowledge.db"
    figures = {figure.name: figure for figure in cold_sync.figures(library, store, rounds=2)}
    assert len(figures) == 10
    assert all(figure.measured > 0 for figure in figures.values())
    inputs = cold_sync.inputs_of(store)
    assert (len(inputs), len(set(inputs))) == (5, 4)  # the copy is a chunk, too
    assert any("Say 3." in text for text in inputs)


def test_batches_hold_every_input_once_and_in_order() -> None:
    texts = [str(number) for number in range(130)]
    batches = cold_sync.batches_of(texts, 64)
    assert [len(batch) for batch in batches] == [64, 64, 2]
    assert [text for batch in batches for text in batch] == texts


async def test_the_random_store_holds_the_matrix_in_its_order(tmp_path: Path) -> None:
    await random_store.fill(tmp_path / "k.db", SHAPE)
    matrix = SHAPE.vectors()
    async with open_database(tmp_path / "k.db", create=False) as database:
        store = SqliteStore(database)
        for row in (0, 499, 500, 699):
            (number, cosine), *_ = await store.nearest(random_store.TENANT, matrix[row], 3)
            assert number - 1 == row
            assert cosine == pytest.approx(1.0)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
async def test_search_measures_a_store_that_agrees_with_the_bare_product(tmp_path: Path) -> None:
    await random_store.fill(tmp_path / "k.db", SHAPE)
    figures = {figure.name: figure for figure in await search.figures(tmp_path / "k.db", SHAPE, rounds=2)}
    assert figures["share of queries whose nearest are the bare ones"].measured == 1.0
    assert figures["nearest of the store / bare product and partial sort, seconds"].measured > 0


def test_the_rank_is_the_place_of_the_file_not_of_the_chunk() -> None:
    assert quality.reciprocal_rank(["a", "a", "b", "a", "c"], "b") == 1 / 2
    assert quality.reciprocal_rank(["a", "a", "b", "a", "c"], "a") == 1
    assert quality.reciprocal_rank(["a"], "z") == 0
    assert quality.reciprocal_rank([], "z") == 0


def test_sets_have_no_function_in_common_and_are_always_the_same() -> None:
    functions = [Function(str(number), "a query", f"code {number}") for number in range(50)]
    first, second = quality.draw(functions, size=20)
    assert len(first) == len(second) == 20
    assert not {one.code for one in first} & {one.code for one in second}
    assert [first, second] == quality.draw(functions, size=20)


async def test_quality_goes_through_a_real_store_and_finds_what_is_plain_to_find(tmp_path: Path) -> None:
    ranks = await quality.quality_of(FUNCTIONS, tmp_path)
    assert set(ranks) == {"hybrid", "text", "vector"}
    assert ranks["text"] == 1.0
    assert (tmp_path / "functions" / "f0000.py").read_text().startswith("def shear(flock):")
