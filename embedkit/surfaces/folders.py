"""Folders named on the command line, as the repositories of tenant ``default``.

A folder is named as it was given, not as links resolve it: ``current``, which points at one release and then at the
next, is one repository. The store remembers where each repository lies, so two folders of the same name stay apart.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs

from embedkit.errors import UsageError
from embedkit.knowledge.sources.source import printable_path
from embedkit.knowledge.storing.repositories import GIVEN_ROOT
from embedkit.settings import RepositorySettings, TenantSettings

TENANT = "default"

_COMPARED = 64  # documents of a repository whose folder has moved
_ENOUGH = 0.5  # of them


@attrs.frozen
class Known:
    """A repository of the tenant that the store holds.

    Attributes:
        name: Its name.
        root: Where it lay; ``None`` if that is not known.
        hashes: Reads SHA-256 of its documents, by path.
    """

    name: str
    root: str | None
    hashes: Callable[[], Mapping[str, str]] = attrs.field(repr=False)


def folders_of(paths: Sequence[Path]) -> list[Path]:
    """The folders, as absolute paths.

    Raises:
        UsageError: A path that is missing, is no folder, or is named twice.
    """
    found: list[Path] = []
    resolved: set[Path] = set()
    for path in paths:
        folder = _folder(path)
        if folder in resolved:
            raise UsageError(f"{_shown(path)} is named twice; name it once")
        resolved.add(folder)
        given = Path(os.path.abspath(path))
        found.append(given if given.resolve() == folder else folder)  # `link/..` is not where it seems to be
    return found


def tenant_of(folders: Sequence[Path], known: Sequence[Known] = (), *, name: str | None = None) -> TenantSettings:
    """One repository a folder, under the name that it has in the store, or else after its folder.

    A name that belongs to another folder is left to that: the next longer end of the path is taken, ``parent/name``. A
    folder that was moved keeps its name: the old place is gone, and half of what is stored stands in the new one.

    Args:
        folders: From ``folders_of``.
        known: What the store holds of the tenant.
        name: What the only folder is to be called.

    Raises:
        UsageError: ``name`` belongs to a folder that is there.
    """
    if name is not None:
        _refuse_anothers(name, folders[0], known)
        return _tenant({name: folders[0]})
    by_root = {item.root: item.name for item in known if item.root is not None}
    named: dict[str, Path] = {}
    for folder in folders:
        own = by_root.get(_shown(folder))
        if own is not None:
            named[own] = folder
    for folder in folders:
        if folder not in named.values():
            named[_free_name(folder, named, known)] = folder
    order = {folder: name for name, folder in named.items()}
    return _tenant({order[folder]: folder for folder in folders})


def _tenant(named: Mapping[str, Path]) -> TenantSettings:
    return TenantSettings(
        name=TENANT,
        repositories=tuple(RepositorySettings(name=name, path=folder) for name, folder in named.items()),
    )


def _refuse_anothers(name: str, folder: Path, known: Sequence[Known]) -> None:
    for item in known:
        if item.name == name and item.root not in (None, _shown(folder)) and os.path.isdir(str(item.root)):
            raise UsageError(
                f"{name} is the name of {item.root}; give another --name, or remove that with "
                f"`embedkit forget --tenant {TENANT} --repository {name}`"
            )


def _folder(path: Path) -> Path:
    try:
        folder = path.resolve(strict=True)
    except FileNotFoundError:
        raise UsageError(f"{_shown(path)} is not there; name a folder that is") from None
    except RuntimeError:  # what Python 3.12 and earlier make of ELOOP
        raise UsageError(f"{_shown(path)} is a loop of symbolic links; name a folder") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{_shown(path)} cannot be reached ({reason}); name a folder that can") from None
    if not folder.is_dir():
        raise UsageError(f"{_shown(path)} is no folder; name the folder it lies in")
    return folder


def _shown(path: Path) -> str:
    return printable_path(str(path))


def _free_name(folder: Path, taken: Mapping[str, Path], known: Sequence[Known]) -> str:
    held = {item.name: item for item in known}
    parts = [part for part in folder.parts if part != folder.anchor]
    for count in range(1, len(parts) + 1):
        name = printable_path("/".join(parts[-count:]))
        if name not in taken and (name not in held or _is_the_same(held[name], folder)):
            return name
    return _shown(folder)


def _is_the_same(known: Known, folder: Path) -> bool:
    """Whether a stored repository is what lies in ``folder`` now."""
    if known.root is None:
        return True  # from a store that did not remember it
    if known.root == GIVEN_ROOT or os.path.isdir(known.root):
        return False
    hashes = sorted(known.hashes().items())[:_COMPARED]
    same = sum(_hash_of(folder / path) == content_hash for path, content_hash in hashes)
    return same >= max(1, _ENOUGH * len(hashes))


def _hash_of(file: Path) -> str | None:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None
    except OSError:
        return None
