"""A scenario: one small play that can show that a lane breaks one law."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import attrs

from embedkit import NoRetry, Retry
from embedkit.testing.lane_under_test import Feature, Settlement
from embedkit.testing.stage import Stage

Play = Callable[[Stage], Awaitable[None]]
# Methods that a lane may have besides the three that it must.
Method = Literal["run_nowait", "refresh"]

TITLES = {
    1: "withdraw",
    2: "settle",
    3: "notify before the next take",
    4: "fair shares",
    5: "only the final failure counts",
    6: "conservation",
    7: "honest clocks",
}


@attrs.frozen
class Options:
    """What the lane of a scenario is made with; see ``MakeLane``."""

    capacity: int = 1
    reserve: int = 0
    lead: float = 30.0
    batch_share: float = 1.0
    max_queued: int = 1024
    retry: Retry = attrs.field(factory=NoRetry)


@attrs.frozen
class Scenario:
    """One play.

    Attributes:
        law: Which law it is about: 1 to 7.
        name: For reports.
        play: The play; it raises ``LawBroken``.
        options: Of the lane.
        settlement: The kind of lane it is about; ``None``: both.
        passes: What may come out of the lane's nursery: the play is about it.
        conserves: Whether the totals are checked between any two steps of tasks.
        needs: What a lane must have to be judged by it.
        calls: Methods that a lane must have to be judged by it.
    """

    law: int
    name: str
    play: Play
    options: Options = Options()
    settlement: Settlement | None = None
    passes: type[BaseException] | None = None
    conserves: bool = False
    needs: frozenset[Feature] = frozenset()
    calls: frozenset[Method] = frozenset()


class Law:
    """Collects the scenarios of one law, as a decorator."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.scenarios: list[Scenario] = []

    def scenario(
        self,
        name: str,
        *,
        settlement: Settlement | None = None,
        passes: type[BaseException] | None = None,
        conserves: bool = False,
        needs: tuple[Feature, ...] = (),
        calls: tuple[Method, ...] = (),
        **options: Any,
    ) -> Callable[[Play], Play]:
        """The decorated play is a scenario of this law, on a lane made with ``options``."""

        def add(play: Play) -> Play:
            made = Scenario(
                self.number,
                name,
                play,
                Options(**options),
                settlement,
                passes,
                conserves,
                frozenset(needs),
                frozenset(calls),
            )
            self.scenarios.append(made)
            return play

        return add
