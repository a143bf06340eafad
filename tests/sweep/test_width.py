"""How many inputs the tickets of a sweep hold: what settings, provider and lane allow."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import trio
from fakes import FakeCall, FakeProvider, numbered, settings_of, tenant, until, write_tree
from trio.testing import wait_all_tasks_blocked

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
    provider.max_inputs = GeminiProvider.max_inputs
    async with (
        open_engine(settings, providers={"fake": provider}, environ={"GEMINI_API_KEY": "k"}) as engine,
        open_sweep(engine, [tenant("acme", one=root)], all=True) as sweep,
    ):
        assert not engine.is_queued()
        (report,) = (await sweep.run()).repositories
    assert (report.outcome, report.embedded, report.provider_calls) == ("complete", 260, requests)
    assert max(len(call.texts) for call in provider.calls) == min(batch, GeminiProvider.max_inputs)
    assert len(provider.calls) == requests


class ByInputs(FakeProvider):
    """A server to which an input is a task: a batch weighs as many."""

    def weight(self, inputs: int) -> int:
        return inputs


@pytest.mark.parametrize(
    ("capacity", "reserve", "batch", "width", "in_flight"),
    [
        (8, 0, 5, 5, 1),
        (8, 0, 2, 2, 4),
        (8, 4, 5, 4, 1),
        (4, 0, 5, 4, 1),
        (16, 0, 5, 5, 3),
        (3, 0, 1, 1, 3),
        (1, 0, 5, 5, 1),
    ],
)
async def test_a_repository_offers_what_may_be_in_flight_and_one_ticket_behind_each(
    capacity: int, reserve: int, batch: int, width: int, in_flight: int, tmp_path: Path
) -> None:
    root = write_tree(tmp_path / "root", numbered(200))
    described = ProviderSettings(
        kind="openai-compatible", model="hash", base_url="http://box/v1", capacity=capacity, reserve=reserve
    )
    settings = attrs.evolve(settings_of(tmp_path / "store.sqlite3", batch=batch), providers={"fake": described})

    async def first_answers(call: FakeCall) -> None:
        if call.number > 1:
            await trio.sleep_forever()

    provider = ByInputs(first_answers)
    async with (
        open_engine(settings, providers={"fake": provider}) as engine,
        open_sweep(engine, [tenant("acme", one=root)], all=True) as sweep,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(sweep.run)
        await until(lambda: len(provider.calls) == 1 + in_flight)
        await until(lambda: sum(engine.lane().statistics().queued.values()) == in_flight)
        await wait_all_tasks_blocked()
        assert len(provider.calls) == 1 + in_flight
        assert {len(call.texts) for call in provider.calls} == {width}
        assert sum(engine.lane().statistics().queued.values()) == in_flight
        nursery.cancel_scope.cancel()
