"""One tenant's trouble is one repository's outcome: whatever a source, a file or a chunker raises, all others go on."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from fakes import numbered, opened, tenant, write_tree
from store_content import paths_in

from embedkit.engine import Engine
from embedkit.knowledge.chunking import chunk
from embedkit.knowledge.indexing import preparing
from embedkit.knowledge.sources import folder
from embedkit.knowledge.sources.folder import FolderSource
from embedkit.knowledge.sources.source import Sighting, Snapshot
from embedkit.settings import RepositorySettings, TenantSettings
from embedkit.sweep.outcome import RepositoryReport
from embedkit.sweep.sweep import open_sweep


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite3"


async def swept(engine: Engine, *tenants: TenantSettings, allow_empty: bool = False) -> dict[str, RepositoryReport]:
    """The reports of one sweep, by tenant."""
    async with open_sweep(engine, tenants, all=True, allow_empty=allow_empty) as sweep:
        report = await sweep.run()
    return {found.tenant: found for found in report.repositories}


@pytest.mark.parametrize("error", [ZeroDivisionError("x\ny"), RecursionError(), MemoryError(), OSError(5, "I/O error")])
async def test_whatever_a_source_raises_is_its_repositorys_failure(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    root, other = write_tree(tmp_path / "root", numbered(2)), write_tree(tmp_path / "other", numbered(2))
    listed = FolderSource.snapshot

    def snapshot(
        self: FolderSource, known: Mapping[str, Sighting] | None = None, *, check: Callable[[], object] | None = None
    ) -> Snapshot:
        if self.root == root:
            raise error
        return listed(self, known, check=check)

    monkeypatch.setattr(FolderSource, "snapshot", snapshot)
    async with opened(store) as engine:
        reports = await swept(engine, tenant("acme", api=root), tenant("other", api=other))
    assert (reports["acme"].outcome, reports["acme"].code) == ("failed", "KB_SOURCE_DEFECT")
    assert reports["acme"].reason is not None
    assert type(error).__name__ in reports["acme"].reason
    assert "\n" not in reports["acme"].reason
    assert (reports["other"].outcome, reports["other"].documents) == ("complete", 2)


async def test_a_file_that_cannot_be_cut_is_named_and_all_others_are_stored(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_tree(tmp_path / "root", {**numbered(4), "evil.txt": "evil\n"})

    def cut(path: str, text: str, **limits: object) -> object:
        if path == "evil.txt":
            raise RecursionError("maximum recursion depth exceeded")
        return chunk(path, text, **limits)  # type: ignore[arg-type]

    monkeypatch.setattr(preparing, "chunk", cut)
    async with opened(store) as engine:
        acme = (await swept(engine, tenant("acme", api=root)))["acme"]
    assert (acme.outcome, acme.code) == ("failed", "KB_CHUNKING_FAILED")
    assert acme.reason is not None
    assert acme.reason.startswith("evil.txt: cannot be cut into chunks (RecursionError")
    assert (acme.embedded, acme.outstanding) == (4, 1)
    assert paths_in(store) == sorted(numbered(4))


@pytest.mark.parametrize("rule", ["[z-a]", "[9-0]x", "(", "*a" * 14 + "b", "[[:digit:]]", "a\\", "[", "{2}{3}**?"])
async def test_an_ignore_file_of_one_tenant_ends_nobodys_sweep(tmp_path: Path, store: Path, rule: str) -> None:
    """A pattern that is no regular expression ended all tenants in a traceback; a slow one stood still for hours."""
    root = write_tree(tmp_path / "root", {".gitignore": rule, "a" * 60: "a\n"})
    other = write_tree(tmp_path / "other", numbered(2))
    async with opened(store) as engine:
        reports = await swept(engine, tenant("acme", api=root), tenant("other", api=other))
    assert [report.outcome for report in reports.values()] == ["complete", "complete"]


async def test_a_damaged_git_repository_is_one_repositorys_failure(tmp_path: Path, store: Path) -> None:
    pytest.importorskip("dulwich", reason="the git extra is not installed")
    other = write_tree(tmp_path / "other", numbered(2))
    broken = write_tree(tmp_path / "broken", {".git/HEAD": "ref: HEAD\n", ".git/packed-refs": "garbage\n"})
    for name in ("objects", "refs"):
        (broken / ".git" / name).mkdir()
    named = TenantSettings(name="acme", repositories=(RepositorySettings(name="api", git=str(broken)),))
    async with opened(store) as engine:
        reports = await swept(engine, named, tenant("other", api=other))
    assert (reports["acme"].outcome, reports["acme"].code) == ("failed", "KB_SOURCE_UNREADABLE")
    assert reports["other"].outcome == "complete"


@pytest.mark.parametrize("emptied", ["removed", "ignored", "renamed to links"])
async def test_a_root_that_held_documents_and_now_has_none_fails_until_it_is_allowed(
    tmp_path: Path, store: Path, emptied: str
) -> None:
    """deja-vu#1045: the mount was away; everything was deleted with exit code 0, and bought again later."""
    root = write_tree(tmp_path / "root", numbered(4))
    async with opened(store) as engine:
        await swept(engine, tenant("acme", api=root))
        if emptied == "ignored":
            (root / ".ignore").write_text("*\n")
        else:
            shutil.rmtree(root)
            root.mkdir()
            if emptied == "renamed to links":
                (root / "a").symlink_to("b")
        acme = (await swept(engine, tenant("acme", api=root)))["acme"]
        assert (acme.outcome, acme.code, acme.deleted) == ("failed", "KB_SOURCE_EMPTY", 0)
        assert paths_in(store) == sorted(numbered(4))
        acme = (await swept(engine, tenant("acme", api=root), allow_empty=True))["acme"]
        assert (acme.outcome, acme.deleted) == ("complete", 4)
        assert (await swept(engine, tenant("acme", api=root)))["acme"].outcome == "complete"


async def test_what_cannot_be_read_is_kept_and_counted(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only "no such file" deletes: a folder without permission, and a disk that fails, do not."""
    root = write_tree(tmp_path / "root", {**numbered(3), "shut/a.txt": "a\n", "gone.txt": "g\n", "shutter.txt": "s\n"})
    read, opened_folder = folder._read, folder._opened_folder

    def reading(parent: int, name: str, limit: int) -> object:
        if name == "file001.txt":
            raise OSError(errno.EIO, "Input/output error")
        return read(parent, name, limit)

    def opening(above: int, name: str) -> object:
        if name == "shut":
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened_folder(above, name)

    async with opened(store) as engine:
        await swept(engine, tenant("acme", api=root))
        for gone in ("gone.txt", "shutter.txt"):
            (root / gone).unlink()
        with monkeypatch.context() as patched:
            patched.setattr(folder, "_read", reading)
            patched.setattr(folder, "_opened_folder", opening)
            acme = (await swept(engine, tenant("acme", api=root)))["acme"]
        assert (acme.outcome, acme.deleted, acme.skipped) == ("failed", 2, {"unreadable": 2})
        assert acme.code == "KB_SOURCE_UNREADABLE"
        assert "file001.txt: Input/output error" in (acme.reason or "")
        assert paths_in(store) == ["file000.txt", "file001.txt", "file002.txt", "shut/a.txt"]
        again = (await swept(engine, tenant("acme", api=root)))["acme"]
        assert (again.outcome, again.embedded, again.skipped) == ("complete", 0, {})
