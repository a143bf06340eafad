"""A plain folder as a source.

Nothing outside the root is ever read. Every folder and file is opened relative to the folder above it, without
following a symbolic link, so that not even a part of the path that is swapped for a link while we look leads out; and
without blocking, so that a named pipe cannot hold us. All symbolic links are left out and counted: what one inside the
root points to is indexed in its own place, and a loop of links never begins.

Whether a file has changed is told by its stamp: size, both times and inode. A file that was written moments before we
looked can be written again within the same tick of the file system's clock, and its stamp would not change; so a
stamp counts only if the file was quiet for ``QUIET_SECONDS`` (git calls such entries racy), and until then the file is
read again.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

from embedkit.errors import SourceError, UsageError
from embedkit.knowledge.model import Document
from embedkit.knowledge.sources.filters import (
    NEVER_INDEXED,
    RULES_GENERATION,
    look_at,
    skipped_by_name,
)
from embedkit.knowledge.sources.ignore import IGNORE_FILES, Ignored
from embedkit.knowledge.sources.selection import Selection
from embedkit.knowledge.sources.source import CHANGED, Entry, Listed, Listing, Sighting, printable_path
from embedkit.knowledge.sources.texts import document_of

QUIET_SECONDS: Final = 2.0
"""Older than this, a write is told from the next by its time: the coarsest file systems count in 2 s."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READ_SIZE = 1 << 20
_IGNORE_FILE_BYTES = 1 << 20


class _Oversized(Exception):
    """The file holds more bytes than wanted."""


class _NoFile(Exception):
    """It is a pipe, a socket or a device: known to be no document, whatever stood there before."""


@attrs.frozen
class FolderSource:
    """Documents of a folder and all folders in it, but for what ignore files leave out.

    Attributes:
        root: The folder. It may itself be a symbolic link.
        selection: What is looked at.
        clock: Wall-clock time in ns, as the file system stamps files.
    """

    root: Path
    selection: Selection = attrs.field(factory=Selection)
    clock: Callable[[], int] = attrs.field(default=time.time_ns, repr=False)

    def snapshot(
        self, known: Mapping[str, Sighting] | None = None, *, check: Callable[[], object] | None = None
    ) -> FolderSnapshot:
        """List the folder as it is now; see ``Source.snapshot``."""
        walk = _Walk(self, known or {}, check or _nothing)
        with _opened_root(self.root) as root:
            walk.run(root)
        listed = walk.listing.done()
        return FolderSnapshot(
            revision=listed.revision,
            entries=listed.entries,
            sightings=listed.sightings,
            left_out=listed.left_out,
            unread=listed.unread,
            root=self.root,
            max_file_bytes=self.selection.max_file_bytes,
        )


@attrs.frozen(kw_only=True)
class FolderSnapshot(Listed):
    """A folder as one listing found it."""

    root: Path
    max_file_bytes: int

    def read(self, entry: Entry) -> Document:
        """The text of one entry; see ``Snapshot.read``."""
        folder, _, name = entry.locator.rpartition("/")
        try:
            with _opened_root(self.root) as root, _opened_folder(root, folder) as parent:
                data = _read(parent, name, self.max_file_bytes)[0]
        except UsageError as error:  # the root itself has gone, which says nothing of the file
            raise SourceError(str(error)) from error
        except FileNotFoundError as error:
            raise SourceError(f"{entry.path}: was removed while it was being indexed", code=CHANGED) from error
        except OSError as error:
            raise SourceError(f"{entry.path}: cannot be read any more ({error.strerror}): sync again") from error
        except (_Oversized, _NoFile) as error:
            raise SourceError(f"{entry.path}: grew while it was being indexed: sync again", code=CHANGED) from error
        if hashlib.sha256(data).hexdigest() != entry.content_hash:
            raise SourceError(f"{entry.path}: changed while it was being indexed: sync again", code=CHANGED)
        return document_of(entry.path, entry.content_hash, data)


@attrs.frozen
class _Pending:
    """A folder that is still to be listed: its path with the slash at its end, and what holds in it."""

    path: str
    rules: Ignored
    is_included: bool


