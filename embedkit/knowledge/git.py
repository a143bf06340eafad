"""A git repository as a source, through dulwich (the ``git`` extra): no checkout, no git program.

A repository on this machine that is given as a path is read where it lies. Any other, ``file://`` included, is fetched
into a bare repository in the cache folder, without its history: what changed since the last time is told by blob ids,
and the texts by their hash. So a rewritten branch needs no special case.

Symbolic links and submodules are left out and counted as ``symlink``: both point at something that is not here. A
tracked file is indexed even if an ignore file names it, as git has it.

An address may hold a password or token. It appears in no message and no ``repr``: a message of dulwich's is searched
for it, and its exception is not chained.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

import attrs

from embedkit.errors import SourceError, UsageError
from embedkit.knowledge.filters import DEFAULT_MAX_FILE_BYTES
from embedkit.knowledge.git_tree import GitSnapshot, TreeWalk
from embedkit.knowledge.source import Sighting, printable_path

if TYPE_CHECKING:
    from dulwich.config import StackedConfig
    from dulwich.objects import ObjectID, ShaFile
    from dulwich.refs import Ref
    from dulwich.repo import Repo

_T = TypeVar("_T")

NO_COMMIT: Final = "0" * 40
"""The revision of a repository without a commit."""

_SCHEMES: Final = frozenset({"file", "git", "git+ssh", "http", "https", "ssh"})
_HTTP_TIMEOUT: Final = b"60"  # seconds without a byte, unless the user's git settings say otherwise
_SCP_LIKE = re.compile(r"(?:[^/@:]+@)?[^/@:]{2,}:(?!//)")
_HEADS = (b"refs/heads/", b"refs/tags/", b"refs/remotes/origin/")


def redacted(address: str) -> str:
    """An address without user, password, query and fragment, fit to be shown."""
    if "://" not in address:
        return printable_path(address)
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    return printable_path(urlunsplit((parts.scheme, host, parts.path, "", "")))


@attrs.frozen
class GitSource:
    """Documents of one branch of a git repository.

    Attributes:
        address: Path or URL. Shown without what is secret in it.
        branch: Branch or tag; the repository's own head if ``None``.
        cache: Folder in which repositories that are fetched are kept.
        max_file_bytes: Larger files are left out.
    """

    address: str = attrs.field(repr=redacted)
    branch: str | None = None
    cache: Path | None = None
    max_file_bytes: int = DEFAULT_MAX_FILE_BYTES

    def __attrs_post_init__(self) -> None:
        try:
            import dulwich  # noqa: F401 - only whether it is there
        except ImportError as error:
            raise UsageError(
                f"{redacted(self.address)}: reading git needs the git extra: pip install 'embedkit[git]'"
            ) from error

    def snapshot(
        self, known: Mapping[str, Sighting] | None = None, *, check: Callable[[], object] | None = None
    ) -> GitSnapshot:
        """Fetch, if it is not here, and list the branch's head; see ``Source.snapshot``."""
        repository, commit = self._fetched() if _is_remote(self.address) else self._local()
        try:
            walk = TreeWalk(repository, self.max_file_bytes, known or {}, check)
            if commit is not None:
                self._guarded("cannot be listed", lambda: walk.run(commit))
        except BaseException:
            repository.close()
            raise
        return GitSnapshot(
            repository,
            commit.decode() if commit is not None else NO_COMMIT,
            tuple(sorted(walk.entries, key=lambda entry: entry.path)),
            dict(sorted(walk.skipped.items())),
            walk.sightings,
        )

    def _local(self) -> tuple[Repo, ObjectID | None]:
        from dulwich.repo import Repo

        if not os.path.isdir(self.address):
            raise UsageError(f"{redacted(self.address)}: no such folder: give the path or URL of a git repository")
        repository = self._guarded("not a git repository (for a plain folder use path)", lambda: Repo(self.address))
        try:
            return repository, self._chosen(repository, _here(repository, _wanted(self.branch)))
        except BaseException:
            repository.close()
            raise

    def _fetched(self) -> tuple[Repo, ObjectID | None]:
        scheme = self.address.partition("://")[0] if "://" in self.address else "ssh"
        if scheme not in _SCHEMES:  # dulwich would take it for the name of a host, and ask ssh
            known = ", ".join(sorted(_SCHEMES))
            raise UsageError(f"{redacted(self.address)}: git knows no {scheme!r} address: use one of {known}")
        if self.cache is None:
            raise UsageError(f"{redacted(self.address)}: a repository that is fetched needs a cache folder")
        key = hashlib.sha256(f"{redacted(self.address)}\0{self.branch or ''}".encode()).hexdigest()[:24]
        folder = self.cache / f"{key}.git"
        from dulwich.refs import Ref

        with _locked(folder.with_suffix(".lock")):
            repository = self._guarded("its cache cannot be opened", lambda: _bare(folder))
            try:
                names = self._guarded("cannot be fetched", lambda: self._fetch(repository))
                commit = self._chosen(repository, names)
                if commit is not None:
                    # The next fetch tells the other side that this much is here.
                    repository.refs[Ref(b"refs/heads/fetched")] = commit
            except BaseException:
                repository.close()
                raise
        return repository, commit

    def _fetch(self, repository: Repo) -> dict[Ref, ObjectID]:
        """Bring the head here, without its history; the names under which it may be found."""
        from dulwich.client import get_transport_and_path

        client, path = get_transport_and_path(self.address, config=_settings())
        names: dict[Ref, ObjectID] = {}

        def wants(refs: Mapping[Ref, ObjectID], depth: int | None = None) -> list[ObjectID]:
            for name in _wanted(self.branch):
                found = refs.get(name)
                if found is not None:
                    names[name] = found
                    return [] if found in repository.object_store else [found]
            return []

        client.fetch(path, repository, determine_wants=wants, depth=1)
        return names

    def _chosen(self, repository: Repo, names: Mapping[Ref, ObjectID]) -> ObjectID | None:
        """The commit under the first name that is there; ``None`` for a repository without a commit."""
        from dulwich.objects import Commit, Tag

        for name in _wanted(self.branch):
            if name not in names:
                continue
            here = self._object(repository, names[name])
            while isinstance(here, Tag):
                here = self._object(repository, here.object[1])
            if not isinstance(here, Commit):
                raise SourceError(f"{redacted(self.address)}: {self.branch or 'its head'} is not a commit")
            return here.id
        if self.branch is not None:
            raise SourceError(
                f"{redacted(self.address)}: no branch or tag {self.branch!r}: mend the repository's branch setting"
            )
        return None

    def _object(self, repository: Repo, name: ObjectID) -> ShaFile:
        return self._guarded("its head is missing", lambda: repository[name])

    def _guarded(self, what: str, work: Callable[[], _T]) -> _T:
        """Do it; turn what dulwich and the network raise into one line without secrets."""
        try:
            return work()
        except (SourceError, UsageError):
            raise
        except Exception as error:
            reason = _without_secrets(self.address, str(error) or type(error).__name__)
        # Raised outside of the handler: the exception that is not shown would be attached as context.
        raise SourceError(f"{redacted(self.address)}: {what}: {reason}")


