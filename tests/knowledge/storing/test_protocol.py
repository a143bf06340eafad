from __future__ import annotations

from pathlib import Path

from knowledge_base import open_store

from embedkit.knowledge.storing.protocol import Store


async def test_the_default_store_does_what_a_store_has_to(tmp_path: Path) -> None:
    async with open_store(tmp_path / "store.sqlite3") as opened:
        store: Store = opened  # held by mypy, method by method
        assert await store.tenants() == []
