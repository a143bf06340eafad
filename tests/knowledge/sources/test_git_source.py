from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("dulwich", reason="the git extra is not installed")

from dulwich.objects import Blob, Commit, ObjectID, Tag, Tree
from dulwich.refs import Ref
from dulwich.repo import Repo
from dulwich.server import BackendRepo, DictBackend, TCPGitServer

from embedkit.errors import SourceError, UsageError
from embedkit.knowledge.sources.folder import FolderSource
from embedkit.knowledge.sources.git import NO_COMMIT, GitSource
from embedkit.knowledge.sources.git_fetch import redacted
from embedkit.knowledge.sources.git_tree import blob_size
from embedkit.knowledge.sources.selection import Selection
from embedkit.knowledge.sources.source import Snapshot, open_source

FILE, LINK, SUBMODULE, FOLDER = 0o100644, 0o120000, 0o160000, 0o040000
Files = Mapping[str, bytes | str]


def stored_tree(repository: Repo, files: Files, links: Mapping[str, tuple[int, bytes]]) -> ObjectID:
    """A tree of ``files`` (by path) and, at the root, ``links``."""
    tree = Tree()
    folders: dict[str, dict[str, bytes | str]] = {}
    for path, content in files.items():
        head, _, rest = path.partition("/")
        if rest:
            folders.setdefault(head, {})[rest] = content
            continue
        blob = Blob.from_string(content if isinstance(content, bytes) else content.encode())
        repository.object_store.add_object(blob)
        tree.add(os.fsencode(head), FILE, blob.id)
    for name, inner in folders.items():
        tree.add(os.fsencode(name), FOLDER, stored_tree(repository, inner, {}))
    for name, (mode, target) in links.items():
        blob = Blob.from_string(target)
        repository.object_store.add_object(blob)
        tree.add(name.encode(), mode, ObjectID(b"1" * 40) if mode == SUBMODULE else blob.id)
    repository.object_store.add_object(tree)
    return tree.id


def commit(
    repository: Repo,
    files: Files,
    *,
    links: Mapping[str, tuple[int, bytes]] | None = None,
    ref: str = "refs/heads/master",
) -> ObjectID:
    name = Ref(ref.encode())
    made = Commit()
    made.tree = stored_tree(repository, files, links or {})
    made.parents = [repository.refs[name]] if name in repository.refs else []
    made.author = made.committer = b"A <a@example.org>"
    made.author_time = made.commit_time = 1_700_000_000
    made.author_timezone = made.commit_timezone = 0
    made.message = b"change"
    repository.object_store.add_object(made)
    repository.refs[name] = made.id
    return made.id


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repo]:
    made = Repo.init(str(tmp_path / "origin"), mkdir=True)
    made.refs.set_symbolic_ref(Ref(b"HEAD"), Ref(b"refs/heads/master"))
    yield made
    made.close()


def texts(snapshot: Snapshot) -> dict[str, str]:
    return {entry.path: snapshot.read(entry).text for entry in snapshot.entries}


