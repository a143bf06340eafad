"""How indexing uses the lane that embeds, and how large its chunks are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embedkit.knowledge.chunking import ChunkLimits
from embedkit.knowledge.indexing.indexing import Width

if TYPE_CHECKING:
    from embedkit.engine.engine import Engine


def width_of(engine: Engine, batch_ceiling: int | None) -> Width:
    """As many tickets as the ceiling lets be in flight at once, and one behind each.

    More would keep no slot busier, and each of them would find out by itself that an engine has gone. A batch is
    one request: what the provider's kind or the last run's timeouts (``batch_ceiling``) allow is all that it holds.
    """
    bounds = (engine.settings.batch_for(), batch_ceiling, engine.provider().max_inputs)
    batch = min(bound for bound in bounds if bound is not None)
    if not engine.is_queued():
        return Width(batch, engine.settings.provider().capacity)
    lane = engine.lane().statistics()
    weight = engine.provider().weight
    if weight(batch) > 1 and lane.capacity > 1:
        batch = min(batch, lane.ceiling)
    return Width(batch, 2 * max(lane.ceiling // weight(batch), 1))


def limits_of(most: int) -> ChunkLimits:
    """Chunks of at most ``most`` tokens; not quite half of that is aimed at."""
    return ChunkLimits(target_tokens=most * 15 // 32, max_tokens=most)
