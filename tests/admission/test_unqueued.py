"""The way without a lane: what it keeps open between calls, and that all of it is closed."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from embedkit.activity.ledger import Ledger
from embedkit.admission.circuit import Circuit
from embedkit.admission.policy import NoRetry
from embedkit.admission.ticket import Ticket
from embedkit.admission.unqueued import Unqueued
from embedkit.clocks import Clocks
from embedkit.errors import (
    LaneClosed,
    ProviderBusy,
    ProviderError,
    ProviderFailure,
    ProviderTimeout,
    QueueWaitExceeded,
    TicketWithdrawn,
)


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
    return Unqueued("far", connect=line.connect, ledger=Ledger(), retry=NoRetry(), model="m")


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
async def test_every_idle_connection_is_closed_though_the_closing_of_one_fails(
    broken: int, caplog: pytest.LogCaptureFixture
) -> None:
    line = Line(breaks=frozenset({broken}))
    way = way_over(line)
    await used_at_once(way, 3)
    assert line.closed == set()
    with caplog.at_level(logging.WARNING):
        await way.aclose()
    assert [record.getMessage() for record in caplog.records] == [
        "lane far: a connection raised OSError as it was closed"
    ]
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


# -- a hint -------------------------------------------------------------------------------------------------------


class Hinted(NoRetry):
    """Every hint holds everybody back; the ticket that was told gives up at once, or tries again at once."""

    def __init__(self, *, tries_again: bool = False) -> None:
        self.tries_again = tries_again

    def next_delay(self, error: ProviderError, attempt: int, **_: Any) -> float | None:
        return 0.0 if self.tries_again else None

    def stay_away(self, error: ProviderError) -> float | None:
        return error.retry_after if isinstance(error, ProviderBusy) else None


@attrs.define
class Busy:
    """A way over, and when each call was made. Each call that is told a hint fails with it."""

    way: Unqueued[int]
    ledger: Ledger
    made: list[float] = attrs.field(factory=list)

    async def run(self, after: float, hint: float | None = None, *, takes: float = 0.0, **ticket: Any) -> Ticket:
        hints = [] if hint is None else [hint]
        offered = Ticket(**ticket)

        async def call(_: int) -> None:
            self.made.append(trio.current_time())
            await trio.sleep(takes)
            if hints:
                raise ProviderBusy("later", retry_after=hints.pop())

        await trio.sleep(after)
        with suppress(ProviderBusy):
            await self.way.run(call, offered)
        return offered


@asynccontextmanager
async def busy(**retry: bool) -> AsyncGenerator[Busy]:
    ledger = Ledger()
    far = Busy(Unqueued("far", connect=Line().connect, ledger=ledger, retry=Hinted(**retry)), ledger)
    yield far
    await far.way.aclose()


async def test_a_hint_holds_back_a_first_attempt_and_the_wait_is_the_queue_s(autojump_clock: MockClock) -> None:
    async with busy() as far:
        await far.run(0, hint=5)
        ticket = await far.run(2)
        assert far.made == [0, 5]
        assert ticket.clocks == Clocks(3, 0, 0)
        assert [row.outcome for row in far.ledger.settled_rows()] == ["failed", "succeeded"]


@pytest.mark.parametrize(("second", "until"), [(1.0, 10), (20.0, 21)], ids=["shorter", "longer"])
async def test_a_later_hint_never_shortens_the_wait(second: float, until: float, autojump_clock: MockClock) -> None:
    async with busy() as far:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(far.run, 0, hint=second, takes=1))
            nursery.start_soon(partial(far.run, 0, hint=10.0))
            nursery.start_soon(far.run, 0.5)
        assert far.made == [0, 0, until]


async def test_an_attempt_in_flight_obeys_another_s_hint(autojump_clock: MockClock) -> None:
    async with busy(tries_again=True) as far:
        ticket: list[Ticket] = []

        async def told_little() -> None:
            ticket.append(await far.run(0, hint=1.0, takes=1))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(told_little)
            nursery.start_soon(partial(far.run, 0, hint=10.0))
        assert far.made == [0, 0, 10, 10]
        assert ticket[0].clocks == Clocks(0, 2, 9)


async def test_a_deadline_that_passes_before_the_first_attempt_is_a_withdrawal(autojump_clock: MockClock) -> None:
    async with busy() as far:
        await far.run(0, hint=5)
        with pytest.raises(QueueWaitExceeded, match="it asked everybody to stay away; nothing was sent") as caught:
            await far.run(0, deadline_at=2.0)
        assert caught.value.clocks == Clocks(2, 0, 0)
        ticket = Ticket()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_later, ticket)
            with pytest.raises(TicketWithdrawn, match="nothing was sent"):
                await far.way.run(no_call, ticket)
        with trio.move_on_after(0.5) as scope:
            await far.run(0)
        assert scope.cancelled_caught
        assert far.made == [0]
        rows = far.ledger.settled_rows()
        assert [row.outcome for row in rows] == ["failed", "withdrawn", "withdrawn", "withdrawn"]
        assert [row.failure_stage for row in rows[1:]] == ["queue"] * 3


async def test_who_waits_for_a_hint_to_pass_is_let_go_when_it_closes(autojump_clock: MockClock) -> None:
    async with busy() as far:
        await far.run(0, hint=5)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_close_later, far.way)
            with pytest.raises(LaneClosed):
                await far.way.run(no_call, Ticket())
            assert trio.current_time() == 1
        assert [row.outcome for row in far.ledger.settled_rows()] == ["failed", "shed"]


async def test_a_circuit_that_is_open_is_nothing_to_it_and_no_hook_is_told() -> None:
    circuit, told = Circuit(), list[Exception]()
    circuit.trip(ProviderTimeout("late"))

    async def late(_: int) -> None:
        raise ProviderTimeout("late")

    way = way_over(Line())
    with pytest.raises(ProviderTimeout):
        await way.run(late, Ticket(circuit=circuit, on_provider_timeout=told.append))
    assert told == []


async def test_a_connection_that_cannot_be_opened_is_the_ticket_s_failure() -> None:
    ledger = Ledger()

    @asynccontextmanager
    async def never() -> AsyncGenerator[int]:
        raise KeyError("no")
        yield 0

    way = Unqueued("far", connect=never, ledger=ledger, retry=NoRetry())
    with pytest.raises(ProviderFailure, match="opening it raised KeyError"):
        await way.run(no_call, Ticket())
    (row,) = ledger.settled_rows()
    assert (row.outcome, row.failure_stage) == ("failed", "dispatch")


async def _cancel_later(ticket: Ticket) -> None:
    await trio.sleep(1)
    ticket.scope.cancel()


async def _close_later(way: Unqueued[int]) -> None:
    await trio.sleep(1)
    way.close()
