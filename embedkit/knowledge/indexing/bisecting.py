"""What is done about a batch that the engine refuses for its content: find the input at fault, and keep the rest.

An engine that refuses content and one that is broken can say the same thing (a 500 about NaN). So a control, a text
that every healthy engine embeds, is bought before the search and again after it: only then are the inputs that were
refused alone said to be at fault. If a control fails, nobody is: the failure is the engine's.

An input that is refused alone as too long is not at fault: its halves are searched in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import attrs

from embedkit.errors import ContentRefused

if TYPE_CHECKING:
    from embedkit.knowledge.indexing.buying import Purchase

Batch = Sequence[tuple[bytes, str]]
"""Inputs of one ticket: hash and text of each."""

CONTROL = "control"
"""Short, plain, and in no window's way."""

_TOO_LONG = "INPUT_TRUNCATED"


class Books(Protocol):
    """Who buys, keeps what is bought, and accounts for what was spent."""

    async def buy(self, batch: Batch) -> Purchase:
        """One ticket."""
        ...

    async def control(self) -> None:
        """Buy the control."""
        ...

    async def keep(self, batch: Batch, purchase: Purchase) -> None:
        """Store what was bought for ``batch``."""
        ...

    async def split(self, hash_: bytes) -> Sequence[Batch] | None:
        """Put the halves of an input in its place.

        Returns:
            Those that are to be bought; ``None``, and nothing was done, if it is too short to have halves.
        """
        ...

    def spend(self, spent: ContentRefused) -> None:
        """Account for a call that brought nothing to keep."""
        ...

    def is_over(self) -> bool:
        """Whether the repository's work has ended meanwhile: nothing more is to be offered."""
        ...


@attrs.frozen
class Bisection:
    """The search in one batch.

    Attributes:
        books: Who buys for it.
    """

    books: Books
    _at_fault: dict[bytes, ContentRefused] = attrs.field(init=False, factory=dict)

    async def run(self, batch: Batch, refused: ContentRefused) -> dict[bytes, ContentRefused]:
        """Keep all of ``batch`` but the inputs at fault, and return those, each with its refusal.

        Args:
            batch: What was refused together.
            refused: How.

        Raises:
            ContentRefused: The control is refused as well: the engine refuses everything.
            EmbedkitError: Another failure came in between. What was bought by then is kept.

        Cancellation:
            What was bought by then is kept.
        """
        self.books.spend(refused)
        await self.books.control()
        parts = await self._parts(batch, refused)
        # One input without parts is asked about again, now that the engine is known to be well.
        for part in [batch] if parts is None else parts:
            await self._search(part)
        if self._at_fault and not self.books.is_over():
            await self.books.control()
            return self._at_fault
        return {}

    async def _search(self, batch: Batch) -> None:
        if self.books.is_over():
            return
        try:
            purchase = await self.books.buy(batch)
        except ContentRefused as refused:
            self.books.spend(refused)
            await self._search_in(batch, refused)
        else:
            await self.books.keep(batch, purchase)

    async def _search_in(self, batch: Batch, refused: ContentRefused) -> None:
        parts = await self._parts(batch, refused)
        if parts is None:
            self._at_fault[batch[0][0]] = refused
            return
        for part in parts:
            await self._search(part)

    async def _parts(self, batch: Batch, refused: ContentRefused) -> Sequence[Batch] | None:
        """What to offer in place of ``batch``; ``None`` if it is one input that has no parts."""
        if len(batch) > 1:
            return _divided(batch, refused.input_index)
        return await self.books.split(batch[0][0]) if refused.code == _TOO_LONG else None


def _divided(batch: Batch, index: int | None) -> list[Batch]:
    """Smaller batches: the input that the engine named and the rest, else two halves."""
    if index is not None and index < len(batch):
        return [batch[index : index + 1], [*batch[:index], *batch[index + 1 :]]]
    middle = len(batch) // 2
    return [batch[:middle], batch[middle:]]
