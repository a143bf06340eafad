"""Who calls a lane in a scenario, what their calls do, and what became of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import attrs
import trio

from embedkit import DeadlineExceeded, QueueWaitExceeded, Ticket, TicketWithdrawn

By = Literal["own scope", "outer scope"]
Ending = Literal["value", "error", "cut"]


@attrs.frozen
class Step:
    """What one attempt does.

    Attributes:
        seconds: How long it takes.
        error: What it ends with; ``None``: it answers with its caller's name.
        closing: Seconds that closing its transport takes, if it is cut off.
        at_end: Called in the call itself, with nothing between that and its end.
        if_cut: What it raises instead of Cancelled, if it is cut off: its transport failed as it closed.
    """

    seconds: float = 1.0
    error: BaseException | None = None
    closing: float = 0.0
    at_end: Callable[[], object] | None = None
    if_cut: Exception | None = None

    async def spend(self) -> None:
        """Take as long as it takes.

        Cancellation:
            It has taken as long as closing takes.
        """
        try:
            if self.seconds == math.inf:
                await trio.sleep_forever()
            await trio.sleep(self.seconds)
        except trio.Cancelled:
            if self.closing:
                with trio.CancelScope(shield=True):
                    await trio.sleep(self.closing)
            if self.if_cut is not None:
                raise self.if_cut from None
            raise


def answers(
    seconds: float = 1.0,
    *,
    closing: float = 0.0,
    at_end: Callable[[], object] | None = None,
    if_cut: Exception | None = None,
) -> Step:
    """An attempt that succeeds after ``seconds``."""
    return Step(seconds, None, closing, at_end, if_cut)


def fails(error: BaseException, seconds: float = 1.0, *, at_end: Callable[[], object] | None = None) -> Step:
    """An attempt that ends with ``error`` after ``seconds``."""
    return Step(seconds, error, 0.0, at_end)


def hangs() -> Step:
    """An attempt that never ends by itself."""
    return Step(math.inf)


@attrs.define(eq=False)
class Caller:
    """Somebody who offers a ticket, and what became of that.

    Attributes:
        name: In traces; their own.
        ticket: Theirs.
        steps: What the attempts do, in order; the last is repeated.
        by_nowait: Whether they call ``run_nowait``.
        around: The outer scope of their wait.
        offered_at: When they called the lane; NaN until then.
        calls: Attempts begun.
        began_at: When each began.
        ended_at: When each ended.
        endings: How each ended.
        left_unserved: They were cancelled before their first call began.
        value: What ``run`` returned.
        error: What it raised, unless that was Cancelled.
        was_cancelled: Whether Cancelled came out of it.
        back: Set when it is back.
        back_at: When that was.
    """

    name: str
    ticket: Ticket
    steps: tuple[Step, ...]
    by_nowait: bool = False
    around: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    offered_at: float = math.nan
    calls: int = 0
    began_at: list[float] = attrs.field(factory=list)
    ended_at: list[float] = attrs.field(factory=list)
    endings: list[Ending] = attrs.field(factory=list)
    left_unserved: bool = False
    value: object = None
    error: Exception | None = None
    was_cancelled: bool = False
    back: trio.Event = attrs.field(factory=trio.Event)
    back_at: float = math.nan

    @property
    def left(self) -> bool:
        """Whether they came back by a cancellation or a deadline of their own, and not with an outcome."""
        return self.was_cancelled or type(self.error) in (TicketWithdrawn, QueueWaitExceeded, DeadlineExceeded)

    @property
    def is_out(self) -> bool:
        """Whether a call of theirs is out."""
        return self.calls > len(self.ended_at)

    @property
    def is_waiting(self) -> bool:
        """Whether the lane may still be about to serve them: no call has begun, and nothing forbids one."""
        circuit = self.ticket.circuit
        return not (
            self.calls
            or self.back.is_set()
            or self.left_unserved
            or (circuit is not None and circuit.is_open)
            or self.ticket.deadline_at <= trio.current_time()
        )

    @property
    def fate(self) -> str:
        """What became of them, in words."""
        if self.value is not None:
            return f"the answer {self.value!r}"
        if self.error is not None:
            return f"{type(self.error).__name__}({self.error})"
        return "Cancelled" if self.was_cancelled else "nothing yet"

    def step(self) -> Step:
        """What the next attempt does."""
        return self.steps[min(self.calls, len(self.steps) - 1)]

    @property
    def last_step(self) -> Step:
        """What the last attempt that began does."""
        return self.steps[min(max(self.calls, 1), len(self.steps)) - 1]

    def received(self, since: float, until: float) -> float:
        """Engine time they received in between: weight times seconds."""
        now = trio.current_time()
        ends = [*self.ended_at, *[now] * (self.calls - len(self.ended_at))]
        spans = (min(end, until) - max(begin, since) for begin, end in zip(self.began_at, ends, strict=True))
        return self.ticket.weight * sum(max(span, 0.0) for span in spans)
