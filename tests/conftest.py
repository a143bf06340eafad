"""What every test shares: schedules that vary, a bound in real time, and the long runs that have to be asked for.

hypothesis is imported on purpose, also for the tests that do not use it: it makes trio shuffle the tasks of each
step, so that all orders appear.
"""

from __future__ import annotations

import math
import random
from typing import Any

import hypothesis
import pytest
import trio
from real_time import (
    mark_long,
    pytest_runtest_call,
    pytest_runtest_makereport,
    pytest_runtest_setup,
    pytest_runtest_teardown,
    pytest_timeout_set_timer,
)
from trio.testing import MockClock

# Hooks: pytest finds them here by their names.
__all__ = [
    "pytest_runtest_call",
    "pytest_runtest_makereport",
    "pytest_runtest_setup",
    "pytest_runtest_teardown",
    "pytest_timeout_set_timer",
]

hypothesis.settings.register_profile("embedkit", deadline=None, print_blob=True)
hypothesis.settings.load_profile("embedkit")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="run the long tests too: those that are marked soak")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "soak: takes minutes; runs with --soak only")
    if config.getoption("--soak") and config.getoption("--hypothesis-seed") is None:
        # A long run that finds something must be repeatable: its seed is chosen here, and stands in the header.
        config.option.hypothesis_seed = str(random.randrange(2**32))


def pytest_report_header(config: pytest.Config) -> str:
    seed = config.getoption("--hypothesis-seed")
    soak = "run" if config.getoption("--soak") else "deselected (--soak runs them)"
    return f"long tests: {soak}; --hypothesis-seed={seed if seed is not None else 'not fixed'}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    long = [item for item in items if "soak" in item.keywords]
    for item in long:
        mark_long(item)
    if long and not config.getoption("--soak"):
        # Left out, and not skipped: there are a thousand of them, and each skip takes a worker's and a line's time.
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if "soak" not in item.keywords]


@pytest.fixture
def patient_clock(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> MockClock:
    """Virtual time that stands still while threads work: days in moments, and each of them whole."""
    run_sync, working = trio.to_thread.run_sync, 0

    async def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal working
        working += 1
        autojump_clock.autojump_threshold = math.inf
        try:
            return await run_sync(*arguments, **options)
        finally:
            working -= 1
            if not working:
                autojump_clock.autojump_threshold = 0

    monkeypatch.setattr(trio.to_thread, "run_sync", counted)
    return autojump_clock