class _Walk:
    """One walk over a folder, and what it has found so far."""

    def __init__(self, source: FolderSource, known: Mapping[str, Sighting], check: Callable[[], object]) -> None:
        self._selection = source.selection
        self._known = known
        self._check = check
        self._quiet_since = source.clock() - int(QUIET_SECONDS * 1e9)
        self.listing = Listing()

    def run(self, root: int) -> None:
        # A stack, not recursion: folders may be nested deeper than Python calls, or than there are descriptors.
        pending = [_Pending("", self._selection.rules(), is_included=False)]
        while pending:
            folder = pending.pop()
            self._check()
            try:
                with _opened_folder(root, folder.path.rstrip("/")) as here:
                    pending.extend(self._list(here, folder))
            except OSError as error:
                if not folder.path:
                    raise SourceError(f"the repository's folder cannot be listed: {error.strerror}") from error
                if not self._is_gone(root, folder.path, error):
                    self.listing.lose(printable_path(folder.path), error)

    def _is_gone(self, root: int, folder: str, error: OSError) -> bool:
        """Whether a folder that could not be listed is not there any more.

        Asked once more: an error from within the folder says nothing of the folder itself.
        """
        if not isinstance(error, FileNotFoundError):
            return False
        try:
            with _opened_folder(root, folder.rstrip("/")):
                return False
        except FileNotFoundError:
            return True
        except OSError:
            return False

    def _list(self, here: int, folder: _Pending) -> list[_Pending]:
        """Look at what one folder holds; the folders in it are returned, with the rules that hold here."""
        with os.scandir(here) as listing:
            items = sorted(listing, key=lambda item: item.name)
        texts = [self._ignore_file(here, item.name) for name in IGNORE_FILES for item in items if item.name == name]
        rules = folder.rules.within(folder.path, texts) if texts else folder.rules
        folders: list[_Pending] = []
        for item in items:
            if item.name in NEVER_INDEXED:
                continue
            is_folder = item.is_dir(follow_symlinks=False)
            raw = folder.path + item.name + ("/" if is_folder else "")
            if self._selection.covers(raw, rules):
                continue
            is_included = self._selection.names(raw, above=folder.is_included)
            if is_folder:
                folders.append(_Pending(raw, rules, is_included))
            elif not is_included:
                continue
            elif item.is_symlink():
                self.listing.leave_out(printable_path(raw), "symlink")
            else:
                self._look(here, item, raw)
        return folders

    def _ignore_file(self, here: int, name: str) -> bytes:
        try:
            return _read(here, name, _IGNORE_FILE_BYTES)[0]
        except (FileNotFoundError, _Oversized, _NoFile):
            return b""
        except OSError as error:
            if error.errno == errno.ELOOP:
                return b""  # as git: one that is a symbolic link ignores nothing
            # The folder's failure. Without its rules, files that ``!`` takes back would be taken for ignored, and
            # removed; and others, which are ignored, would be sent to an engine.
            raise OSError(error.errno, f"its {name} cannot be read: {error.strerror}") from error

    def _look(self, here: int, item: os.DirEntry[str], raw: str) -> None:
        path = printable_path(raw)
        try:
            seen = self._sighting(here, item, raw, path)
        except _Oversized:
            seen = Sighting("", None, "oversized")
        except _NoFile:
            seen = Sighting("", None, "unreadable")
        except FileNotFoundError:
            return  # gone since it was listed: nothing else says that a file is
        except OSError as error:  # no permission, no descriptors left, a disk that fails
            self.listing.miss(path, error)
            return
        self.listing.add(path, seen, raw)

    def _sighting(self, here: int, item: os.DirEntry[str], raw: str, path: str) -> Sighting:
        status = item.stat(follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            raise _NoFile
        stamp = self._stamp(status)
        if self._selection.is_secret(raw):
            return Sighting(stamp, None, "secret")
        limit = self._selection.max_file_bytes
        reason = skipped_by_name(path, status.st_size, limit)
        if reason is not None:
            return Sighting(stamp, None, reason)
        known = self._known.get(path)
        if known is not None and stamp and known.stamp == stamp and _holds(known):
            return known
        self._check()
        data, before, after = _read(here, item.name, limit)
        stamp = self._stamp(before) if self._stamp(before) == self._stamp(after) else ""
        found = look_at(path, data)
        content_hash = None if found.skipped else hashlib.sha256(data).hexdigest()
        return Sighting(stamp, content_hash, found.skipped, found.encoding)

    def _stamp(self, status: os.stat_result) -> str:
        if max(status.st_mtime_ns, status.st_ctime_ns) >= self._quiet_since:
            return ""
        return f"{RULES_GENERATION}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}:{status.st_ino}"


def _holds(known: Sighting) -> bool:
    """Whether a sighting depends on the file's bytes alone, not on a limit or permission that may have changed."""
    return known.content_hash is not None or known.skipped in ("binary", "generated", "lfs", "undecodable")


def _nothing() -> None:
    pass


@contextmanager
def _opened_root(root: Path) -> Iterator[int]:
    try:
        descriptor = os.open(root, _FOLDER)
    except (FileNotFoundError, NotADirectoryError) as error:
        what = "no such folder" if isinstance(error, FileNotFoundError) else "not a folder"
        raise UsageError(f"{printable_path(str(root))}: {what}: give the path of a folder") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise SourceError(f"{printable_path(str(root))}: cannot be opened: {reason}") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _opened_folder(root: int, folder: str) -> Iterator[int]:
    """Open a folder below the root, one part of its path after the other, following no link."""
    here = os.dup(root)
    try:
        for part in folder.split("/") if folder else ():
            below = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = below
        yield here
    finally:
        os.close(here)


def _read(folder: int, name: str, limit: int) -> tuple[bytes, os.stat_result, os.stat_result]:
    """The bytes of a regular file and its status before and after; at most ``limit`` bytes are held."""
    descriptor = os.open(name, _FILE, dir_fd=folder)
    try:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            raise _NoFile
        if before.st_size > limit:
            raise _Oversized
        parts: list[bytes] = []
        held = 0
        while part := os.read(descriptor, min(_READ_SIZE, limit + 1 - held)):
            parts.append(part)
            held += len(part)
            if held > limit:
                raise _Oversized
        return b"".join(parts), before, os.fstat(descriptor)
    finally:
        os.close(descriptor)
