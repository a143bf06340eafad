"""Our two kinds of lane, held to the seven laws by the public suite."""

from __future__ import annotations

from typing import Any

import trio
from our_lanes import maker

from embedkit import Lane
from embedkit.testing import LaneContract


class TestCapacityLane(LaneContract):
    settlement = "provider"

    def make_lane(self, nursery: trio.Nursery, **options: Any) -> Lane[None]:
        return maker("provider")(nursery, **options)


class TestBudgetLane(LaneContract):
    settlement = "queue"

    def make_lane(self, nursery: trio.Nursery, **options: Any) -> Lane[None]:
        return maker("queue")(nursery, **options)
