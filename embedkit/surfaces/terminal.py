"""Progress on a terminal: one line on standard error, rewritten in place; nothing where it is no terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from shutil import get_terminal_size
from typing import TextIO

from embedkit.sweep.progress import OnProgress, Progress

_INTERVAL = 0.1
_CLEAR = "\r\x1b[K"


@contextmanager
def watching(stream: TextIO) -> Iterator[OnProgress | None]:
    """A listener that draws on ``stream``, or ``None`` if nobody can see it; the line is gone afterwards."""
    if not stream.isatty():
        yield None
        return
    line = ProgressLine(stream)
    try:
        yield line.told
    finally:
        line.clear()


class ProgressLine:
    """Draws the state of the repositories that are being swept.

    Args:
        stream: A terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._running: dict[tuple[str, str], tuple[float, Progress]] = {}
        self._drawn_at = 0.0

    def told(self, progress: Progress) -> None:
        """A step was made."""
        key = (progress.tenant, progress.name)
        now = time.monotonic()
        if progress.report is not None:
            self._running.pop(key, None)
            return
        began, _ = self._running.get(key, (now, progress))
        self._running[key] = (began, progress)
        if now - self._drawn_at >= _INTERVAL:
            self._drawn_at = now
            self._draw(now)

    def clear(self) -> None:
        """Take the line away."""
        self._stream.write(_CLEAR)
        self._stream.flush()

    def _draw(self, now: float) -> None:
        parts = [_part(now - began, progress) for began, progress in self._running.values()]
        text = "  |  ".join(parts)[: max(get_terminal_size().columns - 1, 20)]
        self._stream.write(_CLEAR + text)
        self._stream.flush()


def _part(elapsed: float, progress: Progress) -> str:
    work = progress.work
    text = f"{progress.name} {work.done}/{work.documents}"
    if elapsed <= 0 or not work.embedded:
        return text
    left = (work.documents - work.done) * elapsed / max(work.done, 1)
    return f"{text}  {work.embedded / elapsed:,.0f} chunks/s  queued {work.clocks.queue_wait:.1f} s  {left:.0f} s left"
