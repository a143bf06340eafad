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

import errno
import hashlib
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

import attrs

from embedkit.errors import EmbedkitError, SourceError, UsageError
from embedkit.knowledge.sources.git_cache import drop_stale_locks, locked, remove
from embedkit.knowledge.sources.git_tree import GitSnapshot, TreeWalk
from embedkit.knowledge.sources.selection import Selection
from embedkit.knowledge.sources.source import Sighting, printable_path

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
        selection: What is looked at.
    """

    address: str = attrs.field(repr=redacted)
    branch: str | None = None
    cache: Path | None = None
    selection: Selection = attrs.field(factory=Selection)

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
        look = _Look({} if known is None else known, _nothing if check is None else check)
        if not _is_remote(self.address):
            return self._local(look)
        folder = self._cache_folder()
        try:
            with locked(folder.with_suffix(".lock"), look.check):
                return self._cached(folder, look)
        except OSError as error:
            reason = error.strerror or type(error).__name__
        raise SourceError(f"{redacted(self.address)}: its cache cannot be used: {reason}")

    def _local(self, look: _Look) -> GitSnapshot:
        from dulwich.repo import Repo

        if not os.path.isdir(self.address):
            raise UsageError(f"{redacted(self.address)}: no such folder: give the path or URL of a git repository")
        repository = self._guarded("not a git repository (for a plain folder use path)", lambda: Repo(self.address))
        try:
            refs = self._guarded("its branches cannot be read", lambda: _here(repository, _wanted(self.branch)))
            return self._listed(repository, refs, look)
        except BaseException:
            repository.close()
            raise

    def _cache_folder(self) -> Path:
        scheme = self.address.partition("://")[0] if "://" in self.address else "ssh"
        if scheme not in _SCHEMES:  # dulwich would take it for the name of a host, and ask ssh
            known = ", ".join(sorted(_SCHEMES))
            raise UsageError(f"{redacted(self.address)}: git knows no {scheme!r} address: use one of {known}")
        if self.cache is None:
            raise UsageError(f"{redacted(self.address)}: a repository that is fetched needs a cache folder")
        key = hashlib.sha256(f"{redacted(self.address)}\0{self.branch or ''}".encode()).hexdigest()[:24]
        return self.cache / f"{key}.git"

    def _cached(self, folder: Path, look: _Look) -> GitSnapshot:
        """Fetch and list. A cache that is damaged is made anew: all that is in it can be fetched again."""
        was_there = os.path.lexists(folder)
        if was_there:
            drop_stale_locks(folder)
            try:
                snapshot = self._fetched(folder, look)
            except _Damaged:
                pass
            else:
                if snapshot.unread.is_empty:
                    return snapshot
                snapshot.close()  # objects are missing: fetched once, they would not be asked for again
            remove(folder)
        try:
            return self._fetched(folder, look)
        except _Damaged as error:
            reason = str(error)
        raise SourceError(reason)

    def _fetched(self, folder: Path, look: _Look) -> GitSnapshot:
        repository = self._guarded("its cache cannot be opened", lambda: _bare(folder), is_cached=True)
        try:
            refs = self._guarded("cannot be fetched", lambda: self._fetch(repository), is_cached=True)
            return self._listed(repository, refs, look, is_cached=True)
        except BaseException:
            repository.close()
            raise

    def _listed(self, repository: Repo, refs: _Refs, look: _Look, *, is_cached: bool = False) -> GitSnapshot:
        commit = self._chosen(repository, refs, is_cached=is_cached)
        walk = TreeWalk(repository, self.selection, look.known, look.check)
        if commit is not None:
            found = commit
            self._guarded("cannot be listed", lambda: walk.run(found), is_cached=is_cached)
        if commit is not None and is_cached:
            # The next fetch tells the other side that this much is here.
            self._guarded("its cache cannot be written", lambda: _keep(repository, found), is_cached=True)
        listed = walk.listing.done(commit.decode() if commit is not None else NO_COMMIT)
        return GitSnapshot(
            revision=listed.revision,
            entries=listed.entries,
            sightings=listed.sightings,
            left_out=listed.left_out,
            unread=listed.unread,
            repository=repository,
        )

    def _fetch(self, repository: Repo) -> _Refs:
        """Bring the head here, without its history."""
        from dulwich.client import get_transport_and_path

        client, path = get_transport_and_path(self.address, config=_settings())
        found = _Refs()

        def wants(refs: Mapping[Ref, ObjectID], depth: int | None = None) -> list[ObjectID]:
            found.others = bool(refs)
            for name in _wanted(self.branch):
                there = refs.get(name)
                if there is not None:
                    found.names[name] = there
                    return [] if there in repository.object_store else [there]
            return []

        client.fetch(path, repository, determine_wants=wants, depth=1)
        return found

    def _chosen(self, repository: Repo, refs: _Refs, *, is_cached: bool) -> ObjectID | None:
        """The commit under the first name that is there; ``None`` for a repository without any commit."""
        from dulwich.objects import Commit, Tag

        shown = redacted(self.address)
        for name in _wanted(self.branch):
            if name not in refs.names:
                continue
            here = self._object(repository, refs.names[name], is_cached=is_cached)
            while isinstance(here, Tag):
                here = self._object(repository, here.object[1], is_cached=is_cached)
            if not isinstance(here, Commit):
                raise SourceError(f"{shown}: {self.branch or 'its head'} is not a commit")
            return here.id
        if self.branch is not None:
            raise SourceError(f"{shown}: no branch or tag {self.branch!r}: correct the repository's branch setting")
        if refs.others:
            raise SourceError(f"{shown}: its HEAD names a branch that is not there: name one with branch")
        return None

    def _object(self, repository: Repo, name: ObjectID, *, is_cached: bool) -> ShaFile:
        return self._guarded("its head is missing", lambda: repository[name], is_cached=is_cached)

    def _guarded(self, what: str, work: Callable[[], _T], *, is_cached: bool = False) -> _T:
        """Do it; turn what dulwich and the network raise into one line without secrets.

        Raises:
            SourceError: It failed.
            _Damaged: It failed, and our cache may be why.
        """
        try:
            return work()
        except EmbedkitError:
            raise
        except Exception as error:
            reason = _without_secrets(self.address, str(error) or type(error).__name__)
            kind = _Damaged if is_cached and not _is_far(error) else SourceError
        # Raised outside of the handler: the exception that is not shown would be attached as context.
        raise kind(f"{redacted(self.address)}: {what}: {reason}")


@attrs.define
class _Refs:
    """What a repository calls its commits.

    Attributes:
        names: Those that were asked for.
        others: Whether it has any at all.
    """

    names: dict[Ref, ObjectID] = attrs.field(factory=dict)
    others: bool = False


@attrs.frozen
class _Look:
    """What a caller hands to ``snapshot``."""

    known: Mapping[str, Sighting]
    check: Callable[[], object]


class _Damaged(Exception):
    """The cache is at fault, or may be."""


def _nothing() -> None:
    pass


def _is_far(error: Exception) -> bool:
    """Whether it is the other side's, or the way's: a new cache would not help."""
    from dulwich.client import HTTPProxyUnauthorized, HTTPUnauthorized, InvalidWants
    from dulwich.errors import GitProtocolError, NotGitRepository
    from urllib3.exceptions import HTTPError

    if isinstance(error, OSError):
        return error.filename is None  # a socket has no name, a file of the cache has
    far = (GitProtocolError, NotGitRepository, HTTPError, HTTPUnauthorized, HTTPProxyUnauthorized, InvalidWants)
    return isinstance(error, far)


def _keep(repository: Repo, commit: ObjectID) -> None:
    from dulwich.refs import Ref

    repository.refs[Ref(b"refs/heads/fetched")] = commit


def _wanted(branch: str | None) -> list[Ref]:
    """Full names under which a branch or tag may be found, the likeliest first."""
    from dulwich.refs import Ref

    if branch is None:
        return [Ref(b"HEAD")]
    name = os.fsencode(branch)
    return [Ref(name)] if name.startswith(b"refs/") else [Ref(head + name) for head in _HEADS]


def _here(repository: Repo, wanted: list[Ref]) -> _Refs:
    found = _Refs(others=any(name.startswith(b"refs/") for name in repository.refs.allkeys()))
    for name in wanted:
        try:
            found.names[name] = repository.refs[name]
        except KeyError:
            continue  # not there, or a HEAD that points at a branch without a commit
    return found


def _is_remote(address: str) -> bool:
    return "://" in address or (_SCP_LIKE.match(address) is not None and not os.path.exists(address))


def _bare(folder: Path) -> Repo:
    from dulwich.errors import NotGitRepository
    from dulwich.repo import Repo

    if not (folder / "HEAD").exists():
        folder.mkdir(parents=True, exist_ok=True)
        return Repo.init_bare(str(folder))
    try:
        return Repo(str(folder))
    except NotGitRepository:
        raise FileNotFoundError(errno.ENOENT, "no git repository any more", str(folder)) from None


def _settings() -> StackedConfig:
    """The user's git settings, with a timeout where they set none."""
    from dulwich.config import ConfigFile, StackedConfig

    ours = ConfigFile()
    ours.set((b"http",), b"timeout", _HTTP_TIMEOUT)
    return StackedConfig([*StackedConfig.default_backends(), ours])


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
