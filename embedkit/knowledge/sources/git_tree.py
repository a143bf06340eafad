"""What a commit of a git repository holds: its files, and one text at a time out of it.

Objects are read from the repository's packs; nothing is checked out. A blob's size is read from its header, so that a
huge one is left out without ever being inflated.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import weakref
import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import attrs

from embedkit.errors import SourceError
from embedkit.knowledge.model import Document
from embedkit.knowledge.sources.filters import (
    NEVER_INDEXED,
    RULES_GENERATION,
    Look,
    look_at,
    skipped_by_name,
)
from embedkit.knowledge.sources.selection import Selection
from embedkit.knowledge.sources.source import Entry, Listed, Listing, Sighting, printable_path
from embedkit.knowledge.sources.texts import document_of

if TYPE_CHECKING:
    from dulwich.object_store import PackBasedObjectStore
    from dulwich.objects import ObjectID
    from dulwich.repo import Repo

_MOST_FILES: Final = 1_000_000
_SUBMODULE: Final = 0o160000
_BLOB, _OFFSET_DELTA, _NAMED_DELTA = 3, 6, 7
_HEADER = 128  # bytes of a packed object that surely hold its header and the first of its data


@attrs.frozen(eq=False, kw_only=True)
class GitSnapshot(Listed):
    """One commit of a repository. Keeps the repository open until it is closed or collected."""

    repository: Repo = attrs.field(repr=False)
    # dulwich's packs keep a place in their file: one read at a time.
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        weakref.finalize(self, self.repository.close)

    def close(self) -> None:
        """Close the repository: nothing more can be read."""
        self.repository.close()

    def read(self, entry: Entry) -> Document:
        """The text of one entry; see ``Snapshot.read``."""
        try:
            with self._lock:
                data = _raw(self.repository, entry.locator)
        except Exception as error:  # dulwich raises many kinds for an object that is gone or torn
            raise SourceError(f"{entry.path}: is no longer in the git repository: sync again") from error
        return document_of(entry.path, entry.content_hash, data)


class TreeWalk:
    """One walk over the tree of a commit, and what it has found so far."""

    def __init__(
        self,
        repository: Repo,
        selection: Selection,
        known: Mapping[str, Sighting],
        check: Callable[[], object],
    ) -> None:
        self._repository = repository
        self._selection = selection
        self._rules = selection.rules()
        self._known = known
        self._check = check
        self.listing = Listing()

    def run(self, commit: ObjectID) -> None:
        """Look at every file of the commit's tree.

        Raises:
            SourceError: It has more files than can be listed.
            Exception: The commit or its own tree cannot be read, in one of dulwich's many ways.
        """
        from dulwich.objects import Commit

        head = self._repository[commit]
        assert isinstance(head, Commit)
        pending: list[tuple[str, ObjectID, bool]] = [("", head.tree, False)]
        while pending:
            folder, tree_id, is_included = pending.pop()
            self._check()
            # A tree that holds another twice, which holds another twice, has more files than anybody can count.
            if len(self.listing.sightings) + len(pending) > _MOST_FILES:
                raise SourceError(f"it has more than {_MOST_FILES:,} files")
            try:
                pending.extend(self._list(folder, tree_id, is_included))
            except Exception as error:
                if not folder:
                    raise
                self.listing.lose(printable_path(folder), error)

    def _list(self, folder: str, tree_id: ObjectID, above: bool) -> list[tuple[str, ObjectID, bool]]:
        """Look at the files of one tree; the trees in it are returned."""
        from dulwich.objects import Tree

        tree = self._repository[tree_id]
        if not isinstance(tree, Tree):
            raise SourceError(f"{printable_path(folder)}: is no folder in the git repository")
        folders = []
        for item in tree.items():
            assert item.path is not None
            assert item.mode is not None
            assert item.sha is not None
            name = os.fsdecode(item.path)
            if name in NEVER_INDEXED:
                continue
            is_folder = stat.S_ISDIR(item.mode)
            raw = f"{folder}{name}/" if is_folder else folder + name
            if name in ("", ".", "..") or "/" in name:
                # It would lead out of the root if it were a file's name.
                self.listing.leave_out(printable_path(raw), "unreadable")
                continue
            if self._selection.covers(raw, self._rules):
                continue
            is_included = self._selection.names(raw, above=above)
            if is_folder:
                folders.append((raw, item.sha, is_included))
            elif not is_included:
                continue
            elif stat.S_ISLNK(item.mode) or stat.S_IFMT(item.mode) == _SUBMODULE:
                self.listing.leave_out(printable_path(raw), "symlink")
            else:
                self._look(raw, item.sha)
        return folders

    def _look(self, raw: str, blob: ObjectID) -> None:
        path = printable_path(raw)
        if path in self.listing.sightings:
            return  # a malformed tree that names a file twice: git, too, takes the first
        try:
            seen = self._sighting(raw, path, blob)
        except Exception as error:  # dulwich raises many kinds for an object that is gone or torn
            self.listing.miss(path, error)
            return
        self.listing.add(path, seen, blob.decode())

    def _sighting(self, raw: str, path: str, blob: ObjectID) -> Sighting:
        stamp = f"{RULES_GENERATION}:{blob.decode()}"
        if self._selection.is_secret(raw):
            return Sighting(stamp, None, "secret")
        known = self._known.get(path)
        if known is not None and known.stamp == stamp and known.skipped not in ("oversized", "secret"):
            return known
        self._check()
        limit = self._selection.max_file_bytes
        size = blob_size(self._repository.object_store, blob)
        reason = skipped_by_name(path, size, limit)
        if reason is not None:
            return Sighting(stamp, None, reason)
        data = _raw(self._repository, blob.decode())
        reason = skipped_by_name(path, len(data), limit)
        found = look_at(path, data) if reason is None else Look(reason)
        content_hash = None if found.skipped else hashlib.sha256(data).hexdigest()
        return Sighting(stamp, content_hash, found.skipped, found.encoding)


def _raw(repository: Repo, blob: str) -> bytes:
    from dulwich.objects import ObjectID

    return repository.object_store.get_raw(ObjectID(blob.encode()))[1]


def blob_size(store: PackBasedObjectStore, blob: ObjectID) -> int | None:
    """Bytes of a blob, from its header alone; ``None`` where that does not say."""
    for pack in store.packs:
        try:
            offset = pack.index.object_offset(blob)
        except KeyError:
            continue
        with open(pack.data.path, "rb") as file:
            file.seek(offset)
            return _packed_size(file.read(_HEADER), len(blob) // 2)
    return _loose_size(store, blob)


def _loose_size(store: PackBasedObjectStore, blob: ObjectID) -> int | None:
    path = os.path.join(getattr(store, "path", ""), os.fsdecode(blob[:2]), os.fsdecode(blob[2:]))
    try:
        with open(path, "rb") as file:
            head = zlib.decompressobj().decompress(file.read(_HEADER), 32)
    except (OSError, zlib.error):
        return None
    kind, _, rest = head.partition(b"\0")[0].partition(b" ")
    return int(rest) if kind == b"blob" and rest.isdigit() else None


def _packed_size(head: bytes, id_size: int) -> int | None:
    """The size of a packed blob: in its own header or, for a delta, the second number of the delta."""
    kind = head[0] >> 4 & 7
    own, rest = _number(head, shift=4)
    if kind == _BLOB:
        return own
    if kind == _NAMED_DELTA:
        rest = rest[id_size:]
    elif kind == _OFFSET_DELTA:
        rest = _number(rest)[1]
    else:
        return None
    try:
        delta = zlib.decompressobj().decompress(rest, 32)
    except zlib.error:
        return None
    return _number(_number(delta)[1])[0]


def _number(data: bytes, shift: int = 7) -> tuple[int, bytes]:
    """A little-endian number of seven bits a byte (of the first byte: ``shift`` bits), and what follows it."""
    value = data[0] & ((1 << shift) - 1)
    used = 1
    while data[used - 1] & 0x80:
        value |= (data[used] & 0x7F) << shift
        shift += 7
        used += 1
    return value, data[used:]
