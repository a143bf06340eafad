from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
from fakes import numbered, opened, tenant, write_tree

from embedkit.knowledge.searching.matrices import Matrices
from embedkit.knowledge.searching.matrix import TenantMatrix
from embedkit.sweep.sweep import open_sweep


def matrix(rows: int) -> TenantMatrix:
    numbers = np.arange(rows, dtype=np.int64)
    return TenantMatrix(1, numbers, numbers, np.zeros((rows, 8), np.float32))


def test_what_was_not_used_for_longest_goes_first_and_what_was_used_last_stays() -> None:
    """Each tenant that was searched once stayed in memory for ever."""
    held = Matrices(most=3 * matrix(10).vectors.nbytes)
    for number in range(3):
        held.put(number, matrix(10))
    first = held.get(0)
    assert first is not None
    held.put(0, first)
    held.put(3, matrix(10))
    assert [held.get(number) is not None for number in range(4)] == [True, False, True, True]
    held.put(4, matrix(1000))
    assert [held.get(number) is not None for number in range(5)] == [False, False, False, False, True]
    held.drop(4)
    held.drop(4)
    assert held.get(4) is None


async def test_a_tenants_first_search_reads_its_own_chunks_alone(tmp_path: Path) -> None:
    root, store = write_tree(tmp_path / "root", numbered(3)), tmp_path / "store.sqlite3"
    async with opened(store) as engine:
        async with open_sweep(engine, [tenant("acme", api=root)], all=True) as sweep:
            await sweep.run()
        assert len(await engine.search("text", tenant="acme", mode="vector")) == 3
    connection = sqlite3.connect(store)
    try:
        for statement in (
            "SELECT id, repository_id, vector_id, document_id FROM chunks WHERE tenant_id = ? ORDER BY id",
            """
            SELECT c.id, v.vector FROM chunks c JOIN vectors v ON v.id = c.vector_id
            WHERE c.tenant_id = ? AND c.id >= 1 ORDER BY c.id
            """,
        ):
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", (1,))]
            assert any("chunks_by_tenant" in step for step in plan), plan
            assert not any("SCAN" in step or "TEMP B-TREE" in step for step in plan), plan
    finally:
        connection.close()


async def test_a_removal_goes_in_portions(tmp_path: Path) -> None:
    """One of 300,000 chunks was one transaction of 25 s, in which nobody else could write."""
    root, store = write_tree(tmp_path / "root", numbered(450)), tmp_path / "store.sqlite3"
    async with opened(store, batch=100) as engine:
        async with open_sweep(engine, [tenant("acme", api=root)], all=True) as sweep:
            await sweep.run()
        for number in range(440):
            (root / f"file{number:03}.txt").unlink()
        seen: list[int] = []
        async with open_sweep(
            engine,
            [tenant("acme", api=root)],
            all=True,
            on_progress=lambda progress: seen.append(progress.tally.deleted),
        ) as sweep:
            (report,) = (await sweep.run()).repositories
    assert (report.outcome, report.deleted) == ("complete", 440)
    assert sorted(set(seen)) == [0, 200, 400, 440]
