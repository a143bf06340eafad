"""What indexing needs of whoever sells vectors, and vectors as they are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from embedkit.clocks import Clocks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Purchase(Protocol):
    """What came of one ticket."""

    @property
    def vectors(self) -> NDArray[np.float32]:
        """``(n, dimension) float32``, finite."""
        ...

    @property
    def clocks(self) -> Clocks:
        """The ticket's times."""
        ...

    @property
    def attempts(self) -> int:
        """Provider calls it took."""
        ...


class Buy(Protocol):
    """Buys vectors through a lane: one ticket."""

    async def __call__(self, texts: Sequence[str]) -> Purchase:
        """Embed ``texts``; EmbedkitError, with the ticket's clocks and attempts, if it cannot be."""
        ...


def unit_rows(vectors: NDArray[np.float32]) -> list[bytes]:
    """Rows of unit length, as bytes; a zero row stays one."""
    import numpy as np

    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0).astype("<f4", copy=False)
    return [row.tobytes() for row in unit]
