"""Poison does not hold up neighbours: whoever tripped the last run is swept last, alone, when all others have ended."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from fakes import FakeCall, FakeProvider, opened, tenant, write_tree

from embedkit.errors import ProviderAuthError, ProviderTimeout
from embedkit.settings import TenantSettings
from embedkit.sweep.outcome import RepositoryReport, SweepReport
from embedkit.sweep.successor import NEXT
from embedkit.sweep.sweep import open_sweep


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite3"


async def poisoned(call: FakeCall) -> None:
    """An engine that some texts hang."""
    if any("poison" in text for text in call.texts):
        raise ProviderTimeout("it hangs")


def world(folder: Path, *, good: int, poisonous: int, texts: int = 4) -> list[TenantSettings]:
    """The poisonous come first, so that without more they would always be dispatched first."""
    found = []
    for number in range(poisonous):
        files = {f"p{k}.txt": f"poison {number} {k}\n" for k in range(texts)} | {"fine.txt": f"fine {number}\n"}
        found.append(tenant(f"bad{number}", api=write_tree(folder / f"bad{number}", files)))
    for number in range(good):
        files = {f"g{k}.txt": f"good {number} {k}\n" for k in range(3)}
        found.append(tenant(f"good{number}", api=write_tree(folder / f"good{number}", files)))
    return found


async def swept(store: Path, tenants: list[TenantSettings], provider: FakeProvider) -> SweepReport:
    """A process of its own: what it knows of the last run is what was stored."""
    async with opened(store, provider, batch=2) as engine, open_sweep(engine, tenants, all=True) as sweep:
        return await sweep.run()


def by_tenant(report: SweepReport) -> dict[str, RepositoryReport]:
    return {item.tenant: item for item in report.repositories}


async def test_nine_of_ten_tenants_are_complete_whatever_the_tenth_does(tmp_path: Path, store: Path) -> None:
    """One tenant with four texts that hang kept nine others out for seven sweeps."""
    tenants = world(tmp_path, good=9, poisonous=1, texts=2)
    provider = FakeProvider(poisoned)
    first = await swept(store, tenants, provider)
    assert first.circuit is not None
    assert first.circuit.tenant == "bad0"
    second = by_tenant(await swept(store, tenants, provider))
    assert {name for name, item in second.items() if item.outcome == "complete"} == {f"good{n}" for n in range(9)}
    calls = len(provider.calls)
    for _ in range(40):
        report = by_tenant(await swept(store, tenants, provider))
        assert all(report[f"good{number}"].outcome == "complete" for number in range(9))
        if report["bad0"].outcome == "complete":
            break
    assert (report["bad0"].outcome, report["bad0"].fenced) == ("complete", 2)
    assert "fine 0" in {text.strip() for text in provider.answered}
    assert len(provider.calls) - calls < 60


async def test_a_suspect_begins_when_all_others_have_ended(tmp_path: Path, store: Path) -> None:
    tenants = world(tmp_path, good=3, poisonous=1)
    provider = FakeProvider(poisoned)
    await swept(store, tenants, provider)
    already = len(provider.calls)
    await swept(store, tenants, provider)
    asked = ["poison" in text or "fine" in text for call in provider.calls[already:] for text in call.texts]
    assert sum(asked) > 0
    assert asked == sorted(asked), "something of the suspect was asked before all others were done"


async def test_two_suspects_take_turns(tmp_path: Path, store: Path) -> None:
    """The first to trip ends the run; without turns the other would never be dispatched again."""
    tenants = world(tmp_path, good=1, poisonous=2, texts=1)
    provider = FakeProvider(poisoned)
    tripped = []
    for _ in range(60):
        report = await swept(store, tenants, provider)
        if report.circuit is not None:
            tripped.append(report.circuit.tenant)
        if all(item.outcome == "complete" for item in report.repositories):
            break
    assert {item.tenant: item.outcome for item in report.repositories} == dict.fromkeys(
        ("bad0", "bad1", "good0"), "complete"
    )
    assert set(tripped) == {"bad0", "bad1"}
    # Once both are known, neither trips twice before the other has.
    assert tripped[2:4] == [*dict.fromkeys(tripped)], tripped


async def test_a_suspect_is_cleared_when_it_completes_or_fails_otherwise(tmp_path: Path, store: Path) -> None:
    tenants = world(tmp_path, good=1, poisonous=1, texts=1)
    provider = FakeProvider(poisoned)

    async def suspected() -> bool:
        async with opened(store) as engine:
            records = await (await engine.knowledge()).repositories()
        return {record.tenant: record.tripped_at is not None for record in records}["bad0"]

    await swept(store, tenants, provider)
    assert await suspected()

    async def refusing(call: FakeCall) -> None:
        raise ProviderAuthError("no")

    await swept(store, tenants, FakeProvider(refusing))
    assert not await suspected()
    await swept(store, tenants, provider)
    assert await suspected()
    report = by_tenant(await swept(store, tenants, FakeProvider()))
    assert report["bad0"].outcome == "complete"
    assert not await suspected()


async def test_a_suspect_that_is_not_due_is_not_swept(tmp_path: Path, store: Path) -> None:
    tenants = world(tmp_path, good=1, poisonous=1)
    provider = FakeProvider(poisoned)
    await swept(store, tenants, provider)
    async with opened(store, provider) as engine, open_sweep(engine, tenants) as sweep:
        report = by_tenant(await sweep.run())
    assert report["bad0"].outcome == "not-due"


def test_every_outcome_says_what_becomes_of_a_suspect() -> None:
    """Those that say nothing of its texts leave it under suspicion."""
    from embedkit.clocks import ZERO
    from embedkit.knowledge.storing.repositories import Last, RepositoryRecord
    from embedkit.sweep.successor import Swept, successor

    for outcome in NEXT:
        last = Last(outcome, None, None, None, ZERO, 100.0)
        record = RepositoryRecord(1, 1, "acme", "api", tripped_at=50.0)
        done = Swept(revision="r", generation=1, outstanding=0, too_large=None, last=last)
        held = successor(record, outcome, done, cadence=1.0, cap=2.0, batch=5).tripped_at
        assert held == (None if outcome in ("complete", "failed") else 50.0)
        again = attrs.evolve(done, tripped=True)
        assert successor(record, outcome, again, cadence=1.0, cap=2.0, batch=5).tripped_at == 100.0
