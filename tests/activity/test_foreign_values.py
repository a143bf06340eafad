"""Whatever a ticket, an exception or a listener brings along costs its own row at most: never the work, nor the writer.

In memory (``ledger.py``, ``rows.py``) and on disk (``disk.py``, ``tables.py``).
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import AsyncIterator, Callable
from enum import IntEnum, StrEnum
from http import HTTPStatus
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from embedkit.activity import records
from embedkit.activity.disk import LedgerOnDisk, read_report
from embedkit.activity.ledger import Ledger
from embedkit.activity.rows import NAME_LIMIT, SETTLED_OUTCOMES, TicketRow, name
from embedkit.clocks import Clocks
from embedkit.database import Database, open_database

CLOCKS = Clocks(1.0, 2.0, 0.5)
NAMES = ("lane", "service", "role", "provider", "model", "tenant", "run")
WORDS = ("stage", "priority", "disposition")


class Hostile:
    """Every question that can be asked of it raises; printed, it would show a key."""

    def __repr__(self) -> str:
        raise RuntimeError("sk-secret")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("sk-secret")

    def __hash__(self) -> int:
        raise RuntimeError("sk-secret")

    def __getattribute__(self, attribute: str) -> Any:
        raise RuntimeError("sk-secret")

    __str__ = __repr__


class HostileText(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    def __hash__(self) -> int:
        raise RuntimeError

    def __str__(self) -> str:
        raise RuntimeError

    def encode(self, *_: object) -> bytes:
        raise RuntimeError


class Stage(StrEnum):
    QUERY = "query"


class Number(IntEnum):
    SEVEN = 7


class KeyHolder:
    """An object as an exception's ``status``: its text is what must not be stored."""

    def __str__(self) -> str:
        return "sk-secret"

    __repr__ = __str__


# Made anew inside each test: neither hypothesis nor pytest bears to hold them.
MAKERS: dict[str, Callable[[], Any]] = {
    "too large": lambda: 2**70,
    "too small": lambda: -(2**63) - 1,
    "too many digits": lambda: 10**5_000,
    "NUL": lambda: "a\0b",
    "long": lambda: "x" * 5_000,
    "key": KeyHolder,
    "hostile text": lambda: HostileText("hostile"),
    "hostile": Hostile,
    "list": lambda: [404],
    "dict": dict,
    "enumeration": lambda: Stage.QUERY,
    "numbers' enumeration": lambda: Number.SEVEN,
}
# (value or None, name of a maker or None)
foreign = st.tuples(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(),
        st.text(st.characters(categories=["Cs"]), min_size=1),
        st.binary(),
        st.uuids(),
    ),
    st.none() | st.sampled_from(sorted(MAKERS)),
)
Foreign = dict[str, tuple[Any, str | None]]


def made(values: Foreign) -> dict[str, Any]:
    return {key: value if maker is None else MAKERS[maker]() for key, (value, maker) in values.items()}


def offer(ledger: Ledger, now: float = 100.0, **values: Any) -> TicketRow:
    row: dict[str, Any] = {**dict.fromkeys(NAMES, "name"), "weight": 1, "inputs": 5, "stage": "query"}
    return ledger.open(**{**row, "priority": "batch", **values}, now=now)


def live(
    ledger: Ledger, attempt: dict[str, Any] | None = None, ending: dict[str, Any] | None = None, **values: Any
) -> TicketRow:
    row = offer(ledger, **values)
    ledger.dispatched(row, 101.0)
    ledger.attempt_ended(ledger.attempt_started(row, 1, 101.0), 102.0, **(attempt or {}))
    ledger.settled(row, 102.0, **{"outcome": "succeeded", "clocks": CLOCKS, **(ending or {})})
    return row


values_of_a_row = st.dictionaries(st.sampled_from((*NAMES, *WORDS, "weight", "inputs")), foreign)
values_of_an_attempt = st.dictionaries(st.sampled_from(("code", "status", "retry_delay")), foreign)
values_of_an_ending = st.dictionaries(
    st.sampled_from(("outcome", "code", "failure_stage", "attribution", "detached")), foreign
)


# -- in memory -------------------------------------------------------------------------------------------------------


@given(values_of_a_row, values_of_an_attempt, values_of_an_ending)
def test_the_ledger_bears_any_value_and_its_figures_add_up(values: Foreign, attempt: Foreign, ending: Foreign) -> None:
    ledger = Ledger()
    row = live(ledger, made(attempt), made(ending), **made(values))
    live(ledger)
    assert ledger.open_rows() == ()
    assert ledger.statistics().kept == 2
    reports = ledger.report()
    assert sum(report.tickets for report in reports) == 2
    assert sum(report.queued + report.in_flight for report in reports) == 0
    assert "sk-secret" not in json.dumps([report.as_json() for report in reports])
    assert isinstance(row.attempts[0].status, int | None)


