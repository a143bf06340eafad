"""A process with two health checks on one provider: ``python polling_process.py STORE BASE_URL FRESH WORK POLLS``.

It does ``WORK`` calls of real work at the first line on its standard input, then says so; at the second, each check
asks ``POLLS`` times. It prints each verdict as a line of JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import trio

from embedkit import EmbeddingSettings, Engine, ProbeSettings, ProviderSettings, Settings, StoreSettings, open_engine


def main() -> None:
    store, base_url, fresh, work, polls = sys.argv[1:]
    settings = Settings(
        providers={"box": ProviderSettings(kind="openai-compatible", base_url=base_url, model="scripted", capacity=4)},
        embedding=EmbeddingSettings(provider="box"),
        store=StoreSettings(path=Path(store)),
        probe=ProbeSettings(fresh=float(fresh)),
    )
    trio.run(serve, settings, int(work), int(polls))


async def serve(settings: Settings, work: int, polls: int) -> None:
    async with open_engine(settings) as engine:
        await engine.knowledge()
        say("ready")
        await told()
        for number in range(work):
            await engine.embed([f"text {number}"], priority="interactive")
        say("worked")
        await told()
        async with trio.open_nursery() as nursery:
            for count in halves(polls):
                nursery.start_soon(poll, engine, count)


async def poll(engine: Engine, count: int) -> None:
    for _ in range(count):
        say(json.dumps((await engine.probe()).as_json()))


async def told() -> None:
    await trio.to_thread.run_sync(sys.stdin.readline)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def halves(number: int) -> Iterator[int]:
    yield number // 2
    yield number - number // 2


if __name__ == "__main__":
    main()
