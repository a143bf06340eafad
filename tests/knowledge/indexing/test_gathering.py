"""Commits that share a transaction: none is lost, each is on disk when its own call returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from embedkit.errors import EmbedkitError, StoreFull
from embedkit.knowledge.indexing.gathering import Gathering
from embedkit.knowledge.storing.prepared import PreparedDocument


class Disk:
    """Takes a second for each transaction."""

    def __init__(self) -> None:
        self.transactions: list[set[bytes]] = []
        self.is_full = False

    async def commit(self, vectors: Mapping[bytes, bytes], ready: Sequence[PreparedDocument]) -> None:
        await trio.sleep(1.0)
        if self.is_full:
            raise StoreFull("no room")
        self.transactions.append(set(vectors))

    def holds(self, hash_: bytes) -> bool:
        return any(hash_ in transaction for transaction in self.transactions)


async def test_what_arrives_during_a_transaction_shares_the_next(autojump_clock: MockClock) -> None:
    disk = Disk()
    gathering = Gathering(disk.commit)

    async def keep(hash_: bytes) -> None:
        await gathering.commit({hash_: b""}, [])
        assert disk.holds(hash_)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep, b"first")
        await wait_all_tasks_blocked()
        for hash_ in (b"a", b"b", b"c"):
            nursery.start_soon(keep, hash_)
    assert disk.transactions == [{b"first"}, {b"a", b"b", b"c"}]
    assert trio.current_time() == 2.0


async def test_one_who_is_cancelled_loses_nothing_of_the_others(autojump_clock: MockClock) -> None:
    disk = Disk()
    gathering = Gathering(disk.commit)
    left = trio.CancelScope()

    async def leaves(hash_: bytes) -> None:
        with left:
            await gathering.commit({hash_: b""}, [])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(gathering.commit, {b"first": b""}, [])
        await wait_all_tasks_blocked()
        nursery.start_soon(leaves, b"leaves")
        await wait_all_tasks_blocked()
        nursery.start_soon(gathering.commit, {b"stays": b""}, [])
        await trio.sleep(1.5)  # whoever leads the second group is in the middle of its transaction
        left.cancel()
    assert disk.holds(b"stays")


async def test_a_failure_is_everybodys_who_shared_it(autojump_clock: MockClock) -> None:
    disk = Disk()
    disk.is_full = True
    gathering = Gathering(disk.commit)
    failures: list[EmbedkitError] = []

    async def keep(hash_: bytes) -> None:
        with pytest.raises(StoreFull) as caught:
            await gathering.commit({hash_: b""}, [])
        failures.append(caught.value)

    async with trio.open_nursery() as nursery:
        for hash_ in (b"a", b"b"):
            nursery.start_soon(keep, hash_)
    assert len(failures) == 2
    disk.is_full = False
    await gathering.commit({b"c": b""}, [])
    assert disk.transactions == [{b"c"}]
