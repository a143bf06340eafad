"""Who gets an engine that everybody wants: two hours in virtual time, before and after.

``python -m benchmarks.fair_shares`` prints it; ``run`` and ``table`` are for others that do. *Before* is the lane's
order as it was: it counted overtakes. *After* is the product as it comes, through a whole ``Engine``. Only the engine
is a script: each text says how many seconds it takes. Nothing in the figures depends on the machine.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import attrs
import numpy as np
import trio
import trio.testing

from benchmarks.measure import Figure, report
from benchmarks.orders import CountingOvertakes
from embedkit.activity.ledger import Ledger
from embedkit.activity.rows import TicketRow
from embedkit.admission.budget_lane import BudgetLane
from embedkit.admission.capacity_lane import CapacityLane
from embedkit.admission.ticket import Ticket
from embedkit.admission.waiting import Priority
from embedkit.engine import open_engine
from embedkit.providers.identity import Identity
from embedkit.providers.provider import Connection
from embedkit.settings import EmbeddingSettings, ProviderSettings, Settings

if TYPE_CHECKING:
    from embedkit.providers.provider import Vectors

SECONDS = 7_200.0
Kind = Literal["openai-compatible", "ollama"]
Ask = Callable[[float, Priority, str | None], Awaitable[object]]


@attrs.frozen
class Stream:
    """Work of one kind: one text every ``every`` seconds, or a standing backlog of ``backlog``.

    Attributes:
        priority: Its class.
        seconds: What one text takes.
        every: Seconds between two texts; 0: a backlog, where the next is offered as one is answered.
        backlog: How many are there at once.
        tenant: Whose it is.
    """

    priority: Priority
    seconds: float
    every: float = 0.0
    backlog: int = 100
    tenant: str | None = None

    @property
    def name(self) -> str:
        """For the table."""
        return {"interactive": "people", "batch": "batch"}.get(self.priority, self.priority) + (
            f" of tenant {self.tenant}" if self.tenant else ""
        )


@attrs.frozen
class Case:
    """Streams that meet at an engine of so many slots."""

    name: str
    slots: int
    streams: Sequence[Stream]


CASES = (
    Case("one slot; a person every 6 s needs 1 s of it", 1, (Stream("interactive", 1, 6), Stream("batch", 10))),
    Case("four slots; a person every 7 s; batches of 183 s", 4, (Stream("interactive", 1, 7), Stream("batch", 183))),
    Case("one slot; people ask for twice the engine", 1, (Stream("interactive", 2, 1), Stream("batch", 10))),
    Case(
        "two slots; texts of 20 s beside texts of 1 s",
        2,
        (Stream("batch", 20, tenant="long"), Stream("batch", 1, tenant="short")),
    ),
)


@attrs.frozen
class Got:
    """What one stream came to.

    Attributes:
        asked: Texts offered.
        answered: Of these, answered.
        waited: Seconds from offer to dispatch, on average over those that were dispatched.
        engine_seconds: Engine time received.
    """

    asked: int
    answered: int
    waited: float
    engine_seconds: float


@cache
def run(case: Case, kind: Kind | None = None, *, seconds: float = SECONDS) -> Mapping[str, Got]:
    """Two hours of ``case``: through an engine of ``kind``; without one, through a lane that counts overtakes."""
    clock = trio.testing.MockClock(autojump_threshold=0)
    return trio.run(_simulate, case, kind, seconds, clock=clock)


def table(*, kind: Kind = "openai-compatible") -> str:
    """All cases, before and after: what was answered, how long people waited, and engine time."""
    head = ("", "before:", "waited", "engine time", "now:", "waited", "engine time")
    rows: list[tuple[str, ...]] = []
    for case in CASES:
        before, after = run(case), run(case, kind)
        rows += [
            (f"  {stream.name}", *_cells(stream, before[stream.name]), *_cells(stream, after[stream.name]))
            for stream in case.streams
        ]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [_aligned(head, widths)]
    for case in CASES:
        lines.append(case.name)
        lines += [_aligned(rows.pop(0), widths) for _ in case.streams]
    return "\n".join(lines)


def _cells(stream: Stream, got: Got) -> tuple[str, str, str]:
    answered = f"{got.answered:,} of {got.asked:,}" if stream.every else f"{got.answered:,}"
    return answered, f"{got.waited:,.1f} s" if stream.every else "", f"{got.engine_seconds:,.0f} s"


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = zip(cells, widths, strict=True)
    return "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]).rstrip()


def figures() -> list[Figure]:
    """What the cases came to, against the figures of the rule's prototype."""
    one, four, twice, tenants = (run(case, "openai-compatible") for case in CASES)
    return [
        Figure("people answered, of 1,200 on one slot", 1_198, one["people"].answered, "at least"),
        Figure("  and their wait", 8.0, one["people"].waited, "at most", "s"),
        Figure("people answered, of 1,029 on four slots", 1_000, four["people"].answered, "at least"),
        Figure(
            "people who ask for twice the engine / batch, in engine time",
            1.02,
            twice["people"].engine_seconds / twice["batch"].engine_seconds,
            "at most",
        ),
        Figure(
            "a tenant of long texts / one of short texts, in engine time",
            1.02,
            tenants["batch of tenant long"].engine_seconds / tenants["batch of tenant short"].engine_seconds,
            "at most",
        ),
    ]


