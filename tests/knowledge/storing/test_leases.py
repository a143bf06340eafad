from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import attrs
import pytest
from knowledge_base import bought, open_store, prepared
from store_content import content_of

from embedkit.activity.process import Process, this_process
from embedkit.database import open_database
from embedkit.knowledge.storing import leases
from embedkit.knowledge.storing.leases import LEASE_SECONDS, Lease, Leased

HOLDS_A_LEASE = """
import sys, trio
from embedkit.database import open_database
from embedkit.knowledge.storing.store import SqliteStore
async def main():
    async with open_database(sys.argv[1]) as database:
        store = SqliteStore(database)
        await store.open()
        await store.lease(await store.repository("a", "api"))
        print("held", flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)
trio.run(main)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite3"


async def take(path: Path, here: Process, now: float) -> Lease:
    async with open_database(path) as database:
        lease = await database.write(lambda connection: leases.take(connection, 1, here, now))
    if isinstance(lease, Leased):
        raise lease
    return lease


async def made(path: Path) -> None:
    async with open_store(path) as store:
        assert (await store.repository("a", "api")).id == 1


async def test_one_holds_it_and_another_is_told_who(path: Path) -> None:
    async with open_store(path) as store:
        record = await store.repository("a", "api")
        lease = await store.lease(record)
        with pytest.raises(Leased, match=rf"process {os.getpid()} on "):
            await store.lease(record)
        await store.lease(await store.repository("a", "site"))  # a lease is of one repository
        await store.release(lease)
        await store.lease(record)


async def test_a_lease_that_is_renewed_does_not_expire_and_one_that_is_not_does(path: Path) -> None:
    await made(path)
    here = this_process()
    first = await take(path, here, now=1000.0)
    with pytest.raises(Leased):
        await take(path, here, now=1000.0 + LEASE_SECONDS - 0.1)
    async with open_database(path) as database:
        await database.write(lambda connection: leases.hold(connection, first, 1050.0))
    with pytest.raises(Leased):
        await take(path, here, now=1000.0 + LEASE_SECONDS + 1)
    await take(path, here, now=1050.0 + LEASE_SECONDS + 1)


async def test_who_lost_the_lease_commits_nothing_and_does_not_give_the_new_one_back(path: Path) -> None:
    async with open_store(path) as store:
        record = await store.repository("a", "api")
        old = await store.lease(record)
        async with open_database(path) as database:
            far = this_process()
            new = await database.write(lambda connection: leases.take(connection, record.id, far, 4e9))
        assert isinstance(new, Lease)
        with pytest.raises(Leased):
            await store.commit(record, old, bought(["one"]), [prepared("one.txt", "one")])
        await store.release(old)
        await store.renew(new)
    assert content_of(path).vectors == []


@pytest.mark.parametrize(
    ("changed", "dead"),
    [
        ({"started": "1"}, True),  # the same process id, given again
        ({"boot": "another"}, False),  # of this machine, or of one that shares its name and its folder
        ({"boot": this_process().boot.partition("/")[0] + "/pid:[1]", "pid": 2**22 + 1}, False),  # another container's
        ({"boot": this_process().boot.partition("/")[0] + "/?", "pid": 2**22 + 1}, False),
        ({"pid": 2**22 + 1, "started": ""}, True),  # above what Linux gives
        ({"host": "elsewhere", "pid": 2**22 + 1}, False),  # cannot be asked
    ],
    ids=["pid-reused", "another-boot", "another-container", "a-container-unknown", "no-such-process", "another-host"],
)
async def test_a_dead_holder_is_no_holder(path: Path, changed: dict[str, Any], dead: bool) -> None:
    await made(path)
    await take(path, attrs.evolve(this_process(), **changed), now=1000.0)
    if dead:
        await take(path, this_process(), now=1000.1)
    else:
        with pytest.raises(Leased):
            await take(path, this_process(), now=1000.1)


async def test_the_lease_of_a_killed_process_is_free_at_once(path: Path) -> None:
    holder = subprocess.Popen(  # noqa: ASYNC220  # nothing else happens here meanwhile
        [sys.executable, "-c", HOLDS_A_LEASE, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        async with open_store(path) as store:
            record = await store.repository("a", "api")
            with pytest.raises(Leased, match=rf"process {holder.pid} on "):
                await store.lease(record)
            holder.kill()
            holder.wait()
            await store.lease(record)


async def test_a_clock_that_jumps_frees_a_lease_of_nobody_within_its_time(path: Path) -> None:
    """A holder elsewhere has gone, and the clock was an hour ahead when it wrote last."""
    await made(path)
    elsewhere = attrs.evolve(this_process(), host="elsewhere")
    await take(path, elsewhere, now=1000.0 + 3600)
    with pytest.raises(Leased):
        await take(path, this_process(), now=1000.0)
    with pytest.raises(Leased):
        await take(path, this_process(), now=1000.0 + LEASE_SECONDS - 1)
    await take(path, this_process(), now=1000.0 + LEASE_SECONDS)


async def test_a_clock_that_jumps_ahead_takes_a_lease_over_and_the_old_holder_commits_nothing(path: Path) -> None:
    async with open_store(path) as store:
        record = await store.repository("a", "api")
        old = await store.lease(record)
        elsewhere = attrs.evolve(this_process(), host="elsewhere")
        new = await take(path, elsewhere, now=time.time() + 3600)
        with pytest.raises(Leased):
            await store.renew(old)
        with pytest.raises(Leased):
            await store.commit(record, old, bought(["one"]), [prepared("one.txt", "one")])
        await store.renew(new)
    assert content_of(path).vectors == []


@pytest.mark.parametrize("garbage", ["", "{", "[]", '{"host": 1}', '{"pid": "x", "other": 2}', "null", "\x00"])
async def test_garbage_in_a_lease_is_waited_for_and_then_passed_over(path: Path, garbage: str) -> None:
    await made(path)
    await take(path, this_process(), now=1000.0)
    async with open_database(path) as database:
        await database.write(lambda connection: connection.execute("UPDATE leases SET process = ?", (garbage,)))
    with pytest.raises(Leased, match="another sweep has this repository"):
        await take(path, this_process(), now=1000.1)
    await take(path, this_process(), now=1000.0 + LEASE_SECONDS)


async def test_a_process_of_another_container_is_not_taken_for_dead(path: Path) -> None:
    """Same machine, same host name, same volume; its process ids are its own, and ours say nothing of it."""
    contained = ["unshare", "--pid", "--fork", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*contained, "true"], capture_output=True).returncode:  # noqa: ASYNC221
        pytest.skip("needs the right to make a namespace")
    holder = subprocess.Popen(  # noqa: ASYNC220  # nothing else happens here meanwhile
        [*contained, sys.executable, "-c", HOLDS_A_LEASE, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        async with open_store(path) as store:
            record = await store.repository("a", "api")
            with pytest.raises(Leased, match="process 1 on "):
                await store.lease(record)
        holder.kill()
