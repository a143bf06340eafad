"""``embedkit.sweep.again``: what goes though it is not due, when a person runs a sync again."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from fakes import FakeCall, FakeProvider, numbered, settings_of, tenant, write_tree

from embedkit.clocks import ZERO
from embedkit.engine import open_engine
from embedkit.errors import ConnectionRefused, ProviderAuthError, ProviderTimeout
from embedkit.knowledge.storing.repositories import Last, RepositoryRecord
from embedkit.settings import ProbeSettings, TenantSettings
from embedkit.sweep.again import Again, again
from embedkit.sweep.outcome import RepositoryReport
from embedkit.sweep.sweep import open_sweep


def record(outcome: str | None, *, code: str | None = None, streak: int = 0) -> RepositoryRecord:
    last = None if outcome is None else Last(outcome, code, None, None, ZERO, 0.0)
    return RepositoryRecord(1, 1, "acme", "api", streak=streak, next_due_at=7.0, last=last)


@pytest.mark.parametrize(
    ("what", "turn"),
    [
        (record(None), "now"),
        (record("complete"), "when due"),
        (record("deferred", code="KB_VECTOR_EMBED_CONNECTION_REFUSED"), "if the engine is well"),
        (record("deferred", code=ProviderTimeout("slow").durable_code), "when due"),
        (record("failed", streak=1), "now"),
        (record("failed", streak=2), "when due"),
        (record("partial-progress"), "when due"),
        (record("aborted"), "when due"),
    ],
)
def test_when_a_repository_goes_again(what: RepositoryRecord, turn: Again) -> None:
    assert again(what) == turn


class World:
    """One repository, swept again and again by engines of their own, as commands do."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "store.sqlite3"
        self.acme: TenantSettings = tenant("acme", a=write_tree(folder / "root", numbered(3)))
        self.provider = FakeProvider(self._script)
        self.fails_with: Exception | None = None

    async def _script(self, call: FakeCall) -> None:
        if self.fails_with is not None:
            raise self.fails_with

    async def swept(self, *, again: bool) -> RepositoryReport:
        settings = attrs.evolve(
            settings_of(self.store, batch=2, capacity=1),
            probe=ProbeSettings(failing=0.001, failing_cap=0.002, share=1.0),
        )
        async with (
            open_engine(settings, reserve=0, providers={"fake": self.provider}) as engine,
            open_sweep(engine, [self.acme], again=again) as sweep,
        ):
            (report,) = (await sweep.run()).repositories
            return report


async def test_a_first_failure_is_tried_again_at_once_and_a_second_waits(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.fails_with = ProviderAuthError("no key")
    assert (await world.swept(again=True)).outcome == "failed"
    assert (await world.swept(again=False)).outcome == "not-due"
    assert (await world.swept(again=True)).outcome == "failed"
    world.fails_with = None
    waiting = await world.swept(again=True)
    assert waiting.outcome == "not-due"
    assert waiting.last is not None
    assert (waiting.last.outcome, waiting.last.reason) == ("failed", "no key")


async def test_a_first_failure_that_was_mended_completes_at_the_next_call(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.fails_with = ProviderAuthError("no key")
    await world.swept(again=True)
    world.fails_with = None
    assert (await world.swept(again=True)).outcome == "complete"


async def test_what_waits_for_an_engine_goes_as_soon_as_no_probe_finds_it_down(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.fails_with = ConnectionRefused("nobody listens")
    assert (await world.swept(again=True)).outcome == "deferred"
    calls = len(world.provider.calls)
    put_off = await world.swept(again=True)
    # The probe was sent, and nothing for the repository.
    assert (put_off.outcome, put_off.provider_calls, len(world.provider.calls) - calls) == ("deferred", 0, 1)
    assert put_off.code == "KB_VECTOR_EMBED_CONNECTION_REFUSED"
    assert str(put_off.reason).startswith("the engine is not well yet")
    world.fails_with = None
    assert (await world.swept(again=False)).outcome == "not-due"
    # The budget of probes is spent for a while, which is no reason to make a person wait who has started the engine.
    assert (await world.swept(again=True)).outcome == "complete"
