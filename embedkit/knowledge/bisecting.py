"""What is done about a batch that the engine refuses for its content: find the input at fault, and keep the rest.

An engine that refuses content and one that is broken can say the same thing (a 500 about NaN). So a control, a text
that every healthy engine embeds, is bought before the search and again after it: only then are the inputs that were
refused alone said to be at fault. If a control fails, nobody is: the failure is the engine's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import attrs

from embedkit.errors import ContentRefused

if TYPE_CHECKING:
    from embedkit.knowledge.indexing import Buy, Purchase

Batch = Sequence[tuple[bytes, str]]

# Short, plain, and in no window's way.
CONTROL = "control"


class Books(Protocol):
    """Who keeps what is bought, and account of what was spent."""

    async def keep(self, hashes: Sequence[bytes], purchase: Purchase) -> None:
        """Vectors for ``hashes``."""
        ...

    def spend(self, spent: Purchase | ContentRefused) -> None:
        """Account for a call that brought nothing to keep."""
        ...

    def is_over(self) -> bool:
        """Whether the repository's work has ended meanwhile: nothing more is to be offered."""
        ...


@attrs.frozen
class Bisection:
    """The search in one batch.

    Attributes:
        buy: Buys vectors: one ticket.
        books: Who keeps them.
    """

    buy: Buy
    books: Books

    async def run(self, batch: Batch, refused: ContentRefused) -> list[tuple[bytes, ContentRefused]]:
        """Keep all of ``batch`` but the inputs at fault, and return those, each with its refusal.

        Args:
            batch: Hashes and texts, which were refused together.
            refused: How.

        Raises:
            ContentRefused: The control is refused as well: the engine refuses everything.
            EmbedkitError: Another failure came in between. What was bought by then is kept.

        Cancellation:
            What was bought by then is kept.
        """
        self.books.spend(refused)
        await self._control()
        at_fault: list[tuple[bytes, ContentRefused]] = []
        for part in _parts(batch, refused.input_index):
            await self._search(part, at_fault)
        if at_fault and not self.books.is_over():
            await self._control()
            return at_fault
        return []

    async def _search(self, batch: Batch, at_fault: list[tuple[bytes, ContentRefused]]) -> None:
        if self.books.is_over():
            return
        try:
            purchase = await self.buy([text for _, text in batch])
        except ContentRefused as refused:
            self.books.spend(refused)
            if len(batch) == 1:
                at_fault.append((batch[0][0], refused))
                return
            for part in _parts(batch, refused.input_index):
                await self._search(part, at_fault)
            return
        await self.books.keep([hash_ for hash_, _ in batch], purchase)

    async def _control(self) -> None:
        self.books.spend(await self.buy([CONTROL]))


def _parts(batch: Batch, index: int | None) -> list[Batch]:
    """Smaller batches: the input that the engine named and the rest, else two halves; one input stays alone."""
    if len(batch) == 1:
        return [batch]
    if index is not None and index < len(batch):
        return [batch[index : index + 1], [*batch[:index], *batch[index + 1 :]]]
    middle = len(batch) // 2
    return [batch[:middle], batch[middle:]]
