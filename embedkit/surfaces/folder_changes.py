"""What changed in the folders that are watched, as far as it can matter.

A watch holds on to a folder, not to its name: of one that is deleted and made again it tells nothing more, for ever. So
each root's identity is looked at now and then, and the watch is begun anew when it is another's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import trio

from embedkit.errors import UsageError
from embedkit.knowledge.sources.relevance import Relevance
from embedkit.knowledge.sources.source import printable_path

Watch = Callable[..., AsyncGenerator[set[tuple[Any, str]], None]]
Changed = set[Path]
"""Roots, as they are watched."""

# Editors write a file in several steps: take them as one change.
_DEBOUNCE_MS = 400
# The watching thread looks so often whether it is still wanted; its own five seconds are too long for a Ctrl-C.
_LOOK_UP_MS = 200
_LOOK_AGAIN_SECONDS = 1.0

_Identity = tuple[int, int] | None


def watcher() -> Watch:
    """The library that watches.

    Raises:
        UsageError: It is not installed.
    """
    try:
        import watchfiles
    except ImportError:
        raise UsageError("`embedkit watch` needs the watch extra: pip install 'embedkit[watch]'") from None
    return watchfiles.awatch


async def tell_changes(
    watch: Watch, watched: Sequence[Relevance], store: Path, send: trio.MemorySendChannel[Changed]
) -> None:
    """Send the roots in which something has changed that may be indexed, until cancelled.

    Cancellation:
        What was sent was sent.
    """
    # The store's own files, its log and index among them: their names begin with its.
    own = str(await trio.Path(store).resolve())
    roots = [item.root for item in watched]
    async with send:
        while True:
            seen = _identities(roots)
            here = [item for item in watched if seen[item.root] is not None]
            async with trio.open_nursery() as nursery:
                if here:
                    nursery.start_soon(_forward, watch, here, own, send)
                replaced = await _replaced(seen)
                nursery.cancel_scope.cancel()
            if replaced:
                send.send_nowait(replaced)


async def _replaced(seen: Mapping[Path, _Identity]) -> Changed:
    """Wait until a root is another folder than it was; those that are there again."""
    while True:
        await trio.sleep(_LOOK_AGAIN_SECONDS)
        now = _identities(seen)
        if now != dict(seen):
            for root in seen:
                if now[root] is None and seen[root] is not None:
                    sys.stderr.write(
                        f"embedkit: {printable_path(str(root))} is gone; waiting until it is there again\n"
                    )
            return {root for root in seen if now[root] is not None and now[root] != seen[root]}


def _identities(roots: Sequence[Path] | Mapping[Path, _Identity]) -> dict[Path, _Identity]:
    return {root: _identity(root) for root in roots}


def _identity(root: Path) -> _Identity:
    try:
        status = os.stat(root)
    except OSError:
        return None
    return (status.st_dev, status.st_ino)


async def _forward(watch: Watch, watched: Sequence[Relevance], own: str, send: trio.MemorySendChannel[Changed]) -> None:
    options: dict[str, Any] = {"watch_filter": None, "debounce": _DEBOUNCE_MS, "rust_timeout": _LOOK_UP_MS}
    try:
        async with aclosing(watch(*(item.root for item in watched), **options)) as changes:
            async for some in changes:
                paths = [Path(path) for _, path in some if not path.startswith(own)]
                # Ignore files are read, and a tenant's patterns matched: not in the event loop.
                changed = await trio.to_thread.run_sync(partial(_touched, watched, paths))
                if changed:
                    send.send_nowait(changed)
    except FileNotFoundError:
        return  # a root went away before it was watched: it is looked for


def _touched(watched: Sequence[Relevance], paths: Sequence[Path]) -> Changed:
    return {item.root for item in watched if item.any_of(paths)}
