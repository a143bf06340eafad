"""Folders named on the command line, as the repositories of tenant ``default``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from embedkit.errors import UsageError
from embedkit.knowledge.sources.source import printable_path
from embedkit.settings import RepositorySettings, TenantSettings

TENANT = "default"


def tenant_of(paths: Sequence[Path]) -> TenantSettings:
    """One repository a path, named after its folder; the later of two of the same name is ``parent/name``.

    Raises:
        UsageError: A path that is missing, is no folder, or is named twice.
    """
    named: dict[str, Path] = {}
    for path in paths:
        folder = _folder(path)
        if folder in named.values():
            raise UsageError(f"{_shown(path)} is named twice; name it once")
        named[_free_name(folder, named)] = folder
    return TenantSettings(
        name=TENANT,
        repositories=tuple(RepositorySettings(name=name, path=folder) for name, folder in named.items()),
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


def _free_name(folder: Path, taken: dict[str, Path]) -> str:
    parts = [part for part in folder.parts if part != folder.anchor]
    for count in range(1, len(parts) + 1):
        name = printable_path("/".join(parts[-count:]))
        if name not in taken:
            return name
    return printable_path(str(folder))