def _wanted(branch: str | None) -> list[Ref]:
    """Full names under which a branch or tag may be found, the likeliest first."""
    from dulwich.refs import Ref

    if branch is None:
        return [Ref(b"HEAD")]
    name = os.fsencode(branch)
    return [Ref(name)] if name.startswith(b"refs/") else [Ref(head + name) for head in _HEADS]


def _here(repository: Repo, wanted: list[Ref]) -> dict[Ref, ObjectID]:
    names: dict[Ref, ObjectID] = {}
    for name in wanted:
        try:
            names[name] = repository.refs[name]
        except KeyError:
            continue  # not there, or a HEAD that points at a branch without a commit
    return names


def _is_remote(address: str) -> bool:
    return "://" in address or (_SCP_LIKE.match(address) is not None and not os.path.exists(address))


def _bare(folder: Path) -> Repo:
    from dulwich.repo import Repo

    if (folder / "HEAD").exists():
        return Repo(str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    return Repo.init_bare(str(folder))


def _settings() -> StackedConfig:
    """The user's git settings, with a timeout where they set none."""
    from dulwich.config import ConfigFile, StackedConfig

    ours = ConfigFile()
    ours.set((b"http",), b"timeout", _HTTP_TIMEOUT)
    return StackedConfig([*StackedConfig.default_backends(), ours])


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One fetch into a cached repository at a time, in this process and others."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _without_secrets(address: str, text: str) -> str:
    """``text`` in one line, with nothing of the address's user, password or query in it."""
    text = " ".join(text.replace(address, redacted(address)).split())
    if "://" not in address:
        return text
    parts = urlsplit(address)
    userinfo, _, _ = parts.netloc.rpartition("@")
    user, _, password = userinfo.partition(":")
    secrets = [userinfo, password, parts.query]
    if parts.scheme in ("http", "https"):
        secrets.append(user)  # a token may stand in the user's place
    for secret in secrets:
        for form in {secret, unquote(secret)} - {""}:
            text = text.replace(form, "***")
    return text
