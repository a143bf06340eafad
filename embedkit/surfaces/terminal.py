"""Progress on a terminal: one line on standard error, rewritten in place; nothing where it is no terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from shutil import get_terminal_size
from typing import TextIO

import attrs

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


@contextmanager
def watching_additions(stream: TextIO, name: str) -> Iterator[Callable[[int, int], None] | None]:
    """A listener for ``Engine.index`` that draws on ``stream``, or ``None`` if nobody can see it."""
    if not stream.isatty():
        yield None
        return
    began_at = drawn_at = time.monotonic()

    def told(documents: int, vectors: int) -> None:
        nonlocal drawn_at
        now = time.monotonic()
        if now - drawn_at >= _INTERVAL:
            drawn_at = now
            stream.write(_CLEAR + added_line(name, documents, vectors, now - began_at)[: _width()])
            stream.flush()

    try:
        yield told
    finally:
        stream.write(_CLEAR)
        stream.flush()


def added_line(name: str, documents: int, vectors: int, seconds: float) -> str:
    """How much is stored of what comes, whose end nobody knows."""
    pace = f"  {vectors / seconds:,.0f} chunks/s" if vectors and seconds > 0 else ""
    return f"{name} {documents:,} documents, {vectors:,} vectors bought{pace}"


def _width() -> int:
    return max(get_terminal_size().columns - 1, 20)


@attrs.frozen
class _Running:
    """A repository that is being swept.

    Attributes:
        progress: Its last step; ``tally`` in it changes as the work goes on.
        began_at: When its first step was told.
        done_before: Documents that were stored already then.
    """

    progress: Progress
    began_at: float
    done_before: int

    @property
    def text(self) -> str:
        """Done of total."""
        return f"{self.progress.name} {self.progress.tally.done}/{self.progress.tally.documents}"

    def seconds_left(self, now: float) -> float:
        """At the pace of the documents that this run has stored so far."""
        tally = self.progress.tally
        stored = max(tally.done - self.done_before, 1)
        return tally.outstanding * (now - self.began_at) / stored


class ProgressLine:
    """Draws the state of the repositories that are being swept.

    Args:
        stream: A terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._running: dict[tuple[str, str], _Running] = {}
        self._drawn_at = 0.0

    def told(self, progress: Progress) -> None:
        """A step was made."""
        key = (progress.tenant, progress.name)
        now = time.monotonic()
        if progress.report is not None:
            self._running.pop(key, None)
            return
        if key not in self._running:
            self._running[key] = _Running(progress, now, progress.tally.done)
        if now - self._drawn_at >= _INTERVAL:
            self._drawn_at = now
            self._draw(now)

    def clear(self) -> None:
        """Take the line away."""
        self._stream.write(_CLEAR)
        self._stream.flush()

    def _draw(self, now: float) -> None:
        self._stream.write(_CLEAR + line_of(list(self._running.values()), now, _width()))
        self._stream.flush()


def line_of(running: Sequence[_Running], now: float, width: int) -> str:
    """How far each repository is, as many as there is room for, then how fast all of them go."""
    pace = _pace(running, now)
    shown: list[str] = []
    for count, one in enumerate(running):
        left = len(running) - count - 1
        more = f"  and {left} more" if left else ""
        if shown and len("  ".join([*shown, one.text])) + len(more) + len(pace) > width:
            shown.append(f"and {left + 1} more")
            break
        shown.append(one.text)
    return ("  ".join(shown) + pace)[:width]


def _pace(running: Sequence[_Running], now: float) -> str:
    embedded = sum(one.progress.tally.embedded for one in running)
    elapsed = max((now - one.began_at for one in running), default=0.0)
    if elapsed <= 0 or not embedded:
        return ""
    waited = sum(one.progress.tally.clocks.queue_wait for one in running)
    left = max((one.seconds_left(now) for one in running), default=0.0)
    return f"  {embedded / elapsed:,.0f} chunks/s  queued {waited:.1f} s  {left:.0f} s left"
