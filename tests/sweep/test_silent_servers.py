"""A git server that says nothing is waited for within a bound, can be left at once, and takes no place from others."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import trio
from fakes import FakeProvider, numbered, opened, tenant, until, write_tree
from trio.testing import MockClock

pytest.importorskip("dulwich", reason="the git extra is not installed")

from dulwich.refs import Ref
from dulwich.repo import Repo
from silent_server import commit, served, silent

from embedkit.errors import SourceError
from embedkit.knowledge.sources import git_helpers
from embedkit.knowledge.sources.folder import FolderSource
from embedkit.knowledge.sources.git import GitSource
from embedkit.knowledge.sources.git_cache import MOST_PACKS, packs_in
from embedkit.knowledge.sources.git_helpers import GitHelpers
from embedkit.knowledge.sources.source import Sighting, Snapshot
from embedkit.settings import RepositorySettings, TenantSettings
from embedkit.settings.fields import KeyRefused
from embedkit.sweep import looking
from embedkit.sweep.progress import Progress
from embedkit.sweep.sweep import open_sweep

HEAD = [Ref(b"HEAD")]


@pytest.fixture
def origin(tmp_path: Path) -> Iterator[Repo]:
    made = Repo.init(str(tmp_path / "origin"), mkdir=True)
    made.refs.set_symbolic_ref(Ref(b"HEAD"), Ref(b"refs/heads/master"))
    commit(made, {"a.py": b"x = 1\n"})
    yield made
    made.close()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Process ids of the helpers that were started."""
    found: list[int] = []
    make = git_helpers._Helper.__init__

    def made(self: git_helpers._Helper) -> None:
        make(self)
        found.append(self._process.pid)

    monkeypatch.setattr(git_helpers._Helper, "__init__", made)
    return found


def nothing() -> None:
    """A look that nobody leaves."""


def git_tenant(name: str, *addresses: str) -> TenantSettings:
    repositories = tuple(RepositorySettings(name=f"r{number}", git=item) for number, item in enumerate(addresses))
    return TenantSettings(name=name, repositories=repositories)


def have_ended(processes: list[int]) -> bool:
    for pid in processes:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            continue
        return False
    return True


@pytest.mark.parametrize("scheme", ["git", "http"])
def test_a_server_that_says_nothing_is_left_after_the_bound(tmp_path: Path, started: list[int], scheme: str) -> None:
    helpers = GitHelpers(silent=1.0)
    with silent() as (address, accepted):
        began = time.monotonic()
        with pytest.raises(SourceError, match=r"its server has said nothing for 1 s") as caught:
            helpers.fetch(f"{scheme}://bobby:pass-word@{address}/x.git", HEAD, tmp_path / "cache.git", nothing)
        assert time.monotonic() - began < 10
        assert "pass-word" not in str(caught.value)
        assert "bobby" not in str(caught.value)
        assert len(accepted) <= 1
    assert have_ended(started)
    helpers.close()


def test_who_waits_for_a_server_can_leave_at_once(tmp_path: Path, started: list[int]) -> None:
    helpers = GitHelpers()
    with silent() as (address, accepted):

        def check() -> None:
            if accepted:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            helpers.fetch(f"git://{address}/", HEAD, tmp_path / "cache.git", check)
    assert have_ended(started)


def test_a_fetch_that_never_ends_is_ended(tmp_path: Path, started: list[int]) -> None:
    helpers = GitHelpers(longest=0.3)
    with silent() as (address, _), pytest.raises(SourceError, match=r"it was not done in 0\.3 s"):
        helpers.fetch(f"git://{address}/", HEAD, tmp_path / "cache.git", nothing)
    assert have_ended(started)


def test_a_helper_that_is_killed_is_one_line_and_the_next_fetch_gets_another(
    tmp_path: Path, origin: Repo, started: list[int]
) -> None:
    helpers = GitHelpers()
    source_of = {"cache": tmp_path / "cache", "helpers": helpers}
    with served(origin) as address:
        GitSource(address, **source_of).snapshot().close()  # type: ignore[arg-type]
        os.kill(started[0], signal.SIGKILL)
        os.waitid(os.P_PID, started[0], os.WEXITED | os.WNOWAIT)
        GitSource(address, **source_of).snapshot().close()  # type: ignore[arg-type]
        assert len(started) == 2
        with silent() as (quiet, accepted):

            def check() -> None:
                if accepted:
                    os.kill(started[-1], signal.SIGKILL)

            with pytest.raises(SourceError, match="the process that was to fetch it has ended"):
                helpers.fetch(f"git://{quiet}/", HEAD, tmp_path / "other.git", check)
    helpers.close()
    assert have_ended(started)


async def test_silent_servers_hold_up_nobody(tmp_path: Path, origin: Repo, started: list[int]) -> None:
    """Six of them starved 15 of 30 tenants for more than 100 s, and could not be cancelled."""
    good = [tenant(f"good{number}", api=write_tree(tmp_path / f"g{number}", numbered(2))) for number in range(3)]
    ended: set[str] = set()
    store = tmp_path / "store.sqlite3"
    with silent() as (address, accepted), served(origin) as answers:
        bad = [git_tenant(f"bad{number}", *(f"git://{address}/{number}{k}" for k in "ab")) for number in range(3)]
        async with opened(store, concurrency=1) as engine:
            with trio.CancelScope() as scope:

                def told(progress: Progress) -> None:
                    if progress.report is not None:
                        assert progress.report.outcome == "complete", progress.report
                        ended.add(progress.tenant)
                    if len(ended) == 4 and accepted:
                        scope.cancel()

                began = 0.0
                tenants = [*bad, *good, git_tenant("served", answers)]
                async with open_sweep(engine, tenants, all=True, on_progress=told) as sweep:
                    try:
                        await sweep.run()
                    finally:
                        began = time.monotonic()
                assert time.monotonic() - began < 2
            assert ended == {"good0", "good1", "good2", "served"}
            report = sweep.report()
            assert {item.outcome for item in report.repositories if item.tenant.startswith("bad")} == {"aborted"}
            with trio.move_on_after(5):
                await until(lambda: have_ended(started))
            assert have_ended(started)


