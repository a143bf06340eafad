"""A row of the ledger as the values that its table takes. Pure.

A row that cannot be stored must cost that row and no other. So ``records_of`` gives each column a value of the
column's own type, whatever the row holds, and raises ``Unstorable`` only for what has no honest substitute: a weight, a
number of inputs or an opening time that is no number. ``tables.write_rows`` finds what SQLite refuses all the same.

Tests: tests/activity/test_foreign_values.py, tests/activity/test_tables.py.
"""

from __future__ import annotations

import contextlib
import math
import operator
from typing import Any, Final

import attrs

from embedkit.activity.rows import UNKNOWN, AttemptRow, TicketRow, code_word, http_status, name, name_or_none
from embedkit.errors import durable_code

Record = tuple[Any, ...]

# SQLite's integers have 64 bits.
_LARGEST: Final = 2**63 - 1


class Unstorable(ValueError):
    """A row holds a value that its column cannot take, and that nothing can stand for."""


@attrs.frozen
class Records:
    """One ticket with its attempts, as ``tables.write_rows`` takes them."""

    ticket: Record
    attempts: tuple[Record, ...]


def records_of(writer: int, row: TicketRow) -> Records:
    """``row`` and its attempts as they are now.

    Raises:
        Unstorable: It cannot be stored.
    """
    ticket = ticket_record(writer, row)
    attempts = []
    for attempt in row.attempts:
        # One whose number is none is left out: its ticket may be open on disk, and has to be closed there.
        with contextlib.suppress(Unstorable):
            attempts.append(attempt_record(writer, row, attempt))
    return Records(ticket, tuple(attempts))


def ticket_record(writer: int, row: TicketRow) -> Record:
    """``row`` as it is now. Clocks are written once they are final.

    Raises:
        Unstorable: It cannot be stored.
    """
    return (
        writer,
        row.id,
        name(row.lane),
        name(row.service),
        name(row.stage),
        name(row.role),
        name(row.provider),
        name(row.model),
        name(row.priority),
        name_or_none(row.tenant),
        name_or_none(row.run),
        _whole("weight", row.weight),
        _whole("inputs", row.inputs),
        name(row.disposition),
        _opened(row),
        _wall(row, row.dispatched_at),
        _wall(row, row.settled_at),
        *_measured(row),
        name(row.outcome),
        name_or_none(row.failure_stage),
        _durable(row.code),
        name_or_none(row.attribution),
        row.detached is True,
        len(row.attempts),
    )


def attempt_record(writer: int, row: TicketRow, attempt: AttemptRow) -> Record:
    """``attempt`` of ``row`` as it is now.

    Raises:
        Unstorable: It cannot be stored.
    """
    return (
        writer,
        row.id,
        _whole("attempt", attempt.number),
        _wall(row, attempt.started_at),
        _wall(row, attempt.ended_at),
        _durable(attempt.code),
        http_status(attempt.status),
        _seconds(attempt.retry_delay),
    )


def _whole(column: str, value: object) -> int:
    """``value`` as an integer that SQLite can hold. A string would be stored as it is, whatever it says."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]  # that is the question
    except Exception:  # a TypeError, or whatever a foreign object raises
        raise Unstorable(f"{column} is not a whole number") from None
    if not -_LARGEST <= number <= _LARGEST:
        raise Unstorable(f"{column} is too large")
    return number


def _seconds(value: object) -> float | None:
    """``value`` if it is a finite number, else ``None``. NaN would be stored as NULL, and infinity is no JSON."""
    if type(value) is not float and type(value) is not int:
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _opened(row: TicketRow) -> float:
    opened = _seconds(row.opened_wall)
    if opened is None:
        raise Unstorable("opened_wall is not a time")
    return opened


def _wall(row: TicketRow, instant: float | None) -> float | None:
    """``instant`` on the wall clock. One that is no number becomes the opening of its row, the one that is known.

    It may not become NULL: a settled row would be stored as an open one, and be reaped as abandoned.
    """
    if instant is None:
        return None
    since, enqueued = _seconds(instant), _seconds(row.enqueued_at)
    wall = None if since is None or enqueued is None else _seconds(row.opened_wall + (since - enqueued))
    return _opened(row) if wall is None else wall


def _measured(row: TicketRow) -> tuple[float | None, float | None, float | None]:
    """The three clocks of a settled row; none of them where one is no number, and none before."""
    if row.settled_at is None:
        return None, None, None
    clocks = row.clocks
    measured = _seconds(clocks.queue_wait), _seconds(clocks.provider_time), _seconds(clocks.retry_wait)
    return (None, None, None) if None in measured else measured


def _durable(code: object) -> str | None:
    code = code_word(code)
    return code if code is None or code == UNKNOWN else durable_code(code)
