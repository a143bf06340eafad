"""What was done for one repository in one run."""

from __future__ import annotations

from collections import Counter

import attrs

from embedkit.clocks import ZERO, Clocks
from embedkit.errors import EmbedkitError
from embedkit.knowledge.sources.source import LeftOut


@attrs.define
class Tally:
    """What was done for one repository, so far.

    Attributes:
        documents: Documents at this revision.
        done: Those of them that are stored at this revision.
        skipped: Files left out, by reason.
        left_out: The same, each by name.
        recoded: Documents that were in another encoding than UTF-8, by encoding.
        embedded: Vectors bought.
        reused: Chunks of changed documents whose vector was there already.
        deleted: Chunks removed.
        provider_calls: Attempts made.
        clocks: Sums over tickets.
        failures: What ended the buying: the first failure, and those of tickets that were out then.
        damaged: Failures of single files, which end nothing: all others are stored.
        too_large: Inputs of the smallest ticket of several that timed out, or that was accepted only in parts;
            ``None``: none was. A ticket of one says nothing of how many are too many.
        sliced: Whether the slice was spent before the work.
    """

    documents: int = 0
    done: int = 0
    skipped: Counter[str] = attrs.field(factory=Counter)
    left_out: list[LeftOut] = attrs.field(factory=list)
    recoded: Counter[str] = attrs.field(factory=Counter)
    embedded: int = 0
    reused: int = 0
    deleted: int = 0
    provider_calls: int = 0
    clocks: Clocks = ZERO
    failures: list[EmbedkitError] = attrs.field(factory=list)
    damaged: list[EmbedkitError] = attrs.field(factory=list)
    too_large: int | None = None
    sliced: bool = False

    @property
    def outstanding(self) -> int:
        """Documents that are not stored at this revision yet."""
        return self.documents - self.done
