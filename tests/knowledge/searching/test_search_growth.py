"""What a search reads does not grow with what else the tenant has stored: counted, not timed."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest
from knowledge_base import open_store, prepared, put

from embedkit.knowledge.searching import matrix
from embedkit.knowledge.searching.search import Mode, Query, search


async def steps_of_a_search(path: Path, mode: Mode, others: int) -> int:
    """Instructions of SQLite's machine that one search takes, its matrix in memory."""
    async with open_store(path) as store:
        for number in range(0, others, 50):
            texts = [f"text {number + index}" for index in range(50)]
            await put(store, "acme", "large", prepared(f"{number}.txt", *texts))
        await put(store, "acme", "small", prepared("a.txt", "quince", "quince marmalade", "quince jam"))

        def count(connection: sqlite3.Connection) -> int:
            vector = np.eye(1, 8, dtype=np.float32)[0]
            held = matrix.load(connection, 1, len(vector), None)
            query = Query(tenants=("acme",), text="quince", vector=vector, mode=mode, k=3)
            steps = 0

            def step() -> int:
                nonlocal steps
                steps += 1
                return 0

            connection.set_progress_handler(step, 1)
            try:
                hits = search(connection, query, lambda *_: held)
            finally:
                connection.set_progress_handler(None, 0)
            assert len(hits) == 3
            return steps

        return await store._database.read(count)


@pytest.mark.parametrize("mode", ["vector", "text", "hybrid"])
async def test_a_search_reads_what_it_finds_and_not_all_of_the_tenant(tmp_path: Path, mode: Mode) -> None:
    """Each hit was looked up by its tenant, once there was an index on tenants: 30 ms for each of 80,000 chunks."""
    few = await steps_of_a_search(tmp_path / "small.sqlite3", mode, 50)
    many = await steps_of_a_search(tmp_path / "large.sqlite3", mode, 2_000)
    assert many < few * 4, (few, many)  # forty times as many chunks; the full-text index has more parts
