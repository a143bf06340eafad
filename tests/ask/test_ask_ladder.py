"""The timeout ladder, for every adapter and both ways of asking: each rung in turn is the first that is set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from asking_world import ADAPTERS, KEYS, FakeAdapter, failure, provider_of
from child_programs import environ_of, write_program
from trio.testing import MockClock

from embedkit.ask import Failure, Question, Result, ask_all, ask_one
from embedkit.engine import Engine, open_engine
from embedkit.settings import AskSettings, ModelSettings, PanelMember, ProviderDefaults, ProviderSettings, Settings
from embedkit.testing import Rule, open_scripted_engine
from embedkit.testing.engine_rules import always, stall_after_headers

OWN = {
    "openai-compatible": 300.0,
    "ollama": 300.0,
    "grok": 180.0,
    "openrouter": 180.0,
    "codex": 600.0,
    "gemini-cli": 300.0,
}
RUNGS = {
    "request": (11.0, "the request's timeout"),
    "model": (22.0, "models.scripted.timeout"),
    "provider": (33.0, "providers.box.timeout"),
    "defaults": (44.0, "providers.defaults.timeout"),
    "kind": (0.0, "the default of kind"),
}


def settings_with(described: ProviderSettings, first: str) -> Settings:
    """Every rung from ``first`` down is set."""
    below = list(RUNGS)[list(RUNGS).index(first) :]
    limits = {name: RUNGS[name][0] if name in below else None for name in RUNGS}
    fields: dict[str, Any] = {"kind": described.kind, "model": "scripted", "timeout": limits["provider"]}
    if described.traits.speaks_http:
        fields["base_url"] = described.base_url
    return Settings(
        providers={"box": ProviderSettings(**fields)},
        models={"scripted": ModelSettings(timeout=limits["model"])},
        provider_defaults=ProviderDefaults(timeout=limits["defaults"]),
        ask=AskSettings(recovery_grace=0.0),
    )


@pytest.fixture
def autojump_clock() -> MockClock:
    # Real sockets and processes: a moment's grace before the clock jumps.
    return MockClock(autojump_threshold=0.02)


@pytest.fixture
def patient_clock() -> MockClock:
    # A program is started in a thread, which a busy machine lets wait.
    return MockClock(autojump_threshold=0.3)


async def by_one(engine: Engine, timeout: float | None) -> Result:
    return await ask_one(engine, "q", "box", timeout=timeout)


async def by_all(engine: Engine, timeout: float | None) -> Result:
    return (await ask_all(engine, "q", timeout=timeout)).results[0]


def check(failed: Failure, kind: str, first: str) -> None:
    seconds, rung = RUNGS[first]
    assert (failed.kind, failed.attempts) == ("timeout", 1)
    assert failed.elapsed == pytest.approx(seconds or OWN[kind])
    assert rung in failed.message


@pytest.mark.parametrize("kind", ADAPTERS)
@pytest.mark.parametrize("first", RUNGS)
@pytest.mark.parametrize("asks", [by_one, by_all])
async def test_over_http(kind: str, first: str, asks: Any, autojump_clock: MockClock) -> None:
    async with open_scripted_engine(rules=[Rule(always, stall_after_headers())]) as served:
        settings = settings_with(provider_of(kind, served), first)
        async with open_engine(settings, environ=KEYS) as engine:
            check(failure(await asks(engine, 11.0 if first == "request" else None)), kind, first)


@pytest.mark.parametrize("kind", ["codex", "gemini-cli"])
@pytest.mark.parametrize("first", RUNGS)
async def test_of_a_program(kind: str, first: str, tmp_path: Path, patient_clock: MockClock) -> None:
    write_program(tmp_path, "codex" if kind == "codex" else "gemini", "forever()")
    settings = settings_with(ProviderSettings(kind=kind), first)  # type: ignore[arg-type]
    async with open_engine(settings, environ=environ_of(tmp_path)) as engine:
        failed = failure(await by_one(engine, 11.0 if first == "request" else None))
    check(failed, kind, first)


async def test_an_adapter_of_ones_own_without_a_section(autojump_clock: MockClock) -> None:
    async def hangs(question: Question) -> str:
        await trio.sleep_forever()
        return ""

    async with open_engine(Settings()) as engine:
        mine = PanelMember(provider="mine")
        assert failure(await ask_one(engine, "q", mine, adapter=FakeAdapter(hangs))).elapsed == pytest.approx(300.0)
        failed = failure(await ask_one(engine, "q", mine, adapter=FakeAdapter(hangs), timeout=5.0))
        assert failed.elapsed == pytest.approx(5.0)