async def test_a_run_starts_few_helpers_for_many_repositories(tmp_path: Path, origin: Repo, started: list[int]) -> None:
    with served(origin) as address:
        async with (
            opened(tmp_path / "store.sqlite3", concurrency=1) as engine,
            open_sweep(engine, [git_tenant("acme", address)], all=True) as sweep,
        ):
            first = (await sweep.run()).repositories[0]
            again = (await sweep.run()).repositories[0]
    assert (first.outcome, first.documents, again.outcome, again.embedded) == ("complete", 1, "complete", 0)
    assert len(started) == 1
    assert have_ended(started)


def test_a_branch_that_moves_for_years_leaves_few_packs(tmp_path: Path, origin: Repo) -> None:
    """The 501st fetch failed for want of descriptors, and the cache grew for ever."""
    source = GitSource(f"file://{origin.path}", cache=tmp_path / "cache")
    sizes = []
    for number in range(3 * MOST_PACKS):
        commit(origin, {"a.py": f"x = {number}\n".encode(), "same.bin": os.urandom(20_000)})
        snapshot = source.snapshot()
        assert snapshot.read(snapshot.entries[0]).text == f"x = {number}\n"
        snapshot.close()
        (folder,) = (tmp_path / "cache").glob("*.git")
        assert packs_in(folder) <= MOST_PACKS + 1
        sizes.append(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))
    assert max(sizes) < (MOST_PACKS + 3) * 25_000


def test_a_cache_that_cannot_be_repacked_is_made_anew(
    tmp_path: Path, origin: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = GitSource(f"file://{origin.path}", cache=tmp_path / "cache")
    source.snapshot().close()
    (folder,) = (tmp_path / "cache").glob("*.git")
    for number in range(MOST_PACKS + 1):
        (folder / "objects" / "pack" / f"pack-{number:040}.pack").write_bytes(b"garbage")
    snapshot = source.snapshot()
    assert snapshot.read(snapshot.entries[0]).text == "x = 1\n"
    snapshot.close()
    assert packs_in(folder) == 1


class Hanging:
    """A folder whose listing hangs until the test ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self.end, self.begun = threading.Event(), threading.Event()
        listed = FolderSource.snapshot

        def snapshot(source: FolderSource, known: Mapping[str, Sighting] | None = None, **others: object) -> Snapshot:
            if source.root == root:
                self.begun.set()
                assert self.end.wait(30)
            return listed(source, known, **others)  # type: ignore[arg-type]

        monkeypatch.setattr(FolderSource, "snapshot", snapshot)


async def test_a_mount_that_never_answers_is_left_after_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    root, other = write_tree(tmp_path / "root", numbered(2)), write_tree(tmp_path / "other", numbered(2))
    hanging = Hanging(monkeypatch, root)
    monkeypatch.setattr(looking, "SILENT_SECONDS", 0.3)
    try:
        async with opened(tmp_path / "store.sqlite3") as engine:
            tenants = [tenant("acme", api=root), tenant("other", api=other)]
            async with open_sweep(engine, tenants, all=True) as sweep:
                reports = (await sweep.run()).repositories
    finally:
        hanging.end.set()
    assert [(item.outcome, item.code) for item in reports] == [("failed", "KB_SOURCE_UNREADABLE"), ("complete", None)]
    assert "nothing was heard of its files for 0.3 s" in (reports[0].reason or "")


async def test_a_sweep_whose_disk_hangs_can_be_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_tree(tmp_path / "root", numbered(2))
    hanging = Hanging(monkeypatch, root)
    provider, acme = FakeProvider(), [tenant("acme", api=root)]
    try:
        async with opened(tmp_path / "store.sqlite3", provider) as engine:
            async with (
                open_sweep(engine, acme, all=True) as sweep,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(sweep.run)
                await trio.to_thread.run_sync(hanging.begun.wait)
                began = time.monotonic()
                nursery.cancel_scope.cancel()
            assert time.monotonic() - began < 2
            assert not hanging.end.is_set()
            hanging.end.set()
            async with open_sweep(engine, acme, all=True) as sweep:
                (report,) = (await sweep.run()).repositories
            assert report.outcome == "complete"  # and its lease was given back
    finally:
        hanging.end.set()


@pytest.mark.parametrize("address", ["http://[bad", "git://", "://", "nowhere"])
async def test_an_address_that_is_none_is_its_repositorys_failure(tmp_path: Path, address: str) -> None:
    other = tenant("other", api=write_tree(tmp_path / "other", numbered(2)))
    async with opened(tmp_path / "store.sqlite3") as engine:
        try:
            named = git_tenant("acme", address)
        except KeyRefused:
            return  # where it is read
        async with open_sweep(engine, [named, other], all=True) as sweep:
            reports = (await sweep.run()).repositories
    assert [item.outcome for item in reports] == ["failed", "complete"]
    assert "\n" not in (reports[0].reason or "\n")
