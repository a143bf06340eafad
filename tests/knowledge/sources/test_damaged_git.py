"""Git repositories and caches that are damaged: one line, or mended, and never a traceback."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("dulwich", reason="the git extra is not installed")

from dulwich.objects import Blob, Commit, ObjectID, Tree
from dulwich.refs import Ref
from dulwich.repo import Repo

from embedkit.errors import SourceError
from embedkit.knowledge.sources import git_tree
from embedkit.knowledge.sources.git import NO_COMMIT, GitSource
from embedkit.knowledge.sources.source import Snapshot


def committed(repository: Repo, files: dict[str, bytes]) -> Commit:
    tree, folders = Tree(), dict[str, Tree]()
    for path, content in files.items():
        blob = Blob.from_string(content)
        repository.object_store.add_object(blob)
        folder, _, name = path.rpartition("/")
        (folders.setdefault(folder, Tree()) if folder else tree).add(name.encode(), 0o100644, blob.id)
    for name, inner in folders.items():
        repository.object_store.add_object(inner)
        tree.add(name.encode(), 0o040000, inner.id)
    made = Commit()
    made.tree = tree.id
    made.author = made.committer = b"A <a@example.org>"
    made.author_time = made.commit_time = 1_700_000_000
    made.author_timezone = made.commit_timezone = 0
    made.message = b"change"
    for thing in (tree, made):
        repository.object_store.add_object(thing)
    repository.refs[Ref(b"refs/heads/master")] = made.id
    return made


@pytest.fixture
def origin(tmp_path: Path) -> Repo:
    made = Repo.init(str(tmp_path / "origin"), mkdir=True)
    made.refs.set_symbolic_ref(Ref(b"HEAD"), Ref(b"refs/heads/master"))
    committed(made, {"a.py": b"x = 1\n", "sub/b.md": b"# B\n", "sub/c.md": b"# C\n"})
    made.close()
    return made


def paths(snapshot: Snapshot) -> list[str]:
    return [entry.path for entry in snapshot.entries]


def message_of(source: GitSource) -> str:
    """What is wrong with it; nothing if it can be listed."""
    try:
        source.snapshot().close()
    except SourceError as error:
        return str(error)
    return ""


def loose(folder: Path, name: ObjectID) -> Path:
    return folder / "objects" / os.fsdecode(name[:2]) / os.fsdecode(name[2:])


def empty(path: Path) -> None:
    path.unlink()
    path.touch()


def to_folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def instead(folder: Path, make: Callable[[Path], object]) -> None:
    shutil.rmtree(folder)
    make(folder)


def packs_of_garbage(folder: Path) -> None:
    for pack in folder.glob("objects/pack/*"):
        pack.chmod(0o644)
        pack.write_bytes(b"garbage")


def no_objects(folder: Path) -> None:
    shutil.rmtree(folder / "objects")
    (folder / "objects").mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a lock file left by a kill": lambda folder: (folder / "refs/heads/fetched.lock").touch(),
    "a lock of HEAD": lambda folder: (folder / "HEAD.lock").touch(),
    "a lock of shallow": lambda folder: (folder / "shallow.lock").touch(),
    "a lock of config": lambda folder: (folder / "config.lock").touch(),
    "a folder for HEAD": lambda folder: to_folder(folder / "HEAD"),
    "a folder for shallow": lambda folder: to_folder(folder / "shallow"),
    "a folder for a ref": lambda folder: to_folder(folder / "refs/heads/fetched"),
    "a folder for packed-refs": lambda folder: to_folder(folder / "packed-refs"),
    "packed-refs of garbage": lambda folder: (folder / "packed-refs").write_bytes(b"\xff\0 garbage\n"),
    "empty packed-refs": lambda folder: (folder / "packed-refs").touch(),
    "HEAD at itself": lambda folder: (folder / "HEAD").write_bytes(b"ref: HEAD\n"),
    "HEAD of garbage": lambda folder: (folder / "HEAD").write_bytes(b"\xff\0\n"),
    "an empty HEAD": lambda folder: empty(folder / "HEAD"),
    "a config of garbage": lambda folder: (folder / "config").write_bytes(b"[[[\xff"),
    "packs of garbage": packs_of_garbage,
    "no packs": no_objects,
    "no objects": lambda folder: shutil.rmtree(folder / "objects"),
    "a file for the cache": lambda folder: instead(folder, Path.touch),
    "an empty folder": lambda folder: instead(folder, Path.mkdir),
    "a folder for the lock": lambda folder: to_folder(folder.with_suffix(".lock")),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_cache_that_cannot_be_read_is_made_anew(tmp_path: Path, origin: Repo, damage: str) -> None:
    source = GitSource(f"file://{origin.path}", cache=tmp_path / "cache")
    first = source.snapshot()
    first.close()
    DAMAGES[damage](next((tmp_path / "cache").glob("*.git")))
    again = source.snapshot()
    assert (again.revision, again.entries) == (first.revision, first.entries)
    assert [again.read(entry).text for entry in again.entries] == ["x = 1\n", "# B\n", "# C\n"]
    again.close()


@pytest.mark.parametrize(
    "damage", [name for name in DAMAGES if "lock" not in name and "cache" not in name and "shallow" not in name]
)
def test_a_damaged_repository_is_one_line_and_is_not_touched(tmp_path: Path, origin: Repo, damage: str) -> None:
    folder = Path(origin.path, ".git")
    (folder / "refs/heads/fetched").write_bytes(b"")
    DAMAGES[damage](folder)
    before = sorted(folder.rglob("*"))
    said = message_of(GitSource(origin.path))
    assert "\n" not in said
    assert said == "" or said.startswith(str(origin.path))
    assert sorted(folder.rglob("*")) == before


def test_a_cache_folder_that_is_a_file_is_one_line(tmp_path: Path, origin: Repo) -> None:
    (tmp_path / "cache").touch()
    with pytest.raises(SourceError, match="its cache cannot be used"):
        GitSource(f"file://{origin.path}", cache=tmp_path / "cache").snapshot()


def test_an_engine_that_is_away_leaves_the_cache(tmp_path: Path, origin: Repo) -> None:
    """A new cache would not help: it is not thrown away because the other side is gone."""
    source = GitSource(f"file://{origin.path}", cache=tmp_path / "cache")
    source.snapshot().close()
    held = sorted((tmp_path / "cache").rglob("*.pack"))
    shutil.rmtree(origin.path)
    with pytest.raises(SourceError, match="cannot be fetched"):
        source.snapshot()
    assert held
    assert sorted((tmp_path / "cache").rglob("*.pack")) == held


def test_who_waits_for_anothers_fetch_can_be_cancelled(tmp_path: Path, origin: Repo) -> None:
    source = GitSource(f"file://{origin.path}", cache=tmp_path / "cache")
    source.snapshot().close()
    with open(next((tmp_path / "cache").glob("*.lock")), "r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        def stop() -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            source.snapshot(check=stop)


def test_a_head_that_names_a_branch_that_is_gone_is_no_empty_repository(tmp_path: Path, origin: Repo) -> None:
    """deja-vu#1045: everything was deleted, and bought again later."""
    Path(origin.path, ".git/HEAD").write_bytes(b"ref: refs/heads/gone\n")
    for address in (origin.path, f"file://{origin.path}"):
        with pytest.raises(SourceError, match="its HEAD names a branch that is not there: name one with branch"):
            GitSource(address, cache=tmp_path / "cache").snapshot()


