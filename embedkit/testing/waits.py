"""Waits for "A is on the wire, B is queued" that do not poll.

They wait until no task can move and then look once. In virtual time they cost nothing; with real sockets "no task can
move" is a moment between two packets, so wait for the engine first (``ScriptedEngine.wait_for_requests``).
"""

from __future__ import annotations

import trio
from trio.testing import wait_all_tasks_blocked

from embedkit.testing.lane_under_test import LaneUnderTest, TotalsUnderTest


async def wait_until_queued(lane: LaneUnderTest, count: int) -> None:
    """Wait until nothing moves any more; then ``count`` tickets must be queued in ``lane``.

    Raises:
        AssertionError: There are fewer, or more: no further waiting would change that.

    Cancellation:
        Nothing changes.
    """
    _check("queued", (await _at_rest(lane)).queued, count)


async def wait_until_in_flight(lane: LaneUnderTest, count: int) -> None:
    """Wait until nothing moves any more; then ``count`` tickets of ``lane`` must be in flight.

    Raises:
        AssertionError: There are fewer, or more.

    Cancellation:
        Nothing changes.
    """
    _check("in flight", (await _at_rest(lane)).in_flight, count)


async def _at_rest(lane: LaneUnderTest) -> TotalsUnderTest:
    await wait_all_tasks_blocked()
    return lane.statistics().totals


def _check(word: str, found: int, expected: int) -> None:
    if found != expected:
        raise AssertionError(f"{found} tickets are {word} at {trio.current_time():g} s, not {expected}")
