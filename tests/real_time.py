"""No test stands still: each phase of each test (its setup, its call, its teardown) has a bound in real time.

pytest-timeout reads the setting (``timeout`` in pyproject.toml, ``--timeout``, ``@pytest.mark.timeout``) and knows a
debugger; how time is enforced is ours, through its own hook, because with trio its one alarm is not enough:

- The first exception can be lost. It may land in a callback whose errors are logged, in ``except BaseException``, or
  in a task whose siblings are shielded and wait for ever. So the alarm repeats until the phase has ended.
- ``pytest.fail`` is an error that hypothesis catches and then shrinks, by playing the same standstill again.
  ``StoodStill`` is one that it lets through.
- An exception in trio's wait for events leaves that run's generator suspended, kept alive by the traceback, and every
  later ``trio.run`` in the process is refused. So it is closed once the failure has been reported.

A phase that survives all alarms ends its process: under xdist that is one failed test, and another worker goes on.
Where there is no SIGALRM, pytest-timeout's own thread ends the process at the bound.

Tests: test_real_time.py.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from types import FrameType, GeneratorType

import pytest
import pytest_timeout

# Seconds between alarms after the first: long enough for a failing test to take its fixtures and children down.
AGAIN = 5.0
ALARMS = 12
SOAK_SECONDS = 3_600.0

_BOUND = pytest.StashKey[pytest_timeout.Settings]()
_STOOD_STILL = pytest.StashKey[bool]()


class StoodStill(BaseException):
    """A phase of a test took longer than its bound. No ``Exception``: nothing but pytest is to take it for a result."""


def mark_long(item: pytest.Item) -> None:
    """Give a soak test its longer bound, unless it has one of its own."""
    if item.get_closest_marker("timeout") is None:
        item.add_marker(pytest.mark.timeout(SOAK_SECONDS))


def pytest_timeout_set_timer(item: pytest.Item, settings: pytest_timeout.Settings) -> bool | None:
    """Note the bound; the phases set the alarm. ``None`` leaves the test to pytest-timeout."""
    on_main_thread = threading.current_thread() is threading.main_thread()
    if settings.method != "signal" or not hasattr(signal, "SIGALRM") or not on_main_thread:
        return None
    item.stash[_BOUND] = settings
    return True


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    with _alarmed(item):
        return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    with _alarmed(item):
        return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    with _alarmed(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.excinfo is not None and item.stash.get(_STOOD_STILL, False):
        _abandon(call.excinfo.value)
    return report


@contextmanager
def _alarmed(item: pytest.Item) -> Iterator[None]:
    """Raise ``StoodStill`` in the main thread when the bound has passed, and again until the block has ended."""
    bound = item.stash.get(_BOUND, None)
    if bound is None:
        yield
        return
    seconds: float = bound.timeout
    alarms = 0

    def alarm(_signal: int, _frame: FrameType | None) -> None:
        nonlocal alarms
        if not bound.disable_debugger_detection and pytest_timeout.is_debugging():
            return
        item.stash[_STOOD_STILL] = True
        alarms += 1
        if alarms > ALARMS:
            _end_process(item)
        raise StoodStill(f"no end within {seconds:g} s of real time")

    before = signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds, min(seconds, AGAIN))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _end_process(item: pytest.Item) -> None:
    capture = item.config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        capture.suspend_global_capture(in_=True)
    print(f"{item.nodeid} does not end: ending its process", file=sys.stderr, flush=True)  # noqa: T201
    faulthandler.dump_traceback(sys.__stderr__ or 2)
    os._exit(1)


def _abandon(error: BaseException) -> None:
    """Close the runs of trio that ``error`` left suspended.

    What trio's own warning and the tasks' ``finally`` blocks say then is no finding: the test has failed already.
    """
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for inner in _with_all_causes(error):
                for frame, _ in traceback.walk_tb(inner.__traceback__):
                    _close_run(frame)
            gc.collect()
    finally:
        sys.unraisablehook = hook


def _close_run(frame: FrameType) -> None:
    for value in list(frame.f_locals.values()):
        # trio.run drives this generator; closed, it forgets its tasks and the run in whose midst the thread was.
        if isinstance(value, GeneratorType) and value.__name__ == "unrolled_run" and not value.gi_running:
            value.close()


def _with_all_causes(error: BaseException) -> list[BaseException]:
    """``error``, what it was raised from or during, and the members of groups; each once."""
    found: list[BaseException] = []
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is None or any(one is other for other in found):
            continue
        found.append(one)
        todo += (one.__cause__, one.__context__)
        if isinstance(one, BaseExceptionGroup):
            todo += one.exceptions
    return found
