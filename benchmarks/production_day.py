"""A day of the shape that production was measured in, before and after, in virtual time.

``python -m benchmarks.production_day`` prints it; ``run_day`` and ``table`` are for others that do.

An engine of four slots; two health checks that each ask for a probe every 15 s, whether or not the last was answered
(a probe takes 20 s); an indexer with one batch call outstanding at a time, of 183 s each.

*Before* is what was found: a lane of one slot in front of the four, probes in the class of people, people always
first, nobody who shares a probe's answer. *After* is the product as it comes. Both days run through the product's
own lane, order, provider and broker; only the engine is a script. Nothing in the figures depends on the machine.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import attrs
import trio
import trio.testing

from benchmarks.measure import Figure, report
from benchmarks.orders import StrictPriority
from embedkit.activity.ledger import Ledger
from embedkit.activity.rows import TicketRow
from embedkit.admission.budget_lane import BudgetLane
from embedkit.admission.lane import Lane
from embedkit.admission.order import Order
from embedkit.admission.passage import Passage
from embedkit.admission.ticket import Ids, Ticket
from embedkit.admission.waiting import Priority
from embedkit.probing.broker import ProbeBroker
from embedkit.probing.call import Target
from embedkit.providers.openai_compatible import OpenAICompatibleProvider
from embedkit.providers.provider import Connection
from embedkit.settings import ProbeSettings
from embedkit.testing.engine_memory import MemoryEngine, open_memory_engine
from embedkit.testing.engine_wire import EngineRequest

DAY = 86_400.0
SLOTS = 4
POLLERS = 2
POLL_EVERY = 15.0
PROBE_SERVICE = 20.0
BATCH_SERVICE = 183.0

PRODUCTION = (
    "Production itself, in about an hour: 506 probe calls against 169 batch calls; "
    "a batch waited 167 s on average, 1,050 s at most."
)

_PROBE, _BATCH = "probe", "batch"


@attrs.frozen
class Policy:
    """How the engine is shared.

    Attributes:
        name: For the table.
        capacity: Slots of the lane.
        reserve: Of them, left free for people.
        lead: Seconds of engine time that people may be ahead of batch work.
        order: Who is next, if not by fair shares.
        brokered: Whether probes go through the broker; else each is an interactive ticket of its own.
    """

    name: str
    capacity: int = SLOTS
    reserve: int = 1
    lead: float = 30.0
    order: Callable[[], Order[Passage]] | None = None
    brokered: bool = True


BEFORE = Policy("before", capacity=1, reserve=0, order=StrictPriority, brokered=False)
AFTER = Policy("after")


@attrs.frozen
class DayReport:
    """What a day came to. Times in seconds.

    Attributes:
        policy: Under which.
        polls: How often a health check asked.
        answered: How many of them had an answer by the end of the day.
        poll_wait: How long those waited for it, on average.
        healthy: How many were told that the engine is healthy.
        probe_calls: Probes that reached the engine.
        batch_calls: Batch calls that reached it.
        batch_wait_mean: From offer to dispatch; a batch that still waits at the end counts with what it has waited.
        batch_wait_max: The longest of these. One batch is outstanding at a time, so it is a wait as head.
        longest_silence: The longest stretch in which no batch call ended.
        engine_busy: Share of the engine's slots that computed.
        cpu_seconds: Of the processor, to simulate it: real ones on an idle machine.
    """

    policy: Policy
    polls: int
    answered: int
    poll_wait: float
    healthy: int
    probe_calls: int
    batch_calls: int
    batch_wait_mean: float
    batch_wait_max: float
    longest_silence: float
    engine_busy: float
    cpu_seconds: float


def run_day(policy: Policy, *, seconds: float = DAY) -> DayReport:
    """Simulate a day, or so many seconds of one."""
    began = time.process_time()
    day = trio.run(_simulate, policy, seconds, clock=trio.testing.MockClock(autojump_threshold=0))
    return day.report(seconds, time.process_time() - began)


def table(*reports: DayReport) -> str:
    """The days side by side."""
    rows = [
        ("", *(report.policy.name for report in reports)),
        ("probes asked for", *(f"{report.polls:,}" for report in reports)),
        ("probe calls to the engine", *(f"{report.probe_calls:,}" for report in reports)),
        ("batch calls", *(f"{report.batch_calls:,}" for report in reports)),
        ("a batch waited, on average", *(_duration(report.batch_wait_mean) for report in reports)),
        ("a batch waited, at most", *(_duration(report.batch_wait_max) for report in reports)),
        ("longest time without a batch", *(_duration(report.longest_silence) for report in reports)),
        ("a health check waited, on average", *(_duration(report.poll_wait) for report in reports)),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) if number else cell.ljust(width) for number, (cell, width) in enumerate(cells))
        for cells in (tuple(zip(row, widths, strict=True)) for row in rows)
    )


def figures(before: DayReport, after: DayReport) -> list[Figure]:
    """What the two days came to, against P-1's bounds."""
    allowed = AFTER.lead + PROBE_SERVICE
    return [
        Figure("a day of production, before, in real time", 10.0, before.cpu_seconds, "at most", "s"),
        Figure("the same day, after", 10.0, after.cpu_seconds, "at most", "s"),
        Figure("longest wait of a batch, before", allowed, before.batch_wait_max, "at least", "s"),
        Figure("longest wait of a batch, after", allowed, after.batch_wait_max, "at most", "s"),
        Figure("probe calls / batch calls, after", 0.25, after.probe_calls / after.batch_calls, "at most"),
    ]


