"""What a sweep of one small file costs does not depend on what else the store holds: counted, not timed."""

from __future__ import annotations

from pathlib import Path

from knowledge_base import bought, open_store, prepared, put

from embedkit.knowledge.sources.source import Sighting


async def steps_of_a_small_sweep(path: Path, others: int) -> tuple[int, int]:
    """Instructions of SQLite's machine that a sweep of one file takes, and how many statements it prepares."""
    async with open_store(path) as store:
        for number in range(0, others, 50):
            texts = [f"text {number + index}" for index in range(50)]
            await put(store, "acme", "large", prepared(f"{number}.txt", *texts))
        await put(store, "acme", "small", prepared("a.txt", "before"))
        writer = store._database._writer
        assert writer is not None
        steps, statements = 0, 0

        def step() -> int:
            nonlocal steps
            steps += 1
            return 0

        def traced(_: str) -> None:
            nonlocal statements
            statements += 1

        writer.set_progress_handler(step, 1)
        writer.set_trace_callback(traced)
        record = await store.repository("acme", "small")
        lease = await store.lease(record)
        await store.commit(record, lease, bought(["after", "left over"]), [prepared("a.txt", "after")])
        await store.finish(record, lease, {"a.txt": Sighting("stamp", "hash", None, None)})
        writer.set_progress_handler(None, 0)
        writer.set_trace_callback(None)
        left = await store._database.read(lambda each: each.execute("SELECT count(*) FROM staged").fetchone())
        assert left == (0,)
        return steps, statements


async def test_a_one_file_sweep_does_not_grow_with_the_store(tmp_path: Path) -> None:
    few, few_statements = await steps_of_a_small_sweep(tmp_path / "small.sqlite3", 50)
    many, many_statements = await steps_of_a_small_sweep(tmp_path / "large.sqlite3", 3_000)
    assert many_statements <= few_statements + 10  # the full-text index merges now and then
    assert many < few * 1.3, (few, many)
