"""Until when an engine asked everybody to stay away. It binds who would be dispatched, and who would try again."""

from __future__ import annotations

import math


class Hold:
    """One engine's hint.

    Attributes:
        until: Instant before which nothing is sent. A later, shorter hint does not shorten it.
    """

    __slots__ = ("until",)

    def __init__(self) -> None:
        self.until = -math.inf

    def extend(self, until: float) -> None:
        """The engine asked to be left alone until then."""
        self.until = max(self.until, until)
