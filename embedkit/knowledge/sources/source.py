"""Where documents come from: a snapshot of a repository, and one text at a time out of it.

A snapshot lists; it holds no text. What was seen of a file (a ``Sighting``) is handed back by whoever keeps it, so that
a file whose stamp has not changed is not read again: an unchanged repository costs a look at its listing.

All of this is plain blocking code for a worker thread. ``check`` is called now and then, at least once a file that is
read, and may raise to end the work.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from embedkit.errors import SourceError, UsageError
from embedkit.knowledge.model import Document, SkipReason
from embedkit.knowledge.sources.selection import Selection

if TYPE_CHECKING:
    from embedkit.knowledge.sources.git_helpers import GitHelpers


@attrs.frozen
class Sighting:
    """What a look at one file found; kept between runs by path.

    Attributes:
        stamp: Changes whenever the file may have. Empty if that cannot be relied on yet: equal to no other.
        content_hash: SHA-256 of the bytes in hex, or ``None`` if the file is left out.
        skipped: Why it is left out.
        encoding: Of its text, where it had to be told (see ``encodings``); ``None`` for UTF-8.
    """

    stamp: str
    content_hash: str | None
    skipped: SkipReason | None = None
    encoding: str | None = None


@attrs.frozen
class Entry:
    """A file worth indexing, as the listing saw it.

    Attributes:
        path: As ``Document.path``: relative, ``/`` between its parts, printable, one for each file.
        content_hash: SHA-256 of the bytes, in hex.
        locator: How the source finds it again: for a folder the path as the system has it, for git the blob id.
    """

    path: str
    content_hash: str
    locator: str = attrs.field(repr=False)


CHANGED: Final = "KB_SOURCE_CHANGED"
"""Code of what ``Snapshot.read`` raises for a file that is no longer what the listing saw."""


@attrs.frozen
class Unread:
    """What could not be read, and is therefore not known to be gone: only "no such file" says that a file is.

    A file or folder that may not be read (a refused permission) is left out for what it is, unless documents of it are
    stored. Anything else that keeps a file from being read is expected to pass, and fails the repository until it has.

    Attributes:
        paths: Files, as ``Document.path``.
        folders: Folders whose files are not known, each with the slash at its end.
        failures: Of both, those that no permission explains, each with the reason.
        is_meant: Whether nothing was to be read there: what is given in portions says nothing of the others.
    """

    paths: frozenset[str] = frozenset()
    folders: tuple[str, ...] = ()
    failures: tuple[tuple[str, str], ...] = ()
    is_meant: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether all could be read."""
        return not (self.paths or self.folders)

    def covers(self, path: str) -> bool:
        """Whether a document at ``path`` may be there still."""
        return path in self.paths or path.startswith(self.folders)

    def failure(self, kept: Collection[str]) -> SourceError | None:
        """The failure of a listing that could not read all of it; ``None`` if nothing is missing that ought to be here.

        Args:
            kept: Stored documents that it covers.
        """
        named = [f"{path}: {reason}" for path, reason in self.failures]
        named += [f"{path}: may not be read" for path in kept] if not named else []
        if not named or self.is_meant:
            return None
        more = f", and {len(named) - 1:,} more" if len(named) > 1 else ""
        stays = f"; what is stored of it stays ({len(kept):,} documents)" if kept else ""
        return SourceError(f"not all of it could be read ({named[0]}{more}){stays}; the next sync looks again")


@attrs.frozen
class LeftOut:
    """A file, or a folder that could not be listed, that is not indexed."""

    path: str
    reason: SkipReason


@attrs.frozen(kw_only=True)
class Listed:
    """What a listing found; see ``Snapshot``, whose part it is."""

    revision: str
    entries: tuple[Entry, ...] = attrs.field(repr=False)
    sightings: Mapping[str, Sighting] = attrs.field(repr=False)
    left_out: tuple[LeftOut, ...] = attrs.field(default=(), repr=False)
    unread: Unread = attrs.field(default=Unread(), repr=False)

    @property
    def skipped(self) -> Mapping[SkipReason, int]:
        """How many files are left out, by reason."""
        return dict(sorted(Counter(item.reason for item in self.left_out).items()))


