"""What a sweep tells whoever watches it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from embedkit.knowledge.indexing.tally import Tally
    from embedkit.sweep.outcome import RepositoryReport


@attrs.frozen
class Progress:
    """One step of one repository.

    Attributes:
        tenant: Whose.
        name: Which repository.
        tally: What was done so far; changes as the work goes on.
        report: How it ended, once it has.
    """

    tenant: str
    name: str
    tally: Tally
    report: RepositoryReport | None = None


OnProgress = Callable[[Progress], object]
