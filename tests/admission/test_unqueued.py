"""The way without a lane: what it keeps open between calls, and that all of it is closed."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from embedkit.activity.ledger import Ledger
from embedkit.admission.policy import NoRetry
from embedkit.admission.ticket import Ticket
from embedkit.admission.unqueued import Unqueued
from embedkit.errors import LaneClosed


@attrs.define
class Line:
    """Connections that are numbered as they open; the closing of some fails."""

    breaks: frozenset[int] = frozenset()
    opened: int = 0
    closed: set[int] = attrs.field(factory=set)

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[int]:
        number = self.opened
        self.opened += 1
        try:
            yield number
        finally:
            self.closed.add(number)
            if number in self.breaks:
                raise OSError(f"connection {number} broke while it closed")
            await trio.lowlevel.checkpoint()


def way_over(line: Line) -> Unqueued[int]:
    return Unqueued("far", connect=line.connect, ledger=Ledger(), retry=NoRetry(), model="m", max_inputs=100)


async def no_call(_: int) -> None:
    await trio.lowlevel.checkpoint()


async def used_at_once(way: Unqueued[int], calls: int) -> None:
    """Make as many calls side by side: each has a connection of its own, and leaves it idle."""
    go = trio.Event()

    async def call(_: int) -> None:
        await go.wait()

    async with trio.open_nursery() as nursery:
        for _ in range(calls):
            nursery.start_soon(way.run, call, Ticket())
        await wait_all_tasks_blocked()
        go.set()


async def test_calls_one_after_the_other_share_a_connection() -> None:
    line = Line()
    way = way_over(line)
    for _ in range(3):
        await used_at_once(way, 1)
    await way.aclose()
    assert (line.opened, line.closed) == (1, {0})


@pytest.mark.parametrize("broken", range(3))
async def test_every_idle_connection_is_closed_though_the_closing_of_one_fails(broken: int) -> None:
    line = Line(breaks=frozenset({broken}))
    way = way_over(line)
    await used_at_once(way, 3)
    assert line.closed == set()
    with pytest.raises(OSError, match=f"connection {broken}"):
        await way.aclose()
    assert line.closed == {0, 1, 2}


async def test_every_idle_connection_is_closed_though_the_closing_is_cancelled() -> None:
    line = Line()
    way = way_over(line)
    await used_at_once(way, 3)
    with trio.CancelScope() as scope:
        scope.cancel()
        await way.aclose()
    assert scope.cancelled_caught
    assert line.closed == {0, 1, 2}


async def test_nothing_is_begun_after_it_was_closed() -> None:
    line = Line()
    way = way_over(line)
    await way.aclose()
    with pytest.raises(LaneClosed):
        await way.run(no_call, Ticket())
    assert line.opened == 0
