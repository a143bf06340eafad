"""How long a tool may take: every limit in it ends before the outermost one does, and each says its name. Pure."""

from __future__ import annotations

from typing import Final

import attrs

from embedkit.settings import Limit

MARGIN_SECONDS: Final = 5.0
"""Left between the inner limits and the outermost one: for programs to be ended, and for the answer to be written."""

_MARGIN_SHARE: Final = 0.1


@attrs.frozen
class Limits:
    """The limits of one call.

    Attributes:
        outermost: What the whole call may take.
    """

    outermost: Limit

    def within(self, asked: float | Limit | None = None) -> Limit:
        """``asked``, or what is left of the outermost limit where that is less.

        Args:
            asked: The caller's, or a setting's; without one, the outermost limit alone counts.
        """
        whole = self.outermost.seconds
        inner = Limit(whole - min(MARGIN_SECONDS, whole * _MARGIN_SHARE), f"{self.outermost.rung}, less its margin")
        if asked is None:
            return inner
        limit = asked if isinstance(asked, Limit) else Limit(asked, "the request's deadline")
        return limit if limit.seconds <= inner.seconds else inner
