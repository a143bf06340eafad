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

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import attrs

from embedkit.errors import EmbedkitError, SourceError, UsageError
from embedkit.knowledge.sources.git_cache import MOST_PACKS, drop_stale_locks, locked, packs_in, remove, repack
from embedkit.knowledge.sources.git_fetch import Refs, bare, fetch, is_far, reason_of, redacted, wanted_names
from embedkit.knowledge.sources.git_helpers import Damaged, GitHelpers
from embedkit.knowledge.sources.git_tree import GitSnapshot, TreeWalk
from embedkit.knowledge.sources.selection import Selection
from embedkit.knowledge.sources.source import Sighting

if TYPE_CHECKING:
    from dulwich.objects import ObjectID, ShaFile
    from dulwich.refs import Ref
    from dulwich.repo import Repo

_T = TypeVar("_T")

NO_COMMIT: Final = "0" * 40
"""The revision of a repository without a commit."""

_SCHEMES: Final = frozenset({"file", "git", "git+ssh", "http", "https", "ssh"})
_SCP_LIKE = re.compile(r"(?:[^/@:]+@)?[^/@:]{2,}:(?!//)")


@attrs.frozen
class GitSource:
    """Documents of one branch of a git repository.

    Attributes:
        address: Path or URL. Shown without what is secret in it.
        branch: Branch or tag; the repository's own head if ``None``.
        cache: Folder in which repositories that are fetched are kept.
        selection: What is looked at.
        helpers: Who fetches from servers; without any, one is started for each fetch.
    """

    address: str = attrs.field(repr=redacted)
    branch: str | None = None
    cache: Path | None = None
    selection: Selection = attrs.field(factory=Selection)
    helpers: GitHelpers | None = attrs.field(default=None, repr=False)

    def __attrs_post_init__(self) -> None:
        try:
            import dulwich  # noqa: F401 - only whether it is there
        except ImportError as error:
            raise UsageError(
                f"{redacted(self.address)}: reading git needs the git extra: pip install 'trio-embedkit[git]'"
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
            refs = self._guarded("its branches cannot be read", lambda: _here(repository, wanted_names(self.branch)))
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
            if packs_in(folder) > MOST_PACKS:
                self._repack(folder, look)
            try:
                snapshot = self._fetched(folder, look)
            except Damaged:
                pass
            else:
                if snapshot.unread.is_empty:
                    return snapshot
                snapshot.close()  # objects are missing: fetched once, they would not be asked for again
            remove(folder)
        try:
            return self._fetched(folder, look)
        except Damaged as error:
            reason = str(error)
        raise SourceError(reason)

    def _repack(self, folder: Path, look: _Look) -> None:
        """Make one pack of what the last head needs; a cache that does not bear it is thrown away."""
        try:
            repack(folder, look.check)
            is_fit = packs_in(folder) <= MOST_PACKS
        except Exception:  # dulwich raises many kinds; what is in the cache can be fetched again
            is_fit = False
        if not is_fit:
            remove(folder)

    def _fetched(self, folder: Path, look: _Look) -> GitSnapshot:
        # A server's part is done before our own process opens the cache, and sees all of it.
        served = None if self._is_file else self._served(folder, look)
        repository = self._guarded("its cache cannot be opened", lambda: bare(folder), is_cached=True)
        try:
            wanted = wanted_names(self.branch)

            def activity(count: int, kind: str) -> None:
                look.check()

            refs = served or self._guarded(
                "cannot be fetched", lambda: fetch(self.address, wanted, repository, activity), is_cached=True
            )
            return self._listed(repository, refs, look, is_cached=True)
        except BaseException:
            repository.close()
            raise

    @property
    def _is_file(self) -> bool:
        return self.address.startswith("file://")

    def _served(self, folder: Path, look: _Look) -> Refs:
        """Fetch from a server, in a helper."""
        helpers = self.helpers or GitHelpers()
        try:
            return helpers.fetch(self.address, wanted_names(self.branch), folder, look.check)
        finally:
            if self.helpers is None:
                helpers.close()

    def _listed(self, repository: Repo, refs: Refs, look: _Look, *, is_cached: bool = False) -> GitSnapshot:
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

    def _chosen(self, repository: Repo, refs: Refs, *, is_cached: bool) -> ObjectID | None:
        """The commit under the first name that is there; ``None`` for a repository without any commit."""
        from dulwich.objects import Commit, Tag

        shown = redacted(self.address)
        for name in wanted_names(self.branch):
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
            Damaged: It failed, and our cache may be why.
        """
        try:
            return work()
        except EmbedkitError:
            raise
        except Exception as error:
            reason = reason_of(self.address, error)
            kind = Damaged if is_cached and not is_far(error) else SourceError
        # Raised outside of the handler: the exception that is not shown would be attached as context.
        raise kind(f"{redacted(self.address)}: {what}: {reason}")


@attrs.frozen
class _Look:
    """What a caller hands to ``snapshot``."""

    known: Mapping[str, Sighting]
    check: Callable[[], object]


def _nothing() -> None:
    pass


def _keep(repository: Repo, commit: ObjectID) -> None:
    from dulwich.refs import Ref

    repository.refs[Ref(b"refs/heads/fetched")] = commit


def _here(repository: Repo, wanted: list[Ref]) -> Refs:
    found = Refs(others=any(name.startswith(b"refs/") for name in repository.refs.allkeys()))
    for name in wanted:
        try:
            found.names[name] = repository.refs[name]
        except KeyError:
            continue  # not there, or a HEAD that points at a branch without a commit
    return found


def is_served(address: str) -> bool:
    """Whether somebody else has to answer before the repository can be read."""
    return _is_remote(address) and not address.startswith("file://")


def _is_remote(address: str) -> bool:
    return "://" in address or (_SCP_LIKE.match(address) is not None and not os.path.exists(address))
