from __future__ import annotations

import json
import logging
import stat
from pathlib import Path

import pytest
import trio
from asking_world import FakeAdapter, asking, provider_of
from trio.testing import MockClock

from embedkit.ask import AskFailed, Question, ask_all, ask_one, consensus
from embedkit.ask.analysis import analyse
from embedkit.ask.debug_log import DebugLog
from embedkit.settings import PanelMember
from embedkit.testing import Rule, open_scripted_engine
from embedkit.testing.engine_rules import busy, nth, stall_mid_body

KEYS = {
    "at", "event", "tool", "provider", "model", "call", "attempt", "elapsed", "kind", "code", "status", "delay",
    "usage", "round", "verdict",
}  # fmt: skip


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_both_attempts_are_logged(tmp_path: Path, autojump_clock: MockClock) -> None:
    log = tmp_path / "logs" / "debug.jsonl"
    async with (
        open_scripted_engine(rules=[Rule(nth(1), busy(retry_after="7"))]) as served,
        asking({"box": provider_of("grok", served)}, log=log) as engine,
    ):
        await ask_one(engine, "secret question", "box")
    first, second = lines(log)
    assert set(first) == set(second) == KEYS
    assert [first[key] for key in ("tool", "attempt", "kind", "code", "status", "delay")] == [
        "ask_one", 1, "rate-limit", "PROVIDER_BUSY", 429, 7.0,
    ]  # fmt: skip
    assert (second["attempt"], second["kind"], second["usage"]) == (2, None, {"prompt": 2, "answer": 5})
    assert first["call"] == second["call"]
    assert "secret" not in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


async def test_an_attempt_that_was_cut_says_by_what(tmp_path: Path, autojump_clock: MockClock) -> None:
    log = tmp_path / "debug.jsonl"
    async with (
        open_scripted_engine(slots=2, rules=[Rule(nth(1, 2), stall_mid_body())]) as served,
        asking({"box": provider_of("ollama", served, timeout=9.0)}, log=log) as engine,
    ):
        await ask_one(engine, "q", "box")
        with trio.move_on_after(3.0):
            await ask_one(engine, "q", "box")
        await trio.sleep(20)
    assert [(line["kind"], line["attempt"]) for line in lines(log)] == [("timeout", 1), ("aborted", 1)]
    assert lines(log)[0]["elapsed"] == pytest.approx(9.0, abs=0.1)


async def test_a_consensus_logs_rounds_and_verdicts(tmp_path: Path) -> None:
    async def approves(question: Question) -> str:
        return "VERDICT: APPROVE"

    log = tmp_path / "debug.jsonl"
    adapters = {alias: FakeAdapter(approves) for alias in ("judge", "peer")}
    panel = tuple(PanelMember(provider="own", alias=alias) for alias in adapters)
    async with (
        open_scripted_engine() as served,
        asking({"own": provider_of("grok", served)}, log=log, panel=panel) as engine,
    ):
        await ask_all(engine, "q", adapters=adapters)
        await consensus(engine, "plan", arbiter="judge", adapters=adapters)
    of_all = [line for line in lines(log) if line["tool"] == "ask_all"]
    of_consensus = [line for line in lines(log) if line["tool"] == "consensus"]
    assert {line["verdict"] for line in of_all} == {None}
    assert [(line["round"], line["verdict"]) for line in of_consensus] == [(1, "APPROVE")] * 2


def test_a_log_that_cannot_be_written_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = DebugLog(tmp_path)
    with caplog.at_level(logging.WARNING):
        log.write({"event": "attempt"})
        log.write({"event": "attempt"})
    assert len(caplog.records) == 1


def entry(**more: object) -> str:
    return json.dumps({"event": "attempt", "provider": "p", "model": "m", "elapsed": 1.0, "kind": None, **more})


def test_a_log_is_analysed_and_broken_lines_are_skipped() -> None:
    good = [entry(elapsed=float(number)) for number in range(1, 101)]
    bad = ['{"event": "att', "[]", "null", entry(elapsed="1"), entry(kind="odd"), entry(provider=4), "\x00", "{" * 5000]
    failed = [
        entry(model="other", kind="timeout"),
        entry(model="other", kind="auth"),
        entry(model="other", verdict="REJECT"),
    ]
    analysis = analyse([*good, *bad, "", *failed])
    first, second = analysis.rows
    assert (first.calls, first.error_rate, first.p50, first.p95) == (100, 0.0, 50.0, 95.0)
    assert (second.failures, second.verdicts) == ({"auth": 1, "timeout": 1}, {"REJECT": 1})
    assert second.error_rate == pytest.approx(2 / 3)
    assert analysis.skipped == len(bad)
    assert analysis.as_json()["models"][0]["calls"] == 100


def test_an_error_of_an_adapter_keeps_its_words_to_itself() -> None:
    assert AskFailed("auth", "no").next_delay(1) is None
