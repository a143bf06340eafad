"""``open_engine(store=...)``: a knowledge base of the caller's own, in place of the file of the settings."""

from __future__ import annotations

from pathlib import Path

from fakes import FakeProvider, numbered, settings_of, tenant, write_tree

from embedkit import Document, open_engine, open_sweep
from embedkit.database import open_database
from embedkit.knowledge.storing.store import SqliteStore


async def test_sweeps_search_index_and_forget_use_the_store_that_was_given(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "api", numbered(2))
    settings = settings_of(tmp_path / "settings.sqlite3")
    async with open_database(tmp_path / "own.sqlite3") as database:
        own = SqliteStore(database)
        await own.open()
        async with open_engine(settings, providers={"fake": FakeProvider()}, store=own) as engine:
            assert await engine.knowledge() is own
            async with open_sweep(engine, [tenant("acme", api=root)]) as sweep:
                (swept,) = (await sweep.run()).repositories
            assert swept.outcome == "complete"
            await engine.index("acme", "mail", [Document("mail/1", "the night train leaves late")])
            (hit, *_) = await engine.search("night train", tenant="acme", mode="text")
            assert hit.path == "mail/1"
            await engine.forget(tenant="acme", repository="mail")
        # The engine has ended, and the store is its owner's to use, and to close.
        (record,) = await own.repositories()
        assert sorted(await own.stored(record)) == sorted(numbered(2))
    async with open_engine(settings, providers={"fake": FakeProvider()}) as engine:
        assert await (await engine.knowledge()).repositories() == []
