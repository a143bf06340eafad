"""What a type checker makes of the public surface. Checked, never run: by `make types`, and once with trio-typing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, assert_type

import trio

import embedkit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


async def a_service(nursery: trio.Nursery) -> None:
    settings = embedkit.load_settings()
    assert_type(settings, embedkit.Settings)
    async with embedkit.open_engine(settings) as engine:
        assert_type(engine, embedkit.Engine)
        circuit = embedkit.Circuit()
        found = await engine.embed(
            ["a text"],
            priority="interactive",
            timeout=5.0,
            deadline=10.0,
            circuit=circuit,
            on_provider_timeout=circuit.trip,
        )
        assert_type(found, embedkit.Embeddings)
        if TYPE_CHECKING:
            assert_type(found.vectors, NDArray[np.float32])
        assert_type(found.clocks.queue_wait, float)
        assert_type(await engine.search("words", tenant="acme"), list[embedkit.Hit])
        assert_type(engine.lane().statistics(), embedkit.LaneStatistics)
        async with embedkit.open_sweep(engine, all=True) as sweep:
            assert_type(sweep, embedkit.Sweep)
            report = await sweep.run()
            assert_type(report, embedkit.SweepReport)
            assert_type(report.repositories, Sequence[embedkit.RepositoryReport])
        assert_type(circuit.is_open, bool)
        assert_type(circuit.cause, Exception | None)


async def a_lane_of_ones_own(lane: embedkit.Lane[bytes]) -> None:
    async def call(connection: bytes) -> int:
        await trio.lowlevel.checkpoint()
        return len(connection)

    assert_type(await lane.run(call, embedkit.Ticket(priority="batch", weight=2)), int)
    assert_type(await lane.run_nowait(call, embedkit.Ticket()), int)


def errors(error: embedkit.ProviderError) -> None:
    assert_type(embedkit.is_provider_timeout(error), bool)
    assert_type(error.retry_after, float | None)
    assert_type(error.durable_code, str)