@contextmanager
def served(repository: Repo) -> Iterator[str]:
    """The repository over the git protocol on loopback."""
    repositories: dict[bytes, BackendRepo] = {b"/": repository}
    server = TCPGitServer(DictBackend(repositories), "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"git://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def addresses(repository: Repo, way: str) -> str:
    return repository.path if way == "path" else f"file://{repository.path}"


@pytest.mark.parametrize("way", ["path", "file"])
def test_a_head_is_read_without_a_checkout(tmp_path: Path, repository: Repo, way: str) -> None:
    head = commit(repository, {"a.py": "x = 1\n", "sub/deep/b.md": "# B\n", ".git-blame": "c"})
    snapshot = open_source(git=addresses(repository, way), cache=tmp_path / "cache").snapshot()
    assert snapshot.revision == head.decode()
    assert texts(snapshot) == {".git-blame": "c", "a.py": "x = 1\n", "sub/deep/b.md": "# B\n"}
    assert sorted(os.listdir(repository.path)) == [".git"]


def test_contents_have_the_hash_they_have_in_a_folder(tmp_path: Path, repository: Repo) -> None:
    files: Files = {"a.py": "x = 1\n", "sub/b.txt": b"caf\xe9", "c.bin": b"\0", "yarn.lock": "x", "odd\n.txt": "o"}
    commit(repository, files)
    for name, content in files.items():
        file = tmp_path / "folder" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    folder, git = FolderSource(tmp_path / "folder").snapshot(), GitSource(repository.path).snapshot()
    assert [(e.path, e.content_hash) for e in git.entries] == [(e.path, e.content_hash) for e in folder.entries]
    assert git.skipped == folder.skipped == {"binary": 1, "generated": 1}
    assert [git.read(e) for e in git.entries] == [folder.read(e) for e in folder.entries]


def test_links_and_submodules_are_left_out_and_counted(repository: Repo) -> None:
    commit(repository, {"a": "a"}, links={"link": (LINK, b"/etc/passwd"), "module": (SUBMODULE, b"")})
    snapshot = GitSource(repository.path).snapshot()
    assert (list(texts(snapshot)), snapshot.skipped) == (["a"], {"symlink": 2})


def test_a_name_that_leads_out_of_the_root_is_refused_and_own_folders_are_left_out(repository: Repo) -> None:
    commit(repository, {"a": "a", "../up": "u", "..": "v", ".embedkit/x": "x", "sub/.git/config": "x"})
    snapshot = GitSource(repository.path).snapshot()
    assert (list(texts(snapshot)), snapshot.skipped) == (["a"], {"unreadable": 1})


@pytest.mark.parametrize("way", ["path", "file"])
def test_branches_and_tags_are_found_by_name(tmp_path: Path, repository: Repo, way: str) -> None:
    commit(repository, {"a": "master"})
    commit(repository, {"a": "side"}, ref="refs/heads/side/way")
    tag = Tag()
    tag.object, tag.name, tag.message = (Commit, commit(repository, {"a": "old"}, ref="refs/old/1")), b"v1", b""
    tag.tagger, tag.tag_time, tag.tag_timezone = b"A <a@example.org>", 0, 0
    repository.object_store.add_object(tag)
    repository.refs[Ref(b"refs/tags/v1")] = tag.id
    for branch, text in ((None, "master"), ("side/way", "side"), ("v1", "old")):
        source = GitSource(addresses(repository, way), branch=branch, cache=tmp_path / "cache")
        assert texts(source.snapshot()) == {"a": text}
    with pytest.raises(SourceError, match="no branch or tag 'gone'"):
        GitSource(addresses(repository, way), branch="gone", cache=tmp_path / "cache").snapshot()


@pytest.mark.parametrize("way", ["path", "file"])
def test_a_repository_without_a_commit_is_empty(tmp_path: Path, repository: Repo, way: str) -> None:
    snapshot = GitSource(addresses(repository, way), cache=tmp_path / "cache").snapshot()
    assert (snapshot.revision, list(snapshot.entries)) == (NO_COMMIT, [])


@pytest.mark.parametrize("way", ["path", "file"])
def test_only_blobs_that_changed_are_read_again(tmp_path: Path, repository: Repo, way: str) -> None:
    source = GitSource(addresses(repository, way), cache=tmp_path / "cache")
    commit(repository, {"a": "1", "b": "2", "c": b"\0"})
    first = source.snapshot()
    reads: list[int] = []
    again = source.snapshot(first.sightings, check=lambda: reads.append(1))
    assert (reads, again.entries, again.skipped) == ([1], first.entries, first.skipped)  # the tree
    commit(repository, {"a": "1", "b": "3", "c": b"\0"})
    second = source.snapshot(again.sightings, check=lambda: reads.append(1))
    assert len(reads) == 3  # and a blob
    assert second.revision != first.revision
    assert texts(second) == {"a": "1", "b": "3"}
    assert texts(first) == {"a": "1", "b": "2"}


def test_a_rewritten_branch_is_followed(tmp_path: Path, repository: Repo) -> None:
    source = GitSource(f"file://{repository.path}", cache=tmp_path / "cache")
    old = commit(repository, {"a": "1"})
    commit(repository, {"a": "2"})
    source.snapshot()
    repository.refs[Ref(b"refs/heads/master")] = old
    commit(repository, {"a": "3"})
    assert texts(source.snapshot()) == {"a": "3"}


def test_a_served_repository_is_fetched_without_its_history(tmp_path: Path, repository: Repo) -> None:
    old = commit(repository, {"a": "1", "b": "same"})
    commit(repository, {"a": "2", "b": "same"})
    with served(repository) as address:
        source = GitSource(address, cache=tmp_path / "cache")
        assert texts(source.snapshot()) == {"a": "2", "b": "same"}
        (folder,) = (tmp_path / "cache").glob("*.git")
        with Repo(str(folder)) as cached:
            assert old not in cached.object_store
        commit(repository, {"a": "3", "b": "same"})
        assert texts(source.snapshot()) == {"a": "3", "b": "same"}
        assert texts(source.snapshot()) == {"a": "3", "b": "same"}
    with pytest.raises(SourceError, match="cannot be fetched"):
        source.snapshot()


def test_a_blobs_size_is_known_without_inflating_it(tmp_path: Path, repository: Repo) -> None:
    base = b"".join(b"line %d of a text\n" % i for i in range(3000))
    contents = [base, base.replace(b"line 7 ", b"LINE 7 "), b"", b"x" * 300_000]
    commit(repository, {str(i): content for i, content in enumerate(contents)})
    store = repository.object_store
    blobs = [Blob.from_string(content).id for content in contents]
    assert [blob_size(store, blob) for blob in blobs] == [len(content) for content in contents]
    repository.object_store.pack_loose_objects()
    with Repo(repository.path) as packed:
        assert [blob_size(packed.object_store, blob) for blob in blobs] == [len(content) for content in contents]
    snapshot = GitSource(repository.path, selection=Selection(max_file_bytes=100_000)).snapshot()
    assert snapshot.skipped == {"oversized": 1}
    assert len(snapshot.entries) == 3


def test_an_object_that_is_gone_is_named(repository: Repo) -> None:
    commit(repository, {"sub/a": "1"})
    snapshot = GitSource(repository.path).snapshot()
    blob = snapshot.entries[0].locator
    os.unlink(os.path.join(repository.controldir(), "objects", blob[:2], blob[2:]))
    with pytest.raises(SourceError, match="sub/a: is no longer in the git repository"):
        snapshot.read(snapshot.entries[0])


def test_what_is_no_repository_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        GitSource(str(tmp_path / "nowhere")).snapshot()
    with pytest.raises(SourceError, match="not a git repository") as caught:
        GitSource(str(tmp_path)).snapshot()
    assert "\n" not in str(caught.value)
    with pytest.raises(SourceError, match="cannot be fetched"):
        GitSource(f"file://{tmp_path}", cache=tmp_path / "cache").snapshot()
    with pytest.raises(UsageError, match="needs a cache folder"):
        GitSource(f"file://{tmp_path}").snapshot()


@pytest.mark.parametrize(
    "address",
    [
        "http://me:s3cr3t-t0ken@127.0.0.1:1/site.git",
        "https://s3cr3t-t0ken@127.0.0.1:1/site.git",
        "http://me:s3cr3t%2Dt0ken@127.0.0.1:1/site.git?key=s3cr3t-t0ken",
        "git://s3cr3t-t0ken@127.0.0.1:1/site.git",
        "nonsense://me:s3cr3t-t0ken@127.0.0.1:1/site.git",
    ],
)
def test_no_secret_of_an_address_is_ever_shown(tmp_path: Path, address: str) -> None:
    source = GitSource(address, cache=tmp_path / "cache")
    with pytest.raises(SourceError if "nonsense" not in address else UsageError) as caught:
        source.snapshot()
    shown = [repr(source), str(caught.value), redacted(address), *map(str, tmp_path.rglob("*"))]
    error: BaseException | None = caught.value
    while error is not None:
        shown += [str(error), repr(error)]
        error = error.__cause__ or error.__context__
    for text in shown:
        assert "s3cr3t" not in text
    assert "127.0.0.1:1/site.git" in str(caught.value)
    for file in (tmp_path / "cache").rglob("*"):
        assert not file.is_file() or b"s3cr3t" not in file.read_bytes()


def test_without_dulwich_the_mend_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dulwich", None)
    with pytest.raises(UsageError, match=r"pip install 'trio-embedkit\[git\]'"):
        open_source(git="https://example.org/site.git")


def test_sightings_hold_the_hash_of_the_bytes(repository: Repo) -> None:
    commit(repository, {"a": "1"})
    (sighting,) = GitSource(repository.path).snapshot().sightings.values()
    assert sighting.content_hash == hashlib.sha256(b"1").hexdigest()
