"""A repository and its store, a shop that sells vectors, and what may happen to both."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio
from fakes import vectors_of, write_tree
from knowledge_base import open_store
from store_content import content_of

from embedkit.clocks import Clocks
from embedkit.knowledge.chunking import ChunkLimits
from embedkit.knowledge.indexing.claims import Claims
from embedkit.knowledge.indexing.indexing import Indexing, Width
from embedkit.knowledge.indexing.tally import Tally
from embedkit.knowledge.sources.folder import FolderSource
from embedkit.knowledge.sources.source import Snapshot
from embedkit.knowledge.storing.leases import Lease
from embedkit.knowledge.storing.prepared import PreparedDocument
from embedkit.knowledge.storing.protocol import KnownInputs
from embedkit.knowledge.storing.repositories import RepositoryRecord
from embedkit.knowledge.storing.store import SqliteStore


@attrs.frozen
class Bought:
    vectors: Any
    clocks: Clocks = attrs.field(factory=lambda: Clocks(1.0, 2.0, 4.0))
    attempts: int = 1


class Shop:
    """Sells vectors, remembers what, and may be told to refuse, or to wait, before it answers."""

    def __init__(self, before: Callable[[int, Sequence[str]], Awaitable[object]] | None = None) -> None:
        self.batches: list[list[str]] = []
        self.sold: list[str] = []
        self.open = 0
        self.most_open = 0
        self._before = before

    @property
    def asked(self) -> list[str]:
        return [text for batch in self.batches for text in batch]

    async def __call__(self, texts: Sequence[str]) -> Bought:
        self.batches.append(list(texts))
        number = len(self.batches)
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            await trio.lowlevel.checkpoint()
            if self._before is not None:
                await self._before(number, texts)
        finally:
            self.open -= 1
        self.sold += texts
        return Bought(vectors_of(texts))


class Meddling(SqliteStore):
    """A store that something happens to: hooks run before its methods do their work, or after."""

    before_commit: Callable[[], Awaitable[object]] | None = None
    after_look_up: Callable[[], Awaitable[object]] | None = None

    def __init__(self, store: SqliteStore) -> None:
        super().__init__(store._database)
        self.commits: list[list[str]] = []
        self.kept: set[bytes] = set()
        self.changed = trio.Event()

    async def commit(
        self, record: RepositoryRecord, lease: Lease, vectors: Mapping[bytes, bytes], ready: Sequence[PreparedDocument]
    ) -> tuple[int, list[PreparedDocument]]:
        if self.before_commit is not None:
            await self.before_commit()
        result = await super().commit(record, lease, vectors, ready)
        self.commits.append([document.path for document in ready])
        self.kept |= set(vectors)
        self.changed.set()
        self.changed = trio.Event()
        return result

    async def known_inputs(self, tenant_id: int, hashes: Collection[bytes]) -> KnownInputs:
        found = await super().known_inputs(tenant_id, hashes)
        if self.after_look_up is not None:
            await self.after_look_up()
        return found


@attrs.define
class Bench:
    """A repository and its store."""

    root: Path
    path: Path
    store: Meddling
    record: RepositoryRecord
    lease: Lease

    def indexing(
        self,
        shop: Shop,
        *,
        batch: int = 2,
        tickets: int = 2,
        slice_ends_at: float = math.inf,
        claims: Claims | None = None,
        may_empty: bool = False,
    ) -> Indexing:
        return Indexing(
            self.store,
            self.record,
            self.lease,
            shop,
            width=Width(batch, tickets),
            limits=ChunkLimits(),
            slice_ends_at=slice_ends_at,
            on_progress=lambda work: None,
            claims=claims,
            may_empty=may_empty,
        )

    async def index(self, shop: Shop, **options: Any) -> Tally:
        indexing = self.indexing(shop, **options)
        await indexing.run(self.look())
        return indexing.tally

    async def fenced(self) -> int:
        return sum((await self.store.fenced(self.record)).values())

    def look(self) -> Snapshot:
        return FolderSource(self.root).snapshot()

    @property
    def texts(self) -> set[str]:
        return {text.rstrip("\n") for text in self.stored().values()}

    def stored(self) -> dict[str, str]:
        return {row[2]: row[8] for row in content_of(self.path).chunks}


@asynccontextmanager
async def bench(tmp_path: Path, texts: Mapping[str, str]) -> AsyncGenerator[Bench]:
    root = write_tree(tmp_path / "root", texts)
    path = tmp_path / "store.sqlite3"
    async with open_store(path) as real:
        store = Meddling(real)
        record = await store.repository("a", "api")
        yield Bench(root, path, store, record, await store.lease(record))


async def cancelled_after(steps: int, indexing: Indexing, snapshot: Snapshot) -> bool:
    """Run, and cancel at the ``steps``-th purchase or commit; whether it finished first."""
    left = steps
    scope = trio.CancelScope()
    store, buy = indexing._store, indexing._buying._buy
    assert isinstance(store, Meddling)

    def tick() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            scope.cancel()

    async def counted(texts: Sequence[str]) -> Any:
        tick()
        try:
            return await buy(texts)
        finally:
            tick()

    async def count() -> None:
        tick()

    indexing._buying._buy = counted
    store.before_commit = store.after_look_up = count
    with scope:
        await indexing.run(snapshot)
    store.before_commit = store.after_look_up = None
    return left > 0
