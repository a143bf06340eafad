"""What a call through embedkit costs, beside its peers, on one engine: ``python -m benchmarks.providers``.

The engine is scripted and runs in a process of its own; everybody asks it for the same vectors over the same wire.
Peers take turns within each round. A peer that is not installed is left out, and it is said so.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import h11
import httpx
import numpy as np
import orjson
import trio

from benchmarks.measure import ROOT, Figure, interleaved, ratio, report, say
from embedkit.engine import Engine, open_engine
from embedkit.providers.exchange import Reply
from embedkit.providers.openai_compatible import OpenAICompatibleProvider
from embedkit.settings import (
    EmbeddingSettings,
    ProviderSettings,
    RepositorySettings,
    Settings,
    StoreSettings,
    SweepSettings,
    TenantSettings,
)
from embedkit.sweep.progress import Progress
from embedkit.sweep.sweep import open_sweep
from embedkit.testing.scripted_engine import open_scripted_engine

REQUESTS = 400
ROUNDS = 5
TASKS = (1, 16, 64)
TEXT = "one short text, as a search has it"
BATCH = [f"text number {number} of a batch, some words long" for number in range(32)]
DIMENSION = 768
SLOTS = 4

Ask = Callable[[], Awaitable[object]]


@contextmanager
def engine_process(*options: str) -> Iterator[str]:
    """A scripted engine in a process of its own; its address."""
    command = [sys.executable, "-m", "embedkit.testing.engine_process", "--dimension", str(DIMENSION), *options]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


# -- the peers: each opens its client and gives what one request is ---------------------------------------------------


@asynccontextmanager
async def embedkit_client(url: str, texts: list[str], *, capacity: int = 64) -> AsyncGenerator[Ask]:
    """The whole engine: settings, lane, ledger, validation."""
    async with open_engine(settings_for(url, capacity=capacity)) as engine:
        yield partial(engine.embed, texts, priority="interactive", timeout=60.0)


@asynccontextmanager
async def httpx_client(url: str, texts: list[str], *, encoding: str = "base64") -> AsyncGenerator[Ask]:
    """One bare client for all tasks, with json and nothing checked."""
    async with httpx.AsyncClient(timeout=60.0) as client:

        async def ask() -> object:
            body = {"model": "scripted", "input": texts, "encoding_format": encoding}
            reply = await client.post(f"{url}/v1/embeddings", json=body)
            reply.raise_for_status()
            rows = [item["embedding"] for item in json.loads(reply.content)["data"]]
            if encoding == "base64":
                rows = [np.frombuffer(base64.b64decode(row), dtype=np.float32) for row in rows]
            return np.array(rows, dtype=np.float32)

        yield ask


@asynccontextmanager
async def openai_client(url: str, texts: list[str]) -> AsyncGenerator[Ask]:
    """The official SDK, as it comes."""
    import openai

    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield partial(client.embeddings.create, model="scripted", input=texts)


@asynccontextmanager
async def litellm_client(url: str, texts: list[str]) -> AsyncGenerator[Ask]:
    """LiteLLM's router with one deployment."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or its import asks the network for prices
    import litellm  # type: ignore[import-not-found,unused-ignore]  # a peer, not a dependency

    litellm.suppress_debug_info = True
    described = {"model": "openai/scripted", "api_base": f"{url}/v1", "api_key": "none"}
    router = litellm.Router(model_list=[{"model_name": "scripted", "litellm_params": described}], num_retries=0)
    yield partial(router.aembedding, model="scripted", input=texts, encoding_format="float")


class BareConnection:
    """h11 over a socket, and nothing else: what one connection can do in this language."""

    def __init__(self, stream: trio.SocketStream, host: str, texts: list[str]) -> None:
        self._stream = stream
        self._state = h11.Connection(our_role=h11.CLIENT)
        self._host = host
        self._body = {"model": "scripted", "input": texts, "encoding_format": "base64"}

    async def ask(self) -> object:
        """One request; its vectors, unchecked."""
        body = json.dumps(self._body).encode()
        head = h11.Request(
            method="POST",
            target="/v1/embeddings",
            headers=[
                ("Host", self._host),
                ("Content-Type", "application/json"),
                ("Content-Length", str(len(body))),
            ],
        )
        parts = [self._state.send(head), self._state.send(h11.Data(data=body)), self._state.send(h11.EndOfMessage())]
        await self._stream.send_all(b"".join(part for part in parts if part))
        received = []
        while True:
            event = self._state.next_event()
            if event is h11.NEED_DATA:
                self._state.receive_data(await self._stream.receive_some(65_536))
            elif isinstance(event, h11.Data):
                received.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                break
        self._state.start_next_cycle()
        rows = [item["embedding"] for item in json.loads(b"".join(received))["data"]]
        return np.array([np.frombuffer(base64.b64decode(row), dtype=np.float32) for row in rows])


