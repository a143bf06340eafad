"""How indexing uses the lane that embeds, and how large its chunks are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embedkit.knowledge.chunking import ChunkLimits
from embedkit.knowledge.indexing.indexing import Width

if TYPE_CHECKING:
    from embedkit.engine.engine import Engine


def width_of(engine: Engine, batch_ceiling: int | None) -> Width:
    """What the settings, or the last run's timeouts (``batch_ceiling``), allow is all that one request holds."""
    bounds = (engine.settings.batch_for(), batch_ceiling)
    return Width(*engine.width(min(bound for bound in bounds if bound is not None)))


def limits_of(most: int) -> ChunkLimits:
    """Chunks of at most ``most`` tokens; not quite half of that is aimed at."""
    return ChunkLimits(target_tokens=most * 15 // 32, max_tokens=most)