@pytest.mark.parametrize(
    ("make", "stands_as"),
    [
        (lambda: "acme", "acme"),
        (lambda: "Grüße", "Grüße"),
        (lambda: uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (lambda: 7, "7"),
        (lambda: 2**70, str(2**70)),
        (lambda: Number.SEVEN, "7"),
        (lambda: Stage.QUERY, "query"),
        (MAKERS["hostile text"], "hostile"),
        (lambda: "a\udcffb", "a\\udcffb"),
        (MAKERS["NUL"], "a\\x00b"),
        (MAKERS["long"], "x" * (NAME_LIMIT - 1) + "…"),
        *(
            (make, "unknown")
            for make in (bytes, float, bool, list, dict, KeyHolder, Hostile, MAKERS["too many digits"])
        ),
    ],
)
def test_a_name_is_what_it_says_or_unknown(make: Callable[[], Any], stands_as: str) -> None:
    assert name(make()) == stands_as
    assert type(name(make())) is str
    ledger = Ledger()
    assert {offer(ledger, service=make()).service for _ in range(2)} == {stands_as}
    (report,) = ledger.report()
    assert (report.group.service, report.queued) == (stands_as, 2)


@pytest.mark.parametrize("status", [100, 404, 599, HTTPStatus.BAD_GATEWAY])
def test_a_status_that_is_one_is_kept(status: int) -> None:
    kept = live(Ledger(), {"status": status}).attempts[0].status
    assert type(kept) is int
    assert kept == status


NO_STATUS: list[Callable[[], Any]] = [lambda: 99, lambda: 600, lambda: -1, lambda: 2**70, lambda: True, lambda: "404"]
NO_STATUS += [lambda: "sk-secret", lambda: 404.0, lambda: math.nan, lambda: b"404", *MAKERS.values()]


@pytest.mark.parametrize("make", NO_STATUS)
def test_a_status_that_is_none_is_not_kept(make: Callable[[], Any]) -> None:
    assert live(Ledger(), {"status": make()}).attempts[0].status is None


class Told:
    def __init__(self) -> None:
        self.of: list[tuple[int, str]] = []

    def changed(self, row: TicketRow) -> None:
        self.of.append((row.id, row.outcome))


@attrs.define(eq=False)
class Interrupts:
    """A listener that is interrupted at one outcome, and looks at the ledger first."""

    ledger: Ledger
    at: str
    seen: list[tuple[int, int]] = attrs.field(factory=list)

    def changed(self, row: TicketRow) -> None:
        (report,) = self.ledger.report()
        self.seen.append((len(self.ledger.open_rows()), report.queued + report.in_flight))
        if row.outcome == self.at:
            raise KeyboardInterrupt


def test_the_books_are_whole_before_anybody_is_told_and_everybody_is() -> None:
    ledger, told = Ledger(), Told()
    interrupted = Interrupts(ledger, "succeeded")
    ledger.attach(interrupted)
    ledger.attach(told)
    with pytest.raises(KeyboardInterrupt):
        live(ledger)
    assert interrupted.seen == [(1, 1)] * 4 + [(0, 0)]
    assert told.of[-1] == (1, "succeeded")
    assert ledger.statistics().kept == 1


def test_an_offer_that_is_interrupted_leaves_no_open_row() -> None:
    ledger, told = Ledger(), Told()
    ledger.attach(Interrupts(ledger, "queued"))
    ledger.attach(told)
    with pytest.raises(KeyboardInterrupt):
        offer(ledger)
    assert ledger.open_rows() == ()
    assert told.of == [(1, "queued"), (1, "abandoned")]
    (report,) = ledger.report()
    assert (report.queued, report.outcomes) == (0, {"abandoned": 1})


def test_a_row_that_is_not_ours_is_closed_and_takes_no_other_with_it() -> None:
    ours, theirs = Ledger(), Ledger()
    row, foreign = offer(ours), offer(theirs)
    ours.settled(foreign, 102.0, outcome="succeeded", clocks=CLOCKS)
    assert ours.open_rows() == (row,)
    ours.settled(row, 102.0, outcome="succeeded", clocks=CLOCKS)
    assert ours.open_rows() == ()


# -- on disk ---------------------------------------------------------------------------------------------------------


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    async with open_database(tmp_path / "store.sqlite3", busy_timeout=0.05) as database:
        yield database


async def written(database: Database, ledger: Ledger, **options: Any) -> LedgerOnDisk:
    """What a writer made of the rows that ``ledger`` holds, from its start to its goodbye."""
    disk = LedgerOnDisk(database, **options)
    async with trio.open_nursery() as nursery:
        await nursery.start(disk.run, ledger)
        nursery.cancel_scope.cancel()
    return disk


async def rows_of(database: Database, columns: str = "ticket") -> list[tuple[Any, ...]]:
    statement = f"SELECT {columns} FROM activity_tickets ORDER BY id"
    return await database.read(lambda connection: connection.execute(statement).fetchall())


async def dump(database: Database) -> str:
    return await database.read(lambda connection: "\n".join(connection.iterdump()))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.lists(st.tuples(values_of_a_row, values_of_an_attempt, values_of_an_ending), max_size=4))
