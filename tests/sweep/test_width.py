"""How many inputs the tickets of a sweep hold: what settings, provider and lane allow."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from fakes import FakeProvider, numbered, settings_of, tenant, write_tree

from embedkit.engine import open_engine
from embedkit.providers.gemini import GeminiProvider
from embedkit.settings import ProviderSettings
from embedkit.sweep.sweep import open_sweep


@pytest.mark.parametrize(("batch", "requests"), [(150, 3), (100, 3), (30, 9)])
async def test_a_ticket_of_an_unqueued_provider_is_one_request(batch: int, requests: int, tmp_path: Path) -> None:
    """Gemini takes 100 inputs a request: a ticket of 150 would be 100 and 50, and its failure the whole's."""
    root = write_tree(tmp_path / "root", numbered(260))
    described = ProviderSettings(kind="gemini", model="hash", base_url="http://far", capacity=2)
    settings = attrs.evolve(settings_of(tmp_path / "store.sqlite3", batch=batch), providers={"fake": described})
    provider = FakeProvider()
    async with (
        open_engine(settings, providers={"fake": provider}, environ={"GEMINI_API_KEY": "k"}) as engine,
        open_sweep(engine, [tenant("acme", one=root)], all=True) as sweep,
    ):
        assert not engine.is_queued()
        (report,) = (await sweep.run()).repositories
    assert (report.outcome, report.embedded, report.provider_calls) == ("complete", 260, requests)
    assert max(len(call.texts) for call in provider.calls) == min(batch, GeminiProvider.max_inputs)
    assert len(provider.calls) == requests