def main() -> int:
    """Print both days; with ``--json``, their figures.

    Returns:
        The exit code: 1 if a bound is missed.
    """
    before, after = run_day(BEFORE), run_day(AFTER)
    if "--json" in sys.argv[1:]:
        return report("production_day", figures(before, after))
    print("A day in virtual time: 4 engine slots, 2 health checks every 15 s (a probe takes 20 s), batches of 183 s.\n")
    print(table(before, after))
    print(f"\n{PRODUCTION}")
    print(f"Simulated in {before.cpu_seconds + after.cpu_seconds:.1f} s.")
    return 0 if all(figure.ok for figure in figures(before, after)) else 1


@attrs.define(eq=False)
class _Day:
    """A day as it goes: also a listener of the ledger."""

    policy: Policy
    engine: MemoryEngine
    polls: int = 0
    healthy: int = 0
    poll_waits: list[float] = attrs.field(factory=list)
    batch_waits: list[float] = attrs.field(factory=list)
    batch_ends: list[float] = attrs.field(factory=list)

    def changed(self, row: TicketRow) -> None:
        """Note how long each batch waited, and when it ended."""
        if row.priority == "batch" and row.settled_at is not None:
            self.batch_waits.append(row.clocks.queue_wait)
            if row.dispatched_at is not None and row.outcome == "succeeded":
                self.batch_ends.append(row.settled_at)

    def answered(self, waited: float, *, healthy: bool) -> None:
        """A health check has its answer."""
        self.poll_waits.append(waited)
        self.healthy += healthy

    def report(self, seconds: float, cpu_seconds: float) -> DayReport:
        """The day in figures."""
        marks = [0.0, *self.batch_ends, seconds]
        log = self.engine.log
        return DayReport(
            policy=self.policy,
            polls=self.polls,
            answered=len(self.poll_waits),
            poll_wait=_mean(self.poll_waits),
            healthy=self.healthy,
            probe_calls=_calls(self.engine, _PROBE),
            batch_calls=_calls(self.engine, _BATCH),
            batch_wait_mean=_mean(self.batch_waits),
            batch_wait_max=max(self.batch_waits, default=0.0),
            longest_silence=max(later - earlier for earlier, later in pairwise(marks)),
            engine_busy=log.busy_seconds / (SLOTS * seconds),
            cpu_seconds=cpu_seconds,
        )


async def _simulate(policy: Policy, seconds: float) -> _Day:
    async with open_memory_engine(slots=SLOTS, service=_service) as engine:
        day = _Day(policy, engine)
        provider = OpenAICompatibleProvider("box", "http://memory/v1", "scripted", open_exchange=engine.open_exchange)
        ledger = Ledger(wall_clock=trio.current_time)
        ledger.attach(day)
        # The tasks that ask end before the lane and the engine do, as they do in a service.
        async with trio.open_nursery() as of_engine:
            lane = _lane(policy, provider, ledger, of_engine)
            broker = _broker(lane, ledger, of_engine) if policy.brokered else None
            with trio.move_on_after(seconds):
                async with trio.open_nursery() as askers:
                    askers.start_soon(_index, lane)
                    for _ in range(POLLERS):
                        askers.start_soon(_poll, lane, broker, day)
            of_engine.cancel_scope.cancel()
    return day


def _lane(
    policy: Policy, provider: OpenAICompatibleProvider, ledger: Ledger, nursery: trio.Nursery
) -> Lane[Connection]:
    return BudgetLane(
        "box",
        nursery=nursery,
        connect=provider.connect,
        capacity=policy.capacity,
        reserve=policy.reserve,
        lead=policy.lead,
        order=None if policy.order is None else policy.order(),
        ledger=ledger,
    )


def _broker(lane: Lane[Connection], ledger: Ledger, nursery: trio.Nursery) -> ProbeBroker:
    async def nothing_to_prepare() -> None:
        await trio.lowlevel.checkpoint()

    broker = ProbeBroker(nursery, ProbeSettings(), wall_clock=trio.current_time)
    broker.watch(Target("box", "box", lane, lambda connection: connection.embed([_PROBE]), nothing_to_prepare))
    ledger.attach(broker)
    return broker


async def _index(lane: Lane[Connection]) -> None:
    """One batch at a time, and the next as soon as it is back."""
    while True:
        await _call(lane, _BATCH, "batch")


async def _poll(lane: Lane[Connection], broker: ProbeBroker | None, day: _Day) -> None:
    """Ask every 15 s, whatever became of the last."""
    async with trio.open_nursery() as nursery:
        while True:
            nursery.start_soon(_check_health, lane, broker, day)
            await trio.sleep(POLL_EVERY)


async def _check_health(lane: Lane[Connection], broker: ProbeBroker | None, day: _Day) -> None:
    asked_at = trio.current_time()
    day.polls += 1
    if broker is None:
        await _call(lane, _PROBE, "interactive")
        day.answered(trio.current_time() - asked_at, healthy=True)
    else:
        verdict = await broker.probe("box")
        day.answered(verdict.elapsed, healthy=verdict.verdict == "healthy")


async def _call(lane: Lane[Connection], text: str, priority: Priority) -> None:
    stage = "probe" if text == _PROBE else "ingestion"
    await lane.run(lambda connection: connection.embed([text]), Ticket(priority=priority, ids=Ids(stage=stage)))


def _service(request: EngineRequest) -> float:
    return PROBE_SERVICE if request.texts[0] == _PROBE else BATCH_SERVICE


def _calls(engine: MemoryEngine, text: str) -> int:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return sum(record.hashes[0] == digest for record in engine.log.records)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _duration(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds < 7200 else f"{seconds / 3600:.1f} h"


if __name__ == "__main__":
    sys.exit(main())