def test_any_row_costs_itself_at_most(tmp_path: Path, lives: list[tuple[Foreign, Foreign, Foreign]]) -> None:
    async def main() -> None:
        (tmp_path / "store.sqlite3").unlink(missing_ok=True)
        async with open_database(tmp_path / "store.sqlite3") as database:
            ledger = Ledger()
            good = [live(ledger).id]
            for values, attempt, ending in lives:
                live(ledger, made(attempt), made(ending), **made(values))
                good.append(live(ledger).id)
            disk = (await written(database, ledger, goodbye=60.0)).statistics()
            kept = [ticket for (ticket,) in await rows_of(database)]
            assert set(good) <= set(kept)
            assert (disk.pending, disk.dropped, disk.failures) == (0, 0, 0)
            assert disk.written == len(kept)
            assert disk.refused == len(good) + len(lives) - len(kept)
            assert "sk-secret" not in await dump(database)
            assert sum(report.tickets for report in await read_report(database)) == len(kept)

    trio.run(main)


@pytest.mark.parametrize(
    "make", [MAKERS["too large"], lambda: "sk-secret", lambda: 1.5, lambda: None, KeyHolder, Hostile]
)
async def test_a_number_that_is_none_costs_that_row_alone_and_is_counted(
    database: Database, make: Callable[[], Any]
) -> None:
    ledger = Ledger()
    live(ledger)
    live(ledger, inputs=make())
    live(ledger)
    disk = await written(database, ledger)
    assert await rows_of(database) == [(1,), (3,)]
    assert (disk.statistics().written, disk.statistics().refused, disk.statistics().failures) == (2, 1, 0)
    assert "sk-secret" not in await dump(database)


@pytest.mark.parametrize("make", [lambda: uuid.UUID(int=5), lambda: "a\udcff", MAKERS["NUL"], Hostile])
async def test_names_are_stored_as_they_stand_in_reports(database: Database, make: Callable[[], Any]) -> None:
    ledger, tenant = Ledger(), make()
    live(ledger, tenant=tenant, run=tenant, lane=tenant, service=tenant)
    await written(database, ledger)
    assert await rows_of(database, "tenant, run, lane, service") == [(name(tenant),) * 4]
    assert await read_report(database) == ledger.report()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
async def test_a_settled_row_is_closed_on_disk_whatever_its_times_say(database: Database, bad: float) -> None:
    ledger = Ledger(wall_clock=lambda: 5_000.0)
    row = offer(ledger)
    ledger.dispatched(row, bad)
    ledger.attempt_ended(ledger.attempt_started(row, 1, bad), bad, retry_delay=bad)
    ledger.settled(row, bad, outcome="failed", clocks=Clocks(1.0, bad, 0.0))
    await written(database, ledger)
    # The moment of its opening is the only one that is known.
    assert await rows_of(database, "dispatched_at, settled_at, outcome") == [(5_000.0, 5_000.0, "failed")]
    assert await rows_of(database, "queue_wait, provider_time, retry_wait") == [(None, None, None)]
    (report,) = await read_report(database)
    assert (report.queued + report.in_flight, report.outcomes, report.last_seen) == (0, {"failed": 1}, 5_000.0)


async def test_a_data_error_of_the_file_itself_is_isolated_too(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that the checks let through, and that SQLite refuses: half of its batch stood before it, half behind."""
    record = records.ticket_record

    def careless(writer: int, row: TicketRow) -> records.Record:
        made = record(writer, row)
        return (*made[:10], object(), *made[11:]) if row.id == 3 else made

    monkeypatch.setattr(records, "ticket_record", careless)
    ledger = Ledger()
    for _ in range(5):
        live(ledger)
    disk = await written(database, ledger)
    assert await rows_of(database) == [(1,), (2,), (4,), (5,)]
    assert (disk.statistics().written, disk.statistics().refused, disk.statistics().failures) == (4, 1, 0)


@pytest.mark.parametrize("outcome", SETTLED_OUTCOMES)
def test_words_of_an_enumeration_count_as_their_words(outcome: str) -> None:
    word: Callable[..., Any] = StrEnum("Ending", {"WORD": outcome})  # type: ignore[misc]
    assert live(Ledger(), ending={"outcome": word(outcome)}).outcome == outcome
