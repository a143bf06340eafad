"""Whether one repository's work is to stop: a failure, or the slice that is spent. One object says so, and why.

What is out goes on, and what it brings is kept; nothing more is offered.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from embedkit.clocks import ZERO
from embedkit.errors import EmbedkitError
from embedkit.knowledge.indexing.tally import Tally


class Stop:
    """The one writer of ``Tally.failures`` and ``Tally.sliced``.

    Args:
        tally: Where they stand.
        slice_ends_at: Instant after which no further batch is offered, once one has been.
    """

    def __init__(self, tally: Tally, slice_ends_at: float) -> None:
        self.slice_ends_at = slice_ends_at
        self._tally = tally
        self._feeding = trio.CancelScope()
        self._has_offered = False

    @property
    def is_called(self) -> bool:
        """Whether the work is to stop."""
        return bool(self._tally.failures) or self._tally.sliced

    def begin_round(self) -> trio.CancelScope:
        """The scope in which this round's batches are made; a failure or a spent slice cancels it."""
        self._feeding = trio.CancelScope()
        return self._feeding

    def offered(self) -> None:
        """A batch is offered: the slice may end from now on."""
        self._has_offered = True

    def fail(self, error: EmbedkitError) -> None:
        """A failure ends the feeding; it does not end what is out."""
        self._tally.failures.append(error)
        self._feeding.cancel()

    def must_yield(self) -> bool:
        """Whether to yield to other repositories; never before the first batch. It is remembered."""
        if self._has_offered and trio.current_time() >= self.slice_ends_at:
            self.spend_slice()
        return self.is_called

    def spend_slice(self) -> None:
        """The slice has ended."""
        self._tally.sliced = True
        self._feeding.cancel()

    @contextmanager
    def containing(self) -> Iterator[None]:
        """What fails in the block is the repository's failure; the calls that it cost are counted."""
        try:
            yield
        except EmbedkitError as error:
            self._tally.clocks += error.clocks or ZERO
            self._tally.provider_calls += error.attempts
            self.fail(error)
