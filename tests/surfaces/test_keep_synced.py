"""``watch`` between its syncs: what is due is swept, and a folder that is replaced is watched again."""

from __future__ import annotations

import math
import shutil
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import trio
import trio.testing
from fakes import FakeCall, FakeProvider, numbered, opened, tenant, until, write_tree

from embedkit.errors import ProviderBusy
from embedkit.knowledge.sources.relevance import Relevance
from embedkit.knowledge.sources.selection import Selection
from embedkit.settings import TenantSettings
from embedkit.surfaces import watch_command
from embedkit.surfaces.folder_changes import Changed, tell_changes
from embedkit.surfaces.watch_command import keep_synced
from embedkit.sweep.outcome import SweepReport


async def test_what_was_deferred_is_tried_again_when_it_is_due(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """lilbee PR 535: the engine answered 503 once at the start, and nothing was tried again."""

    async def busy_once(call: FakeCall) -> None:
        if call.number == 1:
            raise ProviderBusy("503")

    root = write_tree(tmp_path / "root", numbered(3))
    reports: list[SweepReport] = []
    # When each sync began and ended. Within one, virtual time jumps while threads work; between two it does not.
    marks: list[float] = []
    send, changes = trio.open_memory_channel[Changed](math.inf)
    async with opened(tmp_path / "store.sqlite3", FakeProvider(busy_once)) as engine:

        async def sync(some: Sequence[TenantSettings]) -> SweepReport:
            marks.append(trio.current_time())
            reports.append(await watch_command._sync(engine, some, as_json=True))
            marks.append(trio.current_time())
            if len(reports) == 2:
                send.close()
            return reports[-1]

        await keep_synced([tenant("acme", api=root)], changes, sync)
    assert [report.status for report in reports] == ["deferred", "completed"]
    assert 1799 <= marks[2] - marks[1] <= 2 * 1800  # due times are wall-clock times, which go on by a hair meanwhile


async def test_a_root_that_is_deleted_and_made_again_is_watched_again(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """trace-mcp#325, zed#61372: the watch was deaf, and ran on."""
    root = write_tree(tmp_path / "root", numbered(1))
    begun: list[list[Path]] = []

    async def watch(*roots: Path, **options: Any) -> AsyncGenerator[set[tuple[Any, str]], None]:
        begun.append(list(roots))
        await trio.sleep_forever()
        yield set()

    send, changes = trio.open_memory_channel[Changed](math.inf)
    async with trio.open_nursery() as nursery:
        watched = [Relevance(root, Selection())]
        nursery.start_soon(tell_changes, watch, watched, tmp_path / "store", send)
        await until(lambda: begun)  # it asks a thread where the store is, and virtual time does not wait for threads
        shutil.rmtree(root)
        await trio.sleep(1.5)
        assert begun == [[root]]
        write_tree(root, numbered(1))
        assert await changes.receive() == {root}
        await trio.sleep(1.5)
        assert begun == [[root], [root]]
        nursery.cancel_scope.cancel()
