"""G-3: many clients, half of whom leave at random moments; afterwards nothing is left, and all are accounted for."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import trio
from gateways import House, open_house, wait_until
from test_leaving import request_bytes

QUESTION: Any = [{"role": "user", "content": "count to ten"}]


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def one(house: House, number: int, draw: random.Random, answered: list[int]) -> None:
    leaves, waits, streams = draw.random() < 0.5, draw.random() * 0.4, draw.random() < 0.5
    path = "/v1/chat/completions" if streams else "/v1/embeddings"
    document = {"model": "scripted", "messages": QUESTION, "stream": True} if streams else house.body(f"text {number}")
    priority = draw.choice(["interactive", "batch"])
    stream = await trio.open_tcp_stream("127.0.0.1", house.gateway.port)
    async with stream:
        await stream.send_all(request_bytes(path, document, X_Embedkit_Priority=priority, Connection="close"))
        found = b""
        with trio.move_on_after(waits if leaves else 60):
            async for data in stream:
                found += data
        if not leaves:
            assert found.startswith(b"HTTP/1.1 200"), found[:200]
            assert found.endswith((b"0\r\n\r\n", b"}"))
            answered.append(number)


async def storm(clients: int, kind: str, seed: int) -> None:
    draw = random.Random(seed)
    async with open_house(kind, provider={"capacity": 4, "max_queued": 10_000}, slots=4, service=0.002) as house:
        assert (await house.embed("before")).status_code == 200
        await house.settled()
        files, tasks = open_files(), trio.lowlevel.current_statistics().tasks_living
        answered: list[int] = []
        async with trio.open_nursery() as nursery:
            for number in range(clients):
                nursery.start_soon(one, house, number, random.Random(draw.random()), answered)
        assert (await house.embed("good")).status_code == 200
        await house.settled()
        totals = house.totals
        # Only those were sent that had a slot: whoever left while queued was not.
        sent = totals.succeeded + totals.failed + totals.aborted
        assert house.scripted.log.requests <= sent
        assert totals.offered == sent + totals.withdrawn
        assert totals.succeeded >= len(answered) + 2
        # Engine connections that are kept are as many as there are slots.
        await wait_until(lambda: open_files() <= files + 2 * 4 and house.gateway._busy == 0)
        await wait_until(lambda: trio.lowlevel.current_statistics().tasks_living <= tasks + 2 * 4)


@pytest.mark.parametrize("kind", ["openai-compatible", "ollama"])
async def test_a_hundred_clients_of_whom_half_leave(kind: str) -> None:
    await storm(100, kind, seed=7)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["openai-compatible", "ollama"])
async def test_a_thousand_clients_of_whom_half_leave(kind: str, seed: int) -> None:
    await storm(1000, kind, seed)
