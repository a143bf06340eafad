"""Tests that stand still, each in its way, in a pytest of their own: they fail by themselves and the run goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
STANDING_STILL = """
from __future__ import annotations

import threading
import time

import pytest
import trio
import trio.testing
from hypothesis import given, strategies as st


async def test_sleeps_for_ever():
    await trio.sleep_forever()


async def test_spins_in_virtual_time(autojump_clock):
    while True:
        await trio.sleep(1.0)


async def test_two_tasks_wake_each_other():
    async def spin():
        while True:
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(spin)
        nursery.start_soon(spin)


async def test_never_yields():
    while True:
        pass


async def test_a_shielded_sibling_waits_for_ever():
    async def shielded():
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(shielded)
        await trio.testing.wait_all_tasks_blocked()
        while True:  # the first alarm is raised here, and cancels the sibling
            pass


async def test_the_first_alarm_is_swallowed():
    try:
        while True:
            pass
    except BaseException:
        await trio.sleep_forever()


async def test_waits_for_a_thread_that_does_not_end():
    await trio.to_thread.run_sync(threading.Event().wait, 30.0)


@given(st.integers())
def test_an_example_waits_for_ever(number):
    trio.run(trio.sleep_forever)


@given(st.lists(st.integers()))
def test_an_example_spins_in_virtual_time(numbers):
    async def spin():
        while True:
            await trio.sleep(1.0)

    trio.run(spin, clock=trio.testing.MockClock(autojump_threshold=0))


def test_waits_for_a_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


@pytest.fixture
def stands_still():
    time.sleep(600)


def test_its_fixture_stands_still(stands_still):
    pass


@pytest.fixture
def does_not_let_go():
    yield
    time.sleep(600)


def test_fails_and_its_fixture_does_not_let_go(does_not_let_go):
    assert not "reached"
"""
# After each of them: trio can still be run, and nothing of the one before fails it.
FOLLOWED_BY = """

@pytest.mark.timeout(60)
async def test_goes_on_{number}(autojump_clock):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep, 3_600.0)
    await trio.to_thread.run_sync(int)
    assert trio.current_time() >= 3_600.0
"""


def file_of_tests() -> str:
    head, *tests = STANDING_STILL.split("\n\n\n")
    return "\n\n\n".join([head, *(test + FOLLOWED_BY.format(number=n) for n, test in enumerate(tests))])


def run_pytest(folder: Path, text: str, *options: str) -> tuple[int, dict[str, str], str]:
    """The exit code, what became of each test, and what was printed, of a run whose tests have half a second each."""
    (folder / "test_it.py").write_text(text)
    for name in ("conftest.py", "real_time.py"):
        shutil.copy(TESTS / name, folder)
    results = folder / "results.xml"
    command = [sys.executable, "-m", "pytest", "-c", str(TESTS.parent / "pyproject.toml"), "--rootdir", str(folder)]
    command += ["-q", "-p", "no:cacheprovider", "--timeout=0.5", f"--junitxml={results}", *options, "test_it.py"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=300)
    printed = done.stdout + done.stderr
    assert results.exists(), printed
    outcomes: dict[str, str] = {}
    for case in ET.parse(results).iter("testcase"):
        outcome = ",".join(child.tag for child in case if child.tag in ("failure", "error", "skipped")) or "passed"
        # xdist's own report of a lost worker has the file and no test for its name.
        name = case.get("name") or "a lost worker's"
        outcomes[name] = ",".join(filter(None, (outcomes.get(name), outcome)))
    return done.returncode, outcomes, printed


@pytest.mark.timeout(300)  # thirteen standstills
@pytest.mark.parametrize("workers", ["-n0", pytest.param("-n2", marks=pytest.mark.soak)])
def test_a_test_that_stands_still_fails_and_the_run_goes_on(tmp_path: Path, workers: str) -> None:
    code, outcomes, printed = run_pytest(tmp_path, file_of_tests(), workers)
    still = {name: outcome for name, outcome in outcomes.items() if "goes_on" not in name}
    assert code == 1, printed
    assert len(still) == 12, printed
    assert {name for name, outcome in still.items() if outcome == "passed"} == set(), printed
    assert still["test_its_fixture_stands_still"] == "error"
    assert still["test_fails_and_its_fixture_does_not_let_go"] == "failure,error"
    after = [outcome for name, outcome in outcomes.items() if "goes_on" in name]
    assert len(after) >= len(still)
    assert set(after) == {"passed"}, printed
    assert "no end within 0.5 s of real time" in printed


DEAF = """
import signal


def test_hears_no_alarm():
    while True:
        try:
            signal.pause()
        except BaseException:
            pass


def test_goes_on():
    pass  # at once
"""


@pytest.mark.timeout(120)  # all its alarms
@pytest.mark.soak
def test_one_that_hears_no_alarm_costs_its_worker_and_no_other_test(tmp_path: Path) -> None:
    code, outcomes, printed = run_pytest(tmp_path, DEAF, "-n1")
    assert code == 1
    assert outcomes == {"test_hears_no_alarm": "error", "test_goes_on": "passed"}, printed
    assert "test_hears_no_alarm does not end: ending its process" in printed
    assert "in test_hears_no_alarm" in printed


def test_a_bound_of_its_own_and_the_long_one_of_a_soak_test(tmp_path: Path) -> None:
    text = "import time, pytest\n"
    for number, mark in enumerate(("timeout(30)", "soak")):
        text += f"\n@pytest.mark.{mark}\ndef test_{number}():\n    time.sleep(1.0)\n"
    code, outcomes, printed = run_pytest(tmp_path, text, "-n0", "--soak")
    assert (code, outcomes) == (0, {"test_0": "passed", "test_1": "passed"}), printed
