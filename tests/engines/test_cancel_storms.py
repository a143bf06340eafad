"""A thousand cancels at random moments through the whole engine, on real sockets: and nothing of them is left.

What is cancelled is queued, connecting, writing, waiting, reading or asleep before another attempt. Afterwards a good
request succeeds at once; when the engine has ended there is no connection, task or file descriptor more than before.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from embedkit.engine import open_engine
from embedkit.errors import EmbedkitError
from embedkit.settings import EmbeddingSettings, EngineSettings, ProviderSettings, Settings
from embedkit.testing.engine_core import OnLeave
from embedkit.testing.engine_rules import (
    Rule,
    busy,
    close_after_reply,
    cut_mid_body,
    reset,
    stall_mid_body,
    status,
)
from embedkit.testing.engine_wire import EngineRequest
from embedkit.testing.scripted_engine import ScriptedEngine, open_scripted_engine

CANCELS = 1_000
# Nothing holds Gemini's calls back: were there many, none would get as far as its request.
AT_ONCE = {"openai-compatible": 50, "ollama": 50, "gemini": 10}
SERVICE = 0.002


class Weather:
    """Rules by which each request meets something else, drawn from one seed."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.met: Counter[str] = Counter()
        self.calm = False
        kinds = {
            "busy": busy(retry_after="0"),
            "reset": reset(),
            "cut": cut_mid_body(),
            "stall": stall_mid_body(),
            "closed": close_after_reply(),
            "refused": status(400, "no"),
        }
        self.rules = [Rule(self._when(name), behaviour) for name, behaviour in kinds.items()]

    def _when(self, name: str) -> Any:
        def holds(_: EngineRequest) -> bool:
            if self.calm or self.draw.random() > 0.05:
                return False
            self.met[name] += 1
            return True

        return holds


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def settings_for(scripted: ScriptedEngine, kind: str) -> Settings:
    url = {"ollama": scripted.base_url, "openai-compatible": scripted.openai_url, "gemini": scripted.gemini_url}[kind]
    described = ProviderSettings(
        kind=kind,  # type: ignore[arg-type]  # a kind's name
        base_url=url,
        model="scripted",
        capacity=4,
        timeout=0.05,
    )
    return Settings(
        providers={"box": described},
        embedding=EmbeddingSettings(provider="box"),
        engine=EngineSettings(drain_timeout=30.0),
    )


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts file descriptors in /proc")
@pytest.mark.parametrize("kind", ["openai-compatible", "ollama", "gemini"])
@pytest.mark.parametrize("on_leave", ["stop", "run-on"])
async def test_nothing_is_left_of_a_thousand_cancels(kind: str, on_leave: OnLeave) -> None:
    weather = Weather(1093)
    draw = random.Random(29)
    left = Counter[str]()

    async def leave(seconds: float, number: int) -> None:
        priority: Any = draw.choice(["interactive", "batch"])
        with trio.move_on_after(seconds) as scope:
            try:
                await engine.embed([f"unwanted {number}"] * draw.randint(1, 4), priority=priority)
                left["answered"] += 1
            except EmbedkitError as error:
                left[error.code] += 1
        if scope.cancelled_caught:
            left["cancelled"] += 1

    async with open_scripted_engine(
        slots=4, service=SERVICE, split=kind == "openai-compatible", on_leave=on_leave, rules=weather.rules
    ) as scripted:
        await wait_all_tasks_blocked()
        files = open_files()
        tasks = trio.lowlevel.current_statistics().tasks_living
        async with open_engine(settings_for(scripted, kind), environ={"GEMINI_API_KEY": "k"}) as engine:
            at_once = AT_ONCE[kind]
            for start in range(0, CANCELS, at_once):
                async with trio.open_nursery() as nursery:
                    for number in range(start, start + at_once):
                        nursery.start_soon(leave, draw.uniform(0.0, 0.04), number)
            weather.calm = True
            with trio.fail_after(2.0):
                good = await engine.embed(["good"], priority="interactive", timeout=1.0)
            assert (good.vectors.shape, good.attempts) == ((1, 8), 1)
            for lane in engine.lanes:
                totals = lane.statistics().totals
                assert totals.offered == totals.accounted
                assert totals.queued == 0
        rows = engine.ledger.settled_rows()
        assert engine.ledger.open_rows() == ()
        # Some were cancelled before they were offered at all, while the engine was asked for its models.
        assert CANCELS / 2 < len(rows) <= CANCELS + 1
        assert all(row.outcome != "unsettled" for row in rows)
        await scripted.wait_until(lambda log: log.open_connections == 0)
        await wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living <= tasks
        assert open_files() == files
    assert left["cancelled"] >= CANCELS / 4, left
    assert weather.met, "no request got as far as the engine's answer"
