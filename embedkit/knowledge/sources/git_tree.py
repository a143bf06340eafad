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
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import attrs

from embedkit.errors import SourceError
from embedkit.knowledge.model import Document, SkipReason
from embedkit.knowledge.sources.filters import (
    NEVER_INDEXED,
    RULES_GENERATION,
    decode,
    skipped_by_content,
    skipped_by_name,
)
from embedkit.knowledge.sources.source import Entry, Sighting, Unread, UnreadSoFar, printable_path

if TYPE_CHECKING:
    from dulwich.object_store import PackBasedObjectStore
    from dulwich.objects import ObjectID
    from dulwich.repo import Repo

_MOST_FILES: Final = 1_000_000
_SUBMODULE: Final = 0o160000
_BLOB, _OFFSET_DELTA, _NAMED_DELTA = 3, 6, 7
_HEADER = 128  # bytes of a packed object that surely hold its header and the first of its data


@attrs.frozen(eq=False)
class GitSnapshot:
    """One commit of a repository. Keeps the repository open until it is closed or collected."""

    _repository: Repo = attrs.field(repr=False)
    revision: str
    entries: tuple[Entry, ...] = attrs.field(repr=False)
    skipped: Mapping[SkipReason, int]
    sightings: Mapping[str, Sighting] = attrs.field(repr=False)
    unread: Unread = attrs.field(default=Unread(), repr=False)
    # dulwich's packs keep a place in their file: one read at a time.
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        weakref.finalize(self, self._repository.close)

    def close(self) -> None:
        """Close the repository: nothing more can be read."""
        self._repository.close()

    def read(self, entry: Entry) -> Document:
        """The text of one entry; see ``Snapshot.read``."""
        try:
            with self._lock:
                data = _raw(self._repository, entry.locator)
        except Exception as error:  # dulwich raises many kinds for an object that is gone or torn
            raise SourceError(f"{entry.path}: is no longer in the git repository: sync again") from error
        text, lossy = decode(data)
        return Document(entry.path, entry.content_hash, text, lossy)


class TreeWalk:
    """One walk over the tree of a commit, and what it has found so far."""

    def __init__(
        self,
        repository: Repo,
        max_file_bytes: int,
        known: Mapping[str, Sighting],
        check: Callable[[], object],
    ) -> None:
        self._repository = repository
        self._limit = max_file_bytes
        self._known = known
        self._check = check
        self.entries: list[Entry] = []
        self.skipped: Counter[SkipReason] = Counter()
        self.sightings: dict[str, Sighting] = {}
        self.unread = UnreadSoFar()

    def run(self, commit: ObjectID) -> None:
        """Look at every file of the commit's tree.

        Raises:
            SourceError: It has more files than can be listed.
            Exception: The commit or its own tree cannot be read, in one of dulwich's many ways.
        """
        from dulwich.objects import Commit

        head = self._repository[commit]
        assert isinstance(head, Commit)
        pending: list[tuple[str, ObjectID]] = [("", head.tree)]
        while pending:
            folder, tree_id = pending.pop()
            self._check()
            # A tree that holds another twice, which holds another twice, has more files than anybody can count.
            if len(self.sightings) + len(pending) > _MOST_FILES:
                raise SourceError(f"it has more than {_MOST_FILES:,} files")
            try:
                pending.extend(self._list(folder, tree_id))
            except Exception:
                if not folder:
                    raise
                self.skipped["unreadable"] += 1
                self.unread.folders.append(printable_path(folder))

    def _list(self, folder: str, tree_id: ObjectID) -> list[tuple[str, ObjectID]]:
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
            if name in ("", ".", "..") or "/" in name:
                self.skipped["unreadable"] += 1  # would lead out of the root if it were a file's name
            elif stat.S_ISDIR(item.mode):
                folders.append((f"{folder}{name}/", item.sha))
            elif stat.S_ISLNK(item.mode) or stat.S_IFMT(item.mode) == _SUBMODULE:
                self.skipped["symlink"] += 1
            else:
                self._look(folder + name, item.sha)
        return folders

    def _look(self, raw: str, blob: ObjectID) -> None:
        path = printable_path(raw)
        if path in self.sightings:
            return  # a malformed tree that names a file twice: git, too, takes the first
        try:
            seen = self._sighting(path, blob)
        except Exception:  # dulwich raises many kinds for an object that is gone or torn
            seen = Sighting("", None, "unreadable")
            self.unread.paths.add(path)
        self.sightings[path] = seen
        if seen.content_hash is not None:
            self.entries.append(Entry(path, seen.content_hash, blob.decode()))
        elif seen.skipped is not None:
            self.skipped[seen.skipped] += 1

    def _sighting(self, path: str, blob: ObjectID) -> Sighting:
        stamp = f"{RULES_GENERATION}:{blob.decode()}"
        known = self._known.get(path)
        if known is not None and known.stamp == stamp and known.skipped != "oversized":
            return known
        self._check()
        size = blob_size(self._repository.object_store, blob)
        reason = skipped_by_name(path, size, self._limit)
        if reason is not None:
            return Sighting(stamp, None, reason)
        data = _raw(self._repository, blob.decode())
        reason = skipped_by_name(path, len(data), self._limit) or skipped_by_content(path, data)
        return Sighting(stamp, None if reason else hashlib.sha256(data).hexdigest(), reason)


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