class Listing:
    """Gathers what a walk finds."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.sightings: dict[str, Sighting] = {}
        self._left_out: list[LeftOut] = []
        self._unread_paths: set[str] = set()
        self._unread_folders: list[str] = []
        self._failures: list[tuple[str, str]] = []

    def add(self, path: str, seen: Sighting, locator: str) -> None:
        """A file was looked at."""
        self.sightings[path] = seen
        if seen.content_hash is not None:
            self.entries.append(Entry(path, seen.content_hash, locator))
        elif seen.skipped is not None:
            self.leave_out(path, seen.skipped)

    def miss(self, path: str, error: Exception) -> None:
        """A file could not be read."""
        self.sightings[path] = Sighting("", None, "unreadable")
        self.leave_out(path, "unreadable")
        self._unread_paths.add(path)
        self._note(path, error)

    def leave_out(self, path: str, reason: SkipReason) -> None:
        """A file is not to be indexed, and need not be remembered."""
        self._left_out.append(LeftOut(path, reason))

    def lose(self, folder: str, error: Exception) -> None:
        """A folder (with the slash at its end) could not be listed."""
        self.leave_out(folder, "unreadable")
        self._unread_folders.append(folder)
        self._note(folder, error)

    def _note(self, path: str, error: Exception) -> None:
        if not isinstance(error, PermissionError):
            reason = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
            self._failures.append((path, reason))

    def done(self, revision: str | None = None) -> Listed:
        """All of it; without a ``revision``, under the hash of its paths and contents."""
        entries = tuple(sorted(self.entries, key=lambda entry: entry.path))
        return Listed(
            revision=_revision(entries) if revision is None else revision,
            entries=entries,
            sightings=self.sightings,
            left_out=tuple(sorted(self._left_out, key=lambda item: item.path)),
            unread=Unread(frozenset(self._unread_paths), tuple(self._unread_folders), tuple(self._failures)),
        )


def _revision(entries: tuple[Entry, ...]) -> str:
    digest = hashlib.sha256()
    for entry in entries:
        digest.update(f"{entry.path}\0{entry.content_hash}\n".encode())
    return digest.hexdigest()


class Snapshot(Protocol):
    """A repository at one revision."""

    @property
    def revision(self) -> str:
        """A hash over paths and contents for a folder; the commit id for git."""

    @property
    def entries(self) -> Sequence[Entry]:
        """The files worth indexing, by path."""

    @property
    def skipped(self) -> Mapping[SkipReason, int]:
        """How many files are left out, by reason. Ignored files are not counted."""

    @property
    def left_out(self) -> Sequence[LeftOut]:
        """The same, each by name."""

    @property
    def sightings(self) -> Mapping[str, Sighting]:
        """What was found, by path; hand it to the next ``Source.snapshot``."""

    @property
    def unread(self) -> Unread:
        """What could not be read: it is counted as ``unreadable``, and what is stored of it stays."""

    def read(self, entry: Entry) -> Document:
        """The text of one entry.

        Raises:
            SourceError: It cannot be read; names the file. Its code is ``CHANGED`` if the file vanished or changed
                since the snapshot, which the next one sees.
        """


class Source(Protocol):
    """A repository that documents are taken from."""

    def snapshot(
        self, known: Mapping[str, Sighting] | None = None, *, check: Callable[[], object] | None = None
    ) -> Snapshot:
        """List the repository as it is now.

        Args:
            known: ``Snapshot.sightings`` of an earlier time, if any is remembered.
            check: Called now and then; may raise, which ends the listing.

        Raises:
            UsageError: The path is missing or is no folder.
            SourceError: The repository cannot be read.
        """


def open_source(
    *,
    path: Path | None = None,
    git: str | None = None,
    branch: str | None = None,
    cache: Path | None = None,
    selection: Selection | None = None,
    helpers: GitHelpers | None = None,
) -> Source:
    """The source of a repository that is a folder (``path``) or a git repository (``git``).

    Args:
        path: A folder.
        git: A path or URL of a git repository.
        branch: Branch or tag to read; the repository's own head if ``None``.
        cache: Folder in which repositories that are not local are kept, bare.
        selection: What is looked at; without one, what the defaults say.
        helpers: Who fetches from git servers.

    Raises:
        UsageError: Neither or both are given, or the ``git`` extra is not installed.
    """
    if (path is None) == (git is None):
        raise UsageError("a repository has either a path or a git address: give one of the two")
    chosen = Selection() if selection is None else selection
    if path is not None:
        from embedkit.knowledge.sources.folder import FolderSource

        return FolderSource(path, chosen)
    from embedkit.knowledge.sources.git import GitSource

    assert git is not None
    return GitSource(git, branch=branch, cache=cache, selection=chosen, helpers=helpers)


def printable_path(raw: str) -> str:
    r"""A path as the system has it, made printable so that no two become one.

    Bytes that are not UTF-8 (surrogates, from ``os.fsdecode``), line ends and other characters that cannot be printed
    become ``\xNN``, ``\uNNNN``; a backslash in a name is doubled, so that none of these can be mistaken for a name.
    """
    if raw.isprintable() and "\\" not in raw:
        return raw
    return "".join(map(_printable, raw))


def _printable(sign: str) -> str:
    if sign == "\\":
        return r"\\"
    if sign.isprintable() or sign == "\u00a0":
        return sign
    if "\udc80" <= sign <= "\udcff":
        return f"\\x{os.fsencode(sign)[0]:02x}"
    code = ord(sign)
    named = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}.get(sign)
    return named or (f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}")