@asynccontextmanager
async def h11_client(url: str, texts: list[str]) -> AsyncGenerator[Ask]:
    """A bare connection for each task that asks."""
    host, port = url.removeprefix("http://").rsplit(":", 1)
    connections: dict[trio.lowlevel.Task, BareConnection] = {}

    async def ask() -> object:
        task = trio.lowlevel.current_task()
        if task not in connections:
            connections[task] = BareConnection(await trio.open_tcp_stream(host, int(port)), host, texts)
        return await connections[task].ask()

    yield ask
    for connection in connections.values():
        await connection._stream.aclose()


def settings_for(url: str, *, capacity: int, batch: int | None = None) -> Settings:
    """One provider, which is the engine at ``url``."""
    return Settings(
        providers={
            "box": ProviderSettings(
                kind="openai-compatible", base_url=f"{url}/v1", model="scripted", capacity=capacity, reserve=0
            )
        },
        embedding=EmbeddingSettings(provider="box", batch=batch),
    )


# -- a rate ------------------------------------------------------------------------------------------------------------

Client = Callable[[], Any]


def rate_under_trio(client: Client, tasks: int, requests: int) -> float:
    """Requests a second of ``tasks`` tasks over one client."""

    async def measure() -> float:
        async with client() as ask:

            async def caller(count: int) -> None:
                for _ in range(count):
                    await ask()

            async def turn(count: int) -> None:
                async with trio.open_nursery() as nursery:
                    for _ in range(tasks):
                        nursery.start_soon(caller, count)

            await turn(2)
            began = time.perf_counter()
            await turn(requests // tasks)
            return requests // tasks * tasks / (time.perf_counter() - began)

    return trio.run(measure)


def rate_under_asyncio(client: Client, tasks: int, requests: int) -> float:
    """As ``rate_under_trio``, for a peer that knows asyncio only."""

    async def measure() -> float:
        async with client() as ask:

            async def caller(count: int) -> None:
                for _ in range(count):
                    await ask()

            async def turn(count: int) -> None:
                await asyncio.gather(*(caller(count) for _ in range(tasks)))

            await turn(2)
            began = time.perf_counter()
            await turn(requests // tasks)
            return requests // tasks * tasks / (time.perf_counter() - began)

    return asyncio.run(measure())


def short_texts(url: str) -> Iterator[Figure]:
    """One short text a request, against each peer."""
    bounds: dict[str, dict[int, float | None]] = {"httpx": dict(zip(TASKS, (0.85, 1.3, 2.0), strict=True))}
    # Most of the time is the engine's and the kernel's, which is the same for both: one at a time, half.
    bounds["openai"] = dict.fromkeys(TASKS, 2.0)
    bounds["h11"] = dict(zip(TASKS, (None, None, 0.5), strict=True))
    bounds["litellm"] = dict.fromkeys(TASKS, 5.0)
    for tasks in TASKS:
        works: dict[str, Callable[[], float]] = {
            "embedkit": partial(rate_under_trio, partial(embedkit_client, url, [TEXT]), tasks, REQUESTS),
            "httpx": partial(rate_under_trio, partial(httpx_client, url, [TEXT]), tasks, REQUESTS),
            "h11": partial(rate_under_trio, partial(h11_client, url, [TEXT]), tasks, REQUESTS),
        }
        if find_spec("openai") is not None:
            works["openai"] = partial(rate_under_trio, partial(openai_client, url, [TEXT]), tasks, REQUESTS // 2)
        if find_spec("litellm") is not None:
            works["litellm"] = partial(rate_under_asyncio, partial(litellm_client, url, [TEXT]), tasks, REQUESTS // 2)
        rates = interleaved(works, ROUNDS)
        ours = rates.pop("embedkit")
        yield Figure(f"embedkit, {tasks} tasks", None, statistics.median(ours), unit="requests/s")
        for peer, theirs in rates.items():
            yield Figure(f"  over {peer}, {tasks} tasks", bounds[peer][tasks], ratio(ours, theirs))


def batches(url: str) -> Iterator[Figure]:
    """Batches of 32 inputs with vectors of 768 numbers, against httpx and json on JSON floats."""
    rates = interleaved(
        {
            "embedkit": partial(rate_under_trio, partial(embedkit_client, url, BATCH), 1, 60),
            "httpx": partial(rate_under_trio, partial(httpx_client, url, BATCH, encoding="float"), 1, 60),
        },
        ROUNDS,
    )
    ours = rates["embedkit"]
    yield Figure("batches of 32 x 768", None, 32 * statistics.median(ours), unit="vectors/s")
    yield Figure("  over httpx and json on JSON floats", 4.0, ratio(ours, rates["httpx"]))


# -- a reply -----------------------------------------------------------------------------------------------------------


def decoding() -> Iterator[Figure]:
    """A reply of 32 x 1,024 decoded and checked, against orjson and base64 alone."""
    inputs, width = 32, 1_024
    rows = np.random.default_rng(0).standard_normal((inputs, width)).astype(np.float32)
    items = [{"index": i, "embedding": base64.b64encode(row.tobytes()).decode()} for i, row in enumerate(rows)]
    reply = Reply(200, {}, orjson.dumps({"object": "list", "data": items, "model": "m"}))
    provider = OpenAICompatibleProvider("here", "http://host:1/v1", "m")
    texts = [TEXT] * inputs

    def ours() -> object:
        return provider.read(reply, texts)

    def bare() -> object:
        data = orjson.loads(reply.body)["data"]
        return np.stack([np.frombuffer(base64.b64decode(item["embedding"]), dtype=np.float32) for item in data])

    def seconds(work: Callable[[], object]) -> float:
        began = time.perf_counter()
        for _ in range(50):
            work()
        return time.perf_counter() - began

    spent = interleaved({"ours": partial(seconds, ours), "bare": partial(seconds, bare)}, 5 * ROUNDS)
    yield Figure(
        "a reply of 32 x 1,024 read, over orjson and base64", 1.5, ratio(spent["ours"], spent["bare"]), "at most"
    )


# -- a backlog ---------------------------------------------------------------------------------------------------------


def backlog(folder: Path, url: str, inputs: int) -> Settings:
    """Settings for a repository of as many inputs as that, on an engine of four slots."""
    root = folder / "tree"
    root.mkdir()
    for number in range(inputs):
        (root / f"{number:05}.txt").write_text(f"text number {number}\n", "utf-8")
    described = settings_for(url, capacity=SLOTS)
    repository = RepositorySettings(name="tree", path=root)
    return Settings(
        providers=described.providers,
        embedding=described.embedding,
        store=StoreSettings(path=folder / "store.sqlite3"),
        sweep=SweepSettings(slice=3600.0),
        tenants=(TenantSettings(name="acme", repositories=(repository,)),),
    )


async def _landings(settings: Settings) -> list[tuple[float, int]]:
    """A sweep: when each of its batches was stored, and how many vectors there were then."""
    landed: list[tuple[float, int]] = []

    def watch(progress: Progress) -> None:
        if progress.tally.embedded:
            landed.append((time.perf_counter(), progress.tally.embedded))

    async with open_engine(settings, reserve=0) as engine, open_sweep(engine, all=True, on_progress=watch) as sweep:
        (done,) = (await sweep.run()).repositories
        assert done.outcome == "complete"
    return landed


def busy_share(service: float, inputs: int) -> float:
    """Slot-seconds of service, over slot-seconds that there were, while there was a backlog: to the last batch."""
    options = ("--slots", str(SLOTS), "--split", "--service", str(service))
    with tempfile.TemporaryDirectory() as folder, engine_process(*options) as url:
        landed = trio.run(_landings, backlog(Path(folder), url, inputs))
    (began, first), (ended, last) = landed[0], max(landed, key=lambda each: (each[1], -each[0]))
    return (last - first) * service / (SLOTS * (ended - began))


async def _unwanted(folder: Path) -> int:
    """Inputs that the engine has computed, or goes on to compute, for a run that was cancelled."""
    async with open_scripted_engine(slots=SLOTS, split=True, service=0.05, on_leave="run-on") as scripted:
        settings = backlog(folder, scripted.base_url, 400)
        async with open_engine(settings, reserve=0) as engine:
            with trio.CancelScope() as run:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_run, engine)
                    await scripted.wait_for_requests(20)
                    run.cancel()
        # Whatever comes after the cancel comes now.
        await trio.sleep(0.5)
        return sum(record.inputs for record in scripted.log.records if record.outcome != "answered")


async def _run(engine: Engine) -> None:
    async with open_sweep(engine, all=True) as sweep:
        await sweep.run()


def unwanted_batches_a_slot() -> float:
    """Inputs that were bought for nobody, in batches for each slot."""
    with tempfile.TemporaryDirectory() as folder:
        return trio.run(_unwanted, Path(folder)) / (SLOTS * SLOTS)


def figures() -> Iterator[Figure]:
    """All of them, one after the other."""
    for peer in ("openai", "litellm"):
        if find_spec(peer) is None:
            say(f"{peer} is not installed, and is left out")
    with engine_process("--slots", "64") as url:
        yield from short_texts(url)
        yield from batches(url)
    yield from decoding()
    for service, inputs, bound in ((0.2, 160, 95.0), (0.02, 800, 80.0)):
        share = statistics.median(busy_share(service, inputs) for _ in range(3))
        yield Figure(f"slots busy with a backlog, {service * 1000:.0f} ms service", bound, 100 * share, unit="%")
    yield Figure("unwanted batches a slot after a cancel", 1.0, unwanted_batches_a_slot(), "at most")


if __name__ == "__main__":
    sys.exit(report("providers", list(figures())))
