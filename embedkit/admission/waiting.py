"""What the pure files need to know of a ticket. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal, Protocol

Priority = Literal["interactive", "batch", "probe"]
CLASSES: tuple[Priority, ...] = ("interactive", "batch", "probe")


class Waiting(Hashable, Protocol):
    """A waiting ticket as ``order`` and ``room`` see it; identity is what counts."""

    @property
    def priority(self) -> Priority:
        """Its class."""
        ...

    @property
    def tenant(self) -> str | None:
        """Whose it is."""
        ...

    @property
    def weight(self) -> int:
        """Units of the lane it takes."""
        ...

    @property
    def offered_at(self) -> float:
        """When it was offered."""
        ...
