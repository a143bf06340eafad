"""Only "no such file" deletes: whatever else keeps a file from being read, what is stored of it stays and is said."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeProvider, numbered, opened, tenant, write_tree
from store_content import paths_in

from embedkit.engine import Engine
from embedkit.knowledge.sources import folder
from embedkit.knowledge.sources.folder import FolderSource
from embedkit.knowledge.sources.source import Entry
from embedkit.settings import TenantSettings
from embedkit.sweep.outcome import RepositoryReport
from embedkit.sweep.sweep import open_sweep

TREE = {
    ".gitignore": "*.txt\n!kept.txt\n",
    "a.md": "alpha\n",
    "kept.txt": "kept by a rule\n",
    "left.txt": "ignored\n",
    "sub/b.md": "beta\n",
    "sub/deep/c.md": "gamma\n",
}
STORED = [".gitignore", "a.md", "kept.txt", "sub/b.md", "sub/deep/c.md"]


class Failing:
    """The module ``os``, whose calls from number ``first`` on fail, ``count`` of them."""

    def __init__(self, first: int, count: int, number: int) -> None:
        self.calls = 0
        self._first, self._count, self._number = first, count, number

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        if name not in ("open", "dup", "scandir", "read", "fstat"):
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            self.calls += 1
            if self._first <= self.calls < self._first + self._count:
                raise OSError(self._number, os.strerror(self._number))
            return found(*arguments, **options)

        return call


async def swept(engine: Engine, *tenants: TenantSettings) -> RepositoryReport:
    async with open_sweep(engine, tenants, all=True) as sweep:
        return (await sweep.run()).repositories[0]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.EACCES])
@pytest.mark.parametrize("count", [1, 1000])
async def test_no_call_that_fails_removes_a_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, count: int
) -> None:
    """14 of 60 sweeps beside bursts of open files removed documents. Here each call fails, one after the other."""
    root, store = write_tree(tmp_path / "root", TREE), tmp_path / "store.sqlite3"
    provider = FakeProvider()
    acme = tenant("acme", api=root)
    counting = Failing(0, 0, number)
    async with opened(store, provider) as engine:
        assert (await swept(engine, acme)).outcome == "complete"
        assert paths_in(store) == STORED
        with monkeypatch.context() as patched:
            patched.setattr(folder, "os", counting)
            assert (await swept(engine, acme)).outcome == "complete"
        assert counting.calls > 20
        for first in range(1, counting.calls + 1):
            failing = Failing(first, count, number)
            with monkeypatch.context() as patched:
                patched.setattr(folder, "os", failing)
                report = await swept(engine, acme)
            assert report.deleted == 0
            assert (report.outcome, report.code) == ("failed", "KB_SOURCE_UNREADABLE")
            assert report.reason
            assert paths_in(store) == STORED, f"call {first} took in what is ignored"
        again = await swept(engine, acme)
        assert (again.outcome, again.embedded, again.skipped) == ("complete", 0, {})
        assert paths_in(store) == STORED


async def test_a_folder_that_is_refused_is_kept_if_documents_of_it_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that never could be read (``lost+found``) fails nothing: it is counted."""
    root, store = write_tree(tmp_path / "root", {**numbered(2), "sub/b.md": "b\n"}), tmp_path / "store.sqlite3"
    opened_folder = folder._opened_folder

    def refused(above: int, name: str) -> object:
        if name in ("sub", "lost+found"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened_folder(above, name)

    async with opened(store) as engine:
        with monkeypatch.context() as patched:
            patched.setattr(folder, "_opened_folder", refused)
            before = await swept(engine, tenant("acme", api=root))
        assert (before.outcome, before.skipped) == ("complete", {"unreadable": 1})
        assert (await swept(engine, tenant("acme", api=root))).outcome == "complete"
        with monkeypatch.context() as patched:
            patched.setattr(folder, "_opened_folder", refused)
            after = await swept(engine, tenant("acme", api=root))
        assert (after.outcome, after.deleted, after.skipped) == ("failed", 0, {"unreadable": 1})
        assert "sub/b.md: may not be read" in (after.reason or "")
        assert "sub/b.md" in paths_in(store)
        (root / "sub" / "b.md").unlink()
        (root / "sub").rmdir()
        assert (await swept(engine, tenant("acme", api=root))).deleted == 1


async def test_an_error_within_a_folder_does_not_say_that_the_folder_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, store = write_tree(tmp_path / "root", TREE), tmp_path / "store.sqlite3"
    async with opened(store) as engine:
        await swept(engine, tenant("acme", api=root))
        listed = folder._Walk._list

        def failing(walk: Any, here: int, pending: Any) -> Any:
            if pending.path == "sub/":
                raise FileNotFoundError(errno.ENOENT, "No such file or directory")
            return listed(walk, here, pending)

        with monkeypatch.context() as patched:
            patched.setattr(folder._Walk, "_list", failing)
            report = await swept(engine, tenant("acme", api=root))
    assert (report.outcome, report.deleted) == ("failed", 0)
    assert paths_in(store) == STORED


async def test_what_is_no_file_any_more_is_removed(tmp_path: Path) -> None:
    """A pipe in a document's place was read well enough: it is no document."""
    root, store = write_tree(tmp_path / "root", numbered(2)), tmp_path / "store.sqlite3"
    async with opened(store) as engine:
        await swept(engine, tenant("acme", api=root))
        (root / "file000.txt").unlink()
        os.mkfifo(root / "file000.txt")
        report = await swept(engine, tenant("acme", api=root))
        assert stat.S_ISFIFO((root / "file000.txt").stat().st_mode)
    assert (report.outcome, report.deleted, report.skipped) == ("complete", 1, {"unreadable": 1})


def reading(before: Callable[[Entry], None], monkeypatch: pytest.MonkeyPatch) -> None:
    read = folder.FolderSnapshot.read

    def patched(self: folder.FolderSnapshot, entry: Entry) -> object:
        before(entry)
        return read(self, entry)

    monkeypatch.setattr(folder.FolderSnapshot, "read", patched)


@pytest.mark.parametrize("how", ["changed", "grown", "removed"])
async def test_a_file_that_changes_while_it_is_read_is_outstanding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    root, store = write_tree(tmp_path / "root", numbered(3)), tmp_path / "store.sqlite3"
    async with opened(store) as engine:
        await swept(engine, tenant("acme", api=root))
        path = root / "file001.txt"
        path.write_text("second\n")

        def meanwhile(entry: Entry) -> None:
            if entry.path == "file001.txt":
                path.write_text("third\n" if how == "changed" else "x\n" * 1_000_000)
                if how == "removed":
                    path.unlink()

        with monkeypatch.context() as patched:
            reading(meanwhile, patched)
            report = await swept(engine, tenant("acme", api=root))
        assert (report.outcome, report.outstanding, report.deleted) == ("partial-progress", 1, 0)
        assert report.skipped == {"changed": 1}
        assert [(item.path, item.reason) for item in report.left_out] == [("file001.txt", "changed")]
        assert "file001.txt" in paths_in(store)
        assert report.next_due_in == 0
        again = await swept(engine, tenant("acme", api=root))
        assert again.outcome == "complete"
        assert ("file001.txt" in paths_in(store)) == (how == "changed")


async def test_a_root_that_goes_away_while_it_is_read_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, store = write_tree(tmp_path / "root", numbered(3)), tmp_path / "store.sqlite3"
    async with opened(store) as engine:
        await swept(engine, tenant("acme", api=root))
        (root / "file001.txt").write_text("second\n")
        reading(lambda _: void(root.rename(tmp_path / "away")), monkeypatch)
        report = await swept(engine, tenant("acme", api=root))
        assert (report.outcome, report.code, report.outstanding) == ("failed", "KB_SOURCE_UNREADABLE", 1)
        assert "no such folder" in (report.reason or "")
        assert paths_in(store) == sorted(numbered(3))


def void(_: object) -> None:
    """For a lambda that is to return nothing."""


def test_a_listing_says_which_file_and_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(tmp_path, numbered(3))
    read = folder._read

    def failing(parent: int, name: str, limit: int) -> object:
        if name != "file000.txt":
            raise OSError(errno.EIO, "Input/output error")
        return read(parent, name, limit)

    monkeypatch.setattr(folder, "_read", failing)
    unread = FolderSource(tmp_path).snapshot().unread
    assert unread.failures == (("file001.txt", "Input/output error"), ("file002.txt", "Input/output error"))
    failure = unread.failure(["file002.txt"])
    assert str(failure) == (
        "not all of it could be read (file001.txt: Input/output error, and 1 more); "
        "what is stored of it stays (1 documents); the next sync looks again"
    )
