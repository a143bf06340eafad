"""The law suite as a pytest class: one test a law."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import trio

from embedkit import Ledger, Retry
from embedkit.testing.check import SEEDS, check_lane
from embedkit.testing.lane_under_test import LaneUnderTest, Settlement


class LaneContract:
    """One test a law, for a lane of yours. Name the subclass ``Test...``, and say how the lane is made.

    ::

        class TestMyLane(LaneContract):
            settlement = "queue"

            def make_lane(self, nursery, **options):
                return MyLane(nursery, **options)

    Attributes:
        settlement: What the lane's kind declares (law 2): ``provider`` or ``queue``.
        seeds: Each scenario is played under each of these schedules.
    """

    settlement: ClassVar[Settlement]
    seeds: ClassVar[Sequence[int]] = SEEDS

    def make_lane(
        self,
        nursery: trio.Nursery,
        *,
        capacity: int,
        reserve: int,
        lead: float,
        batch_share: float,
        max_queued: int,
        retry: Retry,
        ledger: Ledger,
    ) -> LaneUnderTest:
        """A new lane; see ``MakeLane``."""
        raise NotImplementedError("say how the lane is made that is to be held to the laws")

    def test_law_1_withdraw(self) -> None:
        """A queued ticket whose caller is cancelled leaves before ``cancel()`` returns."""
        self._check(1)

    def test_law_2_settle(self) -> None:
        """A slot is freed by the settlement that the lane's kind declares."""
        self._check(2)

    def test_law_3_notify_before_the_next_take(self) -> None:
        """A provider timeout is notified once, before another ticket is taken."""
        self._check(3)

    def test_law_4_fair_shares(self) -> None:
        """Engine time is shared: people first, up to their lead, and nobody starves."""
        self._check(4)

    def test_law_5_only_the_final_failure_counts(self) -> None:
        """Retries belong to the ticket and hold its slot."""
        self._check(5)

    def test_law_6_conservation(self) -> None:
        """At every instant each offered ticket is in one place."""
        self._check(6)

    def test_law_7_honest_clocks(self) -> None:
        """Three times are kept apart."""
        self._check(7)

    def _check(self, law: int) -> None:
        check_lane(self.make_lane, settlement=self.settlement, laws=[law], seeds=self.seeds)