def test_a_repository_without_a_commit_is_empty(tmp_path: Path) -> None:
    made = Repo.init(str(tmp_path / "new"), mkdir=True)
    made.close()
    for address in (made.path, f"file://{made.path}"):
        snapshot = GitSource(address, cache=tmp_path / "cache").snapshot()
        assert (snapshot.revision, snapshot.entries) == (NO_COMMIT, ())
        snapshot.close()


def test_an_object_that_is_missing_is_kept_and_counted(origin: Repo) -> None:
    folder = Path(origin.path, ".git")
    first = GitSource(origin.path).snapshot()
    loose(folder, ObjectID(first.entries[1].locator.encode())).unlink()
    loose(folder, ObjectID(first.entries[0].locator.encode())).write_bytes(b"torn")
    first.close()
    snapshot = GitSource(origin.path).snapshot()
    assert paths(snapshot) == ["sub/c.md"]
    assert snapshot.skipped == {"unreadable": 2}
    assert [snapshot.unread.covers(path) for path in ("a.py", "sub/b.md", "sub/c.md")] == [True, True, False]
    snapshot.close()


def test_a_tree_that_is_missing_keeps_all_that_stood_in_it(origin: Repo) -> None:
    with Repo(origin.path) as repository:
        head = repository[repository.head()]
        assert isinstance(head, Commit)
        root = repository[head.tree]
        assert isinstance(root, Tree)
        loose(Path(origin.path, ".git"), root[b"sub"][1]).unlink()
    snapshot = GitSource(origin.path).snapshot()
    assert (paths(snapshot), snapshot.skipped) == (["a.py"], {"unreadable": 1})
    assert snapshot.unread.covers("sub/any.md")
    assert not snapshot.unread.covers("subway.md")
    snapshot.close()


def test_a_tree_of_trees_of_trees_ends(origin: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten folders that are the same folder, ten times over, are ten thousand million files."""
    monkeypatch.setattr(git_tree, "_MOST_FILES", 2000)
    with Repo(origin.path) as repository:
        blob = Blob.from_string(b"x")
        repository.object_store.add_object(blob)
        below, mode = blob.id, 0o100644
        for _ in range(10):
            tree = Tree()
            for name in b"abcdefghij":
                tree.add(bytes([name]), mode, below)
            repository.object_store.add_object(tree)
            below, mode = tree.id, 0o040000
        head = repository[repository.head()]
        assert isinstance(head, Commit)
        head.tree = below
        repository.object_store.add_object(head)
        repository.refs[Ref(b"refs/heads/master")] = head.id
    with pytest.raises(SourceError, match="it has more than 2,000 files"):
        GitSource(origin.path).snapshot()
