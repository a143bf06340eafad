"""Commits that share a transaction: what arrives while one is being written goes into the next, together.

There is one writer, and a transaction has a price of its own. Whoever commits still waits until its own batch is on
disk; it only does not wait for a transaction of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import attrs
import trio

from embedkit.errors import EmbedkitError
from embedkit.knowledge.storing.prepared import PreparedDocument

Commit = Callable[[Mapping[bytes, bytes], Sequence[PreparedDocument]], Awaitable[None]]


@attrs.define(eq=False)
class _Group:
    vectors: dict[bytes, bytes] = attrs.field(factory=dict)
    ready: list[PreparedDocument] = attrs.field(factory=list)
    is_written: bool = False
    error: EmbedkitError | None = None


class Gathering:
    """Groups the commits of one repository.

    Args:
        commit: One transaction.
    """

    def __init__(self, commit: Commit) -> None:
        self._commit = commit
        self._writing = trio.Lock()
        self._open = _Group()

    async def commit(self, vectors: Mapping[bytes, bytes], ready: Sequence[PreparedDocument]) -> None:
        """Commit, with whatever others commit meanwhile.

        Raises:
            EmbedkitError: The transaction failed, for all who shared it.

        Cancellation:
            It may still be written by another of its group; whoever must know shields the call.
        """
        group = self._open
        group.vectors.update(vectors)
        group.ready += ready
        async with self._writing:
            if not group.is_written:
                self._open = _Group()
                try:
                    await self._commit(group.vectors, group.ready)
                except EmbedkitError as error:
                    group.error = error
                # Not if Cancelled came out: then nothing was written, and the next of the group does it.
                group.is_written = True
        if group.error is not None:
            raise group.error