class _Script:
    """A provider, and its connection: a text is the number of seconds it takes."""

    kind = "script"
    name = "box"
    model = "script"
    dimension = 1
    space_options: Mapping[str, str] = {}

    def weight(self, inputs: int) -> int:
        """One."""
        return inputs

    async def preflight(self) -> Identity:
        """There is nothing to ask."""
        await trio.lowlevel.checkpoint()
        return Identity("listed", self.model)

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Connection]:
        """There is nothing to open."""
        yield self

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Compute for as long as they say."""
        await trio.sleep(sum(map(float, texts)))
        return np.zeros((len(texts), 1), np.float32)


@attrs.define
class _Tally:
    """A listener that adds up, by class and tenant."""

    asked: Counter[tuple[str, str | None]] = attrs.field(factory=Counter)
    answered: Counter[tuple[str, str | None]] = attrs.field(factory=Counter)
    dispatched: Counter[tuple[str, str | None]] = attrs.field(factory=Counter)
    waited: dict[tuple[str, str | None], float] = attrs.field(factory=dict)
    spent: dict[tuple[str, str | None], float] = attrs.field(factory=dict)

    def changed(self, row: TicketRow) -> None:
        """Count it once for each step."""
        key = row.priority, row.tenant
        if row.outcome == "queued":
            self.asked[key] += 1
        if row.settled_at is not None and row.dispatched_at is not None:
            self.dispatched[key] += 1
            self.waited[key] = self.waited.get(key, 0.0) + row.clocks.queue_wait
            self.spent[key] = self.spent.get(key, 0.0) + row.clocks.provider_time
            self.answered[key] += row.outcome == "succeeded"

    def got(self, stream: Stream) -> Got:
        """Of one stream."""
        key = stream.priority, stream.tenant
        waited = self.waited.get(key, 0.0) / max(self.dispatched[key], 1)
        return Got(self.asked[key], self.answered[key], waited, self.spent.get(key, 0.0))


async def _simulate(case: Case, kind: Kind | None, seconds: float) -> Mapping[str, Got]:
    tally = _Tally()
    opened = _engine(case, kind, tally) if kind is not None else _counting_lane(case, tally)
    async with opened as ask, trio.open_nursery() as nursery:
        for stream in case.streams:
            nursery.start_soon(_offer, stream, ask)
        await trio.sleep(seconds)
        nursery.cancel_scope.cancel()
    return {stream.name: tally.got(stream) for stream in case.streams}


async def _offer(stream: Stream, ask: Ask) -> None:
    async def again_and_again() -> None:
        while True:
            await ask(stream.seconds, stream.priority, stream.tenant)

    async with trio.open_nursery() as nursery:
        if not stream.every:
            for _ in range(stream.backlog):
                nursery.start_soon(again_and_again)
        while stream.every:
            nursery.start_soon(ask, stream.seconds, stream.priority, stream.tenant)
            await trio.sleep(stream.every)


@asynccontextmanager
async def _engine(case: Case, kind: Kind, tally: _Tally) -> AsyncGenerator[Ask]:
    described = ProviderSettings(kind=kind, base_url="http://127.0.0.1:9/v1", model="script", capacity=case.slots)
    settings = Settings(providers={"box": described}, embedding=EmbeddingSettings(provider="box"))
    async with open_engine(settings, recorder=tally, reserve=0, providers={"box": _Script()}) as engine:

        async def ask(seconds: float, priority: Priority, tenant: str | None) -> object:
            return await engine.embed([str(seconds)], priority=priority, tenant=tenant, timeout=1e6)

        yield ask
        # The end of the hours, not of the calls: nobody waits for what is out.
        engine.nursery.cancel_scope.cancel()


@asynccontextmanager
async def _counting_lane(case: Case, tally: _Tally) -> AsyncGenerator[Ask]:
    ledger, provider = Ledger(), _Script()
    ledger.attach(tally)
    async with trio.open_nursery() as nursery:
        lane: CapacityLane[Any] | BudgetLane[Any] = BudgetLane(
            "box",
            nursery=nursery,
            connect=provider.connect,
            capacity=case.slots,
            ledger=ledger,
            order=CountingOvertakes(trio.current_time),
        )

        async def ask(seconds: float, priority: Priority, tenant: str | None) -> object:
            ticket = Ticket(priority=priority, tenant=tenant)
            return await lane.run(lambda connection: connection.embed([str(seconds)]), ticket)

        yield ask
        nursery.cancel_scope.cancel()


def main() -> int:
    """Print the table; with ``--json``, the figures.

    Returns:
        The exit code: 1 if a bound is missed.
    """
    if "--json" in sys.argv[1:]:
        return report("fair_shares", figures())
    print("Two hours in virtual time: counting overtakes (before), sharing engine time (after).\n")
    print(table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
