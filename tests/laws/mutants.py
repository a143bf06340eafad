"""Mutants: the real source, broken on purpose, must turn the named test red.

``python -m tests.laws.mutants`` applies each to a copy of the package, runs the one test that is to kill it, and prints
a table. ``--quick`` takes one mutant a law; ``--law N`` those of one law. The exit code is the number of mutants that
live. A mutant whose text is not in the source exactly once is an error: it has to be rewritten with the source.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECONDS = 120
WORKERS = 2

CAPACITY, BUDGET = "TestCapacityLane", "TestBudgetLane"


@dataclass(frozen=True)
class Mutant:
    """One edit.

    Attributes:
        law: Which law it breaks.
        name: What it does.
        file: Below ``embedkit/``.
        old: Text that is there once.
        new: What stands there instead.
        test: Below ``tests/``; fails on the mutant.
    """

    law: int
    name: str
    file: str
    old: str
    new: str
    test: str


LANE, ATTEMPTS, ORDER = "admission/lane.py", "admission/attempts.py", "admission/order.py"
CIRCUIT, ROOM, TICKET = "admission/circuit.py", "admission/room.py", "admission/ticket.py"
CAPACITY_LANE, BUDGET_LANE = "admission/capacity_lane.py", "admission/budget_lane.py"
NOTIFIER, CLOCKS = "admission/notifier.py", "activity/clocks.py"
NOTIFY = "        notify_provider_timeout(error, ticket.on_provider_timeout)\n"
LATER = (
    '        __import__("trio").lowlevel.current_trio_token().run_sync_soon('
    "notify_provider_timeout, error, ticket.on_provider_timeout)\n"
)


def ours(kind: str, law: str) -> str:
    """The test of one law in our own contract class."""
    return f"laws/test_our_lanes.py::{kind}::test_law_{law}"


WITHDRAW, SETTLE, NOTIFIED = "1_withdraw", "2_settle", "3_notify_then_hand_over"
OVERTAKING, RETRIES = "4_bounded_overtaking", "5_only_the_final_failure_counts"
CONSERVATION, HONEST = "6_conservation", "7_honest_clocks"

MUTANTS = [
    Mutant(
        1,
        "a cancelled caller's ticket stays in the queue",
        LANE,
        "            ticket.parting = self._withdraw(ticket)\n",
        '            ticket.parting = TicketWithdrawn("left")\n',
        ours(BUDGET, WITHDRAW),
    ),
    Mutant(
        1,
        "a checkpoint between offer and park",
        LANE,
        "            self._offer(call, ticket)\n",
        "            self._offer(call, ticket)\n            await trio.lowlevel.checkpoint()\n",
        "laws/test_law_1_withdraw.py::test_cancellation_matrix_of_run",
    ),
    Mutant(
        1,
        "a take does not look at deadlines",
        LANE,
        "            if ticket.deadline_at > now:\n",
        "            if True:\n",
        "laws/test_law_1_withdraw.py::test_a_take_finds_ten_deadlines_that_have_passed_and_the_one_that_has_not",
    ),
    Mutant(
        1,
        "a withdrawal wakes nobody",
        LANE,
        "            self.rouse()  # it may have held back what fits now\n",
        "",
        "laws/test_law_1_withdraw.py::test_a_withdrawal_lets_in_whom_it_held_back",
    ),
    Mutant(
        1,
        "a slot that retires keeps its wake-up",
        LANE,
        "            self.rouse()  # a wake-up that it had been given is passed on\n",
        "",
        "laws/test_law_1_withdraw.py::test_a_slot_that_retires_passes_its_wake_up_on",
    ),
    Mutant(
        2,
        "Ollama's slot is freed as the caller leaves",
        CAPACITY_LANE,
        "        if ticket.pause is not None:\n            ticket.pause.cancel()\n",
        "        self._room.leave(ticket)\n        self.rouse()\n",
        "laws/test_law_2_settle.py::test_ac_9_slot_and_row_stay_open_until_the_provider_call_ends",
    ),
    Mutant(
        2,
        "Ollama's call is cut as the caller leaves",
        CAPACITY_LANE,
        "        if ticket.pause is not None:\n            ticket.pause.cancel()\n",
        "        ticket.abort_call()\n",
        ours(CAPACITY, SETTLE),
    ),
    Mutant(
        2,
        "an OpenAI-compatible call goes on though its caller has left",
        BUDGET_LANE,
        "        ticket.abort_call()\n",
        "        pass\n",
        "laws/test_law_2_settle.py::test_an_abort_says_that_the_transport_was_closed_and_no_more",
    ),
    Mutant(
        2,
        "an abort is called a failure",
        BUDGET_LANE,
        '            self.record("aborted", ticket, ticket.parting)\n',
        '            self.record("failed", ticket, ticket.parting)\n',
        ours(BUDGET, SETTLE),
    ),
    Mutant(
        2,
        "a slot dies alone",
        LANE,
        "            self.close(error)\n            raise\n",
        "            raise\n",
        ours(CAPACITY, CONSERVATION),
    ),
    Mutant(
        3,
        "Ollama's notifier runs one step later",
        CAPACITY_LANE,
        NOTIFY,
        LATER,
        ours(CAPACITY, NOTIFIED),
    ),
    Mutant(
        3,
        "the OpenAI-compatible notifier runs one step later",
        BUDGET_LANE,
        NOTIFY,
        LATER,
        ours(BUDGET, NOTIFIED),
    ),
    Mutant(3, "Ollama's settlement tells nobody", CAPACITY_LANE, NOTIFY, "", ours(CAPACITY, NOTIFIED)),
    Mutant(3, "the OpenAI-compatible settlement tells nobody", BUDGET_LANE, NOTIFY, "", ours(BUDGET, NOTIFIED)),
    Mutant(
        3,
        "the hook is called before the settlement is recorded",
        CAPACITY_LANE,
        '        self.record("failed" if',
        NOTIFY.removeprefix("        ").join(["        ", '        self.record("failed" if']),
        ours(CAPACITY, NOTIFIED),
    ),
    Mutant(
        3,
        "what a hook raises is not contained",
        NOTIFIER,
        "    except Exception as raised:",
        "    except LookupError as raised:",
        "laws/test_law_3_notify.py::test_ac_8_a_hook_that_trips_and_raises_changes_nothing",
    ),
    Mutant(
        3,
        "a trip sheds nothing",
        CIRCUIT,
        "            if ticket.state is State.QUEUED:\n",
        "            if False:\n",
        ours(BUDGET, NOTIFIED),
    ),
    Mutant(
        3,
        "the last cause of a trip wins",
        CIRCUIT,
        "        if self._cause is not None:\n            return\n",
        "",
        "admission/test_circuit.py::test_the_first_cause_wins",
    ),
    Mutant(
        4,
        "a look spends the bound",
        ORDER,
        "        chosen = self._whose_turn(now, room)\n",
        "        chosen = self._whose_turn(now, room)\n"
        '        self._overtaken += chosen is not None and chosen.priority == "interactive"\n',
        ours(BUDGET, OVERTAKING),
    ),
    Mutant(
        4,
        "one overtake too many",
        ORDER,
        "self._overtaken >= self.max_overtakes",
        "self._overtaken > self.max_overtakes",
        "laws/test_law_4_bounded_overtaking.py::test_f_1_the_order_with_one_overtake",
    ),
    Mutant(
        4,
        "the head's age does not count",
        ORDER,
        " or now - self._head_since >= self.max_age\n",
        "\n",
        ours(BUDGET, OVERTAKING),
    ),
    Mutant(
        4,
        "a successor inherits the bounds of the head that left",
        ORDER,
        "        self._overtaken = 0\n        self._head_since = now\n",
        "        self._head_since = now\n",
        ours(BUDGET, OVERTAKING),
    ),
    Mutant(
        4,
        "whatever fits goes first",
        ORDER,
        "room.fits(chosen) else None\n",
        "room.fits(chosen) else next(filter(room.fits, self), None)\n",
        ours(BUDGET, OVERTAKING),
    ),
    Mutant(
        4,
        "batch work takes the reserve",
        ROOM,
        'return ticket.priority == "interactive" or self.patient + ticket.weight <= self.ceiling',
        "return True",
        "laws/test_law_4_bounded_overtaking.py::test_f_4_two_batch_callers_never_exceed_the_ceiling_together",
    ),
    Mutant(
        4,
        "after a take nobody else is woken",
        LANE,
        "                ticket.slot = slot\n                self.rouse()\n",
        "                ticket.slot = slot\n",
        "laws/test_law_4_bounded_overtaking.py::test_f_4_a_ticket_wider_than_the_lane_runs_alone",
    ),
    Mutant(
        5,
        "each attempt is notified",
        ATTEMPTS,
        "        delay = _delay_before_next(ticket, result, retry)\n",
        "        from embedkit.admission.notifier import notify_provider_timeout\n"
        '        notify_provider_timeout(getattr(result, "error", None), ticket.on_provider_timeout)\n'
        "        delay = _delay_before_next(ticket, result, retry)\n",
        "laws/test_law_5_retries.py::test_ac_6_two_timeouts_and_an_answer_are_no_trip",
    ),
    Mutant(
        5,
        "a retry after the trip",
        ATTEMPTS,
        "        if _is_unwanted(ticket):\n            return result\n",
        "",
        ours(BUDGET, RETRIES),
    ),
    Mutant(
        5,
        "a trip does not end the sleep between attempts",
        CIRCUIT,
        "            elif ticket.pause is not None:\n",
        "            elif False:\n",
        "laws/test_law_5_retries.py::test_a_trip_ends_the_sleep_in_the_same_step_and_the_last_error_stands",
    ),
    Mutant(
        5,
        "a retry that the deadline forbids",
        ATTEMPTS,
        "    if delay is not None and trio.current_time() + delay >= ticket.deadline_at:\n",
        "    if False:\n",
        ours(BUDGET, RETRIES),
    ),
    Mutant(
        5,
        "an attempt's limit runs on in the sleep after it",
        ATTEMPTS,
        "    ticket.slot.rest()\n",
        "",
        "laws/test_law_5_retries.py::test_an_attempt_s_limit_does_not_run_on_in_the_sleep_after_it",
    ),
    Mutant(6, "a shed ticket is not counted", LANE, "        self._totals.shed += 1\n", "", ours(BUDGET, CONSERVATION)),
    Mutant(
        6,
        "a withdrawal counts twice",
        LANE,
        "self._totals.withdrawn += 1",
        "self._totals.withdrawn += 2",
        "laws/test_conservation.py::test_every_ticket_is_in_one_place_under_any_schedule",
    ),
    Mutant(
        6,
        "a settlement frees nothing",
        LANE,
        "        self._room.leave(ticket)\n",
        "",
        ours(CAPACITY, CONSERVATION),
    ),
    Mutant(
        6,
        "closing forgets those who wait for room",
        LANE,
        "        for ticket in tuple(self._waiting):\n",
        "        for ticket in tuple(self._waiting.order):\n",
        ours(BUDGET, CONSERVATION),
    ),
    Mutant(
        6,
        "what the engine's end cut off is a failure",
        LANE,
        '            self.record("unsettled", ticket, error)\n',
        '            self.record("failed", ticket, error)\n',
        ours(BUDGET, CONSERVATION),
    ),
    Mutant(
        7,
        "the provider's time counts as waiting, too",
        TICKET,
        "                self.dispatched_at - self.offered_at, now",
        "                now - self.offered_at, now",
        ours(BUDGET, HONEST),
    ),
    Mutant(
        7,
        "sleeping counts as the provider's time",
        TICKET,
        "now - self.dispatched_at - self.retry_wait, self.retry_wait",
        "now - self.dispatched_at, self.retry_wait",
        ours(BUDGET, HONEST),
    ),
    Mutant(
        7,
        "the limit of an attempt counts from the offer",
        ATTEMPTS,
        "    started = ticket.dispatched_at if",
        "    started = ticket.offered_at if",
        ours(CAPACITY, HONEST),
    ),
    Mutant(
        7,
        "every failure is the provider's",
        CLOCKS,
        'return "queue" if clocks.queue_wait > clocks.provider_time + clocks.retry_wait else "provider"',
        'return "provider"',
        "laws/test_law_7_honest_clocks.py::test_d_1_a_failure_that_the_queue_caused_says_so",
    ),
    Mutant(
        7,
        "a deadline that the queue ate is somebody's cancellation",
        LANE,
        "        if ticket.deadline_at <= now:\n            error = QueueWaitExceeded",
        "        if False:\n            error = QueueWaitExceeded",
        "laws/test_law_7_honest_clocks.py::test_d_1_a_deadline_that_the_queue_ate_has_its_own_code_and_sends_nothing",
    ),
]


def quick() -> Iterator[Mutant]:
    """The first mutant of each law."""
    for law in range(1, 8):
        yield next(mutant for mutant in MUTANTS if mutant.law == law)


def copy_of_the_house(folder: Path) -> Path:
    """A copy of what a test run needs."""
    ignored = shutil.ignore_patterns("__pycache__", ".hypothesis")
    for name in ("embedkit", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def run_test(folder: Path, *tests: str) -> tuple[int, str]:
    """pytest's exit code, and the end of what it said; -1 for one that did not end."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=line", "--no-header"]
    paths = [f"tests/{test}" for test in tests]
    try:
        done = subprocess.run([*command, *paths], cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return -1, f"no end within {SECONDS} s"
    return done.returncode, done.stdout[-2000:] + done.stderr[-2000:]


def verdict(mutant: Mutant) -> str:
    """``killed``, ``killed (no end)``, ``LIVES``, or what went wrong."""
    source = (ROOT / "embedkit" / mutant.file).read_text(encoding="utf-8")
    found = source.count(mutant.old)
    if found != 1:
        return f"ERROR: its text is in {mutant.file} {found} times"
    with tempfile.TemporaryDirectory() as name:
        folder = copy_of_the_house(Path(name))
        (folder / "embedkit" / mutant.file).write_text(source.replace(mutant.old, mutant.new), encoding="utf-8")
        code, said = run_test(folder, mutant.test)
    words = {-1: "killed (no end)", 0: "LIVES", 1: "killed"}
    return words.get(code) or f"ERROR: pytest ended with {code}: {said}"


def main(arguments: list[str] | None = None) -> int:
    """Run, print the table, and give the number of mutants that were not killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one mutant a law")
    parser.add_argument("--law", type=int, choices=range(1, 8), help="those of one law")
    options = parser.parse_args(arguments)
    chosen = [mutant for mutant in (quick() if options.quick else MUTANTS) if options.law in (None, mutant.law)]
    with tempfile.TemporaryDirectory() as name:
        code, said = run_test(copy_of_the_house(Path(name)), *sorted({mutant.test for mutant in chosen}))
    if code != 0:
        print(f"the tests fail without any mutant:\n{said}")  # noqa: T201
        return 1
    with ThreadPoolExecutor(WORKERS) as pool:
        verdicts = list(pool.map(verdict, chosen))
    for mutant, word in zip(chosen, verdicts, strict=True):
        print(f"law {mutant.law}  {word:16} {mutant.name}  [{mutant.test}]")  # noqa: T201
    living = sum(not word.startswith("killed") for word in verdicts)
    print(f"{len(chosen) - living} of {len(chosen)} mutants killed")  # noqa: T201
    return living


if __name__ == "__main__":
    sys.exit(main())
