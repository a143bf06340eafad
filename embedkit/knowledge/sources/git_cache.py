"""The folder in which fetched repositories are kept: one fetch at a time into each, and nothing in it that can stick.

Whoever holds a repository's lock is alone with it, in this process and in others. So a lock file of dulwich's own that
is found then is what a process that was killed left behind, and is taken away.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

MOST_PACKS: Final = 8
"""Each fetch of a branch that has moved leaves a pack; with more than these, what is in use is made one."""

_LOOK_UP_SECONDS = 0.05


@contextmanager
def locked(path: Path, check: Callable[[], object]) -> Iterator[None]:
    """Hold the lock at ``path``; while another process has it, ``check`` is called and may raise.

    Raises:
        OSError: The lock cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        remove(path)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                check()
                time.sleep(_LOOK_UP_SECONDS)
        yield
    finally:
        os.close(descriptor)


def drop_stale_locks(folder: Path) -> None:
    """Take away the lock files of a repository whose lock we hold."""
    for above, folders, files in os.walk(folder):
        if "objects" in folders:
            folders.remove("objects")  # held by nobody: objects and packs are written beside, and renamed
        for name in (*files, *folders):
            if name.endswith(".lock"):
                remove(Path(above, name))


def packs_in(folder: Path) -> int:
    """How many packs a repository has."""
    try:
        return sum(name.endswith(".pack") for name in os.listdir(folder / "objects" / "pack"))
    except OSError:
        return 0  # damaged: whoever opens it sees that


def repack(folder: Path, check: Callable[[], object]) -> None:
    """One pack in place of all: of what the repository's refs need. Earlier heads, and all that only they need, go.

    Raises:
        Exception: Whatever dulwich raises.
    """
    from dulwich.gc import garbage_collect
    from dulwich.repo import Repo

    with Repo(str(folder)) as repository:
        garbage_collect(repository, prune=True, grace_period=None, progress=lambda _: _void(check()))


def _void(_: object) -> None:
    pass


def remove(path: Path) -> None:
    """Take away a file or folder, whatever it is.

    Raises:
        OSError: It cannot be removed.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
        return
    with suppress(FileNotFoundError):
        path.unlink()
