"""Virtual time that stands still while threads work: days of a schedule in moments, and each of them whole."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio
from trio.testing import MockClock


@pytest.fixture
def patient_clock(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> MockClock:
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
