"""neomjs/neo#16997 and #16995: two repositories, one slot, and an engine that never answers the first one.

Right: the circuit opens before the lane moves. The second repository makes no call in that run and says that the
circuit was open; the first one keeps its own timeout. The same on an OpenAI-compatible engine and on Ollama.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio
from composition import TIMEOUT, a_sweep, first_times_out, the_one_that_timed_out, two_repositories
from trio.testing import MockClock

from embedkit.admission import slots
from embedkit.admission.notifier import notify_provider_timeout
from embedkit.engine import open_engine
from embedkit.errors import ProviderTimeout
from embedkit.knowledge.indexing.bisecting import CONTROL
from embedkit.sweep.sweep import Sweep, open_sweep
from embedkit.testing.engine_log import hash_of
from embedkit.testing.engine_rules import Rule, nth, stall_before_reply
from embedkit.testing.scripted_engine import open_scripted_engine

KINDS = ("openai-compatible", "ollama")
NEVER = [Rule(nth(1), stall_before_reply())]


@pytest.mark.parametrize("kind", KINDS)
async def test_ac_2_ac_3_ac_5_the_second_is_shed_and_the_first_keeps_its_timeout(
    kind: str, tmp_path: Path, mock_clock: MockClock
) -> None:
    told: list[Exception] = []
    async with open_scripted_engine(slots=1, rules=NEVER) as scripted:
        settings = two_repositories(tmp_path, scripted, kind)
        report = await first_times_out(settings, scripted, mock_clock, told.append)
        timed_out, shed = the_one_that_timed_out(report)
        assert scripted.log.requests == 1

    assert timed_out.code == "KB_VECTOR_EMBED_PROVIDER_TIMEOUT"
    assert (timed_out.outcome, timed_out.provider_calls, timed_out.attribution) == ("deferred", 1, "provider")
    assert timed_out.clocks.provider_time == TIMEOUT
    assert shed.code == "KB_VECTOR_EMBED_PROVIDER_CIRCUIT_OPEN"
    assert (shed.outcome, shed.provider_calls, shed.attribution) == ("deferred", 0, "queue")
    assert shed.clocks.queue_wait > 0.0
    assert shed.clocks.provider_time == 0.0
    assert report.circuit is not None
    assert (report.circuit.code, report.circuit.shed) == ("KB_VECTOR_EMBED_PROVIDER_TIMEOUT", 1)
    assert report.status == "deferred"
    (error,) = told  # the caller's own hook is told besides, once
    assert isinstance(error, ProviderTimeout)


@pytest.mark.parametrize("kind", KINDS)
async def test_ac_4_ac_5_a_trip_one_step_later_lets_the_second_reach_the_engine(
    kind: str, tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    trip_now = Sweep.on_timeout

    def trip_a_step_later(self: Sweep, tenant: str, name: str, error: Exception) -> None:
        async def later() -> None:
            trip_now(self, tenant, name, error)

        trio.lowlevel.spawn_system_task(later)

    monkeypatch.setattr(Sweep, "on_timeout", trip_a_step_later)
    async with open_scripted_engine(slots=1, rules=NEVER) as scripted:
        settings = two_repositories(tmp_path, scripted, kind)
        report = await first_times_out(settings, scripted, mock_clock)
        assert scripted.log.requests == 2
    assert sorted(repository.provider_calls for repository in report.repositories) == [1, 1]


@pytest.mark.parametrize("is_silenced", [False, True])
@pytest.mark.parametrize("kind", KINDS)
async def test_ac_5_the_settlement_of_each_kind_calls_the_notifier(
    kind: str, is_silenced: bool, tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_silenced:
        monkeypatch.setattr(slots, "notify_provider_timeout", lambda error, hook: None)
    async with open_scripted_engine(slots=1, rules=NEVER) as scripted:
        settings = two_repositories(tmp_path, scripted, kind)
        report = await first_times_out(settings, scripted, mock_clock)
        assert scripted.log.requests == (2 if is_silenced else 1)
    assert (report.circuit is None) == is_silenced


def test_ac_1_one_notifier_serves_both_lanes() -> None:
    """One settlement for every kind, and one place in the package that calls the notifier."""
    assert vars(slots)["notify_provider_timeout"] is notify_provider_timeout
    package = Path(slots.__file__).parents[1]
    callers = [
        path.name for path in package.rglob("*.py") if "notify_provider_timeout(error" in path.read_text("utf-8")
    ]
    assert sorted(callers) == ["notifier.py", "slots.py"]


@pytest.mark.parametrize("kind", KINDS)
async def test_ac_10_the_next_sweep_has_a_fresh_circuit_and_buys_nothing_again(
    kind: str, tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_scripted_engine(slots=1, rules=[Rule(nth(3), stall_before_reply())]) as scripted:
        settings = two_repositories(tmp_path, scripted, kind, texts=3)
        async with a_sweep(settings) as (_, first), trio.open_nursery() as nursery:
            nursery.start_soon(first.run)
            await scripted.wait_for_requests(3)
            mock_clock.jump(TIMEOUT)
        assert first.circuit.is_open
        bought = [record for record in scripted.log.records if record.outcome == "answered"]
        assert len(bought) == 2

        async with a_sweep(settings) as (_, second):
            report = await second.run()
            assert not second.circuit.is_open
        again = scripted.log.records[3:]
        assert report.status == "completed"
        assert sum(repository.embedded for repository in report.repositories) == 4
        # Besides, the text that timed out is offered after a control.
        control = hash_of(CONTROL)
        hashes = [hash_ for record in (*bought, *again) for hash_ in record.hashes if hash_ != control]
        assert len(hashes) == len(set(hashes)) == 6


async def test_calls_of_an_ended_run_call_no_hook_of_it(tmp_path: Path, mock_clock: MockClock) -> None:
    told: list[Exception] = []
    async with open_scripted_engine(slots=1, rules=NEVER) as scripted:
        settings = two_repositories(tmp_path, scripted, "ollama")
        async with open_engine(settings, reserve=0) as engine:
            async with open_sweep(engine, all=True, on_provider_timeout=told.append) as sweep:
                with trio.CancelScope() as scope:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(sweep.run)
                        await scripted.wait_for_requests(1)
                        scope.cancel()
            # The run has ended; its call is the engine's now, and holds its slot until it ends.
            assert engine.lane().statistics().tickets_in_flight == 1
            mock_clock.jump(TIMEOUT)
            follower = partial(engine.embed, ["another text"], priority="interactive")
            await follower()
            assert engine.lane().statistics().totals.failed == 1
        assert not sweep.circuit.is_open
    assert told == []
