"""What the gateway costs: time added to a request, requests a second, memory of a client that waits.

The engine, the gateway and the client are processes of their own. Latencies are of one client's requests over kept
connections, straight to the engine and through the gateway, taking turns within one run.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from benchmarks.measure import ROOT, Figure, interleaved, ratio, report, say
from embedkit.engine import open_engine
from embedkit.providers.http import HttpEndpoint
from embedkit.providers.relay import Relay
from embedkit.settings import EmbeddingSettings, ProviderSettings, Settings, StoreSettings

SLOTS = 64
BODY = b'{"model": "scripted", "input": "a short text", "encoding_format": "base64"}'
WAITING = 5_000
ROUNDS = 5


@contextmanager
def process(*command: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process and its first line; ended with the block."""
    started = subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    try:
        yield started, started.stdout.readline().strip()
    finally:
        started.kill()
        started.communicate()


@contextmanager
def engine(*options: str) -> Iterator[str]:
    """A scripted engine; its address."""
    with process("-m", "embedkit.testing.engine_process", "--slots", str(SLOTS), *options) as (_, url):
        yield url


@contextmanager
def gateway(url: str, capacity: int = SLOTS) -> Iterator[tuple[int, str]]:
    """A gateway before the engine at ``url``; its process id and address."""
    settings = f"""
version = 1
[providers.box]
kind = "openai-compatible"
base_url = "{url}/v1"
model = "scripted"
capacity = {capacity}
max_queued = 100000
"""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "embedkit.toml"
        file.write_text(settings, "utf-8")
        code = "import sys; from embedkit.surfaces.cli import main; sys.exit(main(sys.argv[1:]))"
        with process("-c", code, "--config", str(file), "serve", "--json", "--listen", "127.0.0.1:0") as (one, line):
            yield one.pid, f"http://{json.loads(line)['listening'][0]}"


async def _requests(url: str, clients: int, each: int) -> list[float]:
    """How long each of the requests took."""
    took: list[float] = []
    endpoint = HttpEndpoint(f"{url}/v1")

    async def client() -> None:
        relay = Relay(endpoint)
        for _ in range(each):
            began = time.perf_counter()
            head = await relay.ask("POST", "/embeddings", BODY)
            while await relay.receive():
                pass
            took.append(time.perf_counter() - began)
            assert head.status == 200
        await relay.aclose()

    async with trio.open_nursery() as nursery:
        for _ in range(clients):
            nursery.start_soon(client)
    return took


def added_time(clients: int, each: int) -> float:
    """Milliseconds that the gateway adds at the median, with an engine that takes 20 ms."""
    with engine("--service", "0.02") as url, gateway(url) as (_, ours):

        def median(address: str) -> Callable[[], float]:
            return lambda: statistics.median(trio.run(_requests, address, clients, each))

        measured = interleaved({"direct": median(url), "gateway": median(ours)}, ROUNDS)
    pairs = zip(measured["gateway"], measured["direct"], strict=True)
    return 1000 * statistics.median(ours - direct for ours, direct in pairs)


async def _embeds(url: str, tasks: int, each: int) -> float:
    box = ProviderSettings(
        kind="openai-compatible", base_url=f"{url}/v1", model="scripted", capacity=tasks, preflight=False
    )
    settings = Settings(
        providers={"box": box},
        embedding=EmbeddingSettings(provider="box"),
        store=StoreSettings(path=Path("never-opened.sqlite3")),
    )
    async with open_engine(settings, reserve=0) as library:

        async def task() -> None:
            for _ in range(each):
                await library.embed(["a short text"], deadline=60.0)

        began = time.perf_counter()
        async with trio.open_nursery() as nursery:
            for _ in range(tasks):
                nursery.start_soon(task)
        return tasks * each / (time.perf_counter() - began)


def throughput() -> Iterator[Figure]:
    """Requests a second of an engine that answers at once: through the gateway, and through the library's own lane."""
    tasks, each = 64, 40

    def through(address: str) -> float:
        began = time.perf_counter()
        trio.run(_requests, address, tasks, each)
        return tasks * each / (time.perf_counter() - began)

    with engine() as url, gateway(url) as (_, ours):
        measured = interleaved(
            {"gateway": lambda: through(ours), "embed": lambda: trio.run(_embeds, url, tasks, each)}, ROUNDS
        )
    rate = statistics.median(measured["gateway"])
    yield Figure("gateway: requests a second, 64 clients, engine at once", None, rate, unit="/s")
    yield Figure("gateway: the same, over engine.embed", 0.6, ratio(measured["gateway"], measured["embed"]))


def memory_of(pid: int) -> int:
    """Bytes of a process that are resident; Linux only."""
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


async def _waiting(pid: int, url: str) -> tuple[float, float]:
    """Bytes that each waiting client costs, and microseconds of the gateway's time that each leaving one costs."""
    port = int(url.rpartition(":")[2])
    head = b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(BODY)
    status = Relay(HttpEndpoint(url))

    async def queued() -> int:
        await status.ask("GET", "/embedkit/status", None)
        body = b""
        while piece := await status.receive():
            body += piece
        return sum(json.loads(body)["lanes"][0]["queued"].values())

    await queued()
    before = memory_of(pid)
    streams = []
    for _ in range(WAITING):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(head + BODY)
        streams.append(stream)
    while await queued() < WAITING - SLOTS:  # noqa: ASYNC110  # another process
        await trio.sleep(0.05)
    each = (memory_of(pid) - before) / WAITING
    spent = _cpu_seconds(pid)
    for stream in streams[SLOTS:]:
        await stream.aclose()
    while await queued() > 0:  # noqa: ASYNC110  # another process
        await trio.sleep(0.05)
    left = 1e6 * (_cpu_seconds(pid) - spent) / (WAITING - SLOTS)
    for stream in streams[:SLOTS]:
        await stream.aclose()
    await status.aclose()
    return each, left


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def figures() -> Iterator[Figure]:
    """All of them, one after the other."""
    for clients, each, bound in ((1, 40, 1.0), (16, 20, 2.0)):
        say(f"added time with {clients} clients ...")
        name = f"gateway: added at the median, 20 ms of service, {clients} client{'s' if clients > 1 else ''}"
        yield Figure(name, bound, added_time(clients, each), "at most", "ms")
    say("requests a second ...")
    yield from throughput()
    if not Path("/proc/self/status").exists():
        return
    say("clients that wait ...")
    with engine("--service", "3600") as url, gateway(url) as (pid, ours):
        each_bytes, left = trio.run(_waiting, pid, ours)
    yield Figure("gateway: memory of a waiting client, 5,000 of them", 25.0, each_bytes / 1000, "at most", "kB")
    yield Figure("gateway: processor time of a client that leaves, of 5,000", None, left, unit="µs")


if __name__ == "__main__":
    sys.exit(report("gateway", list(figures())))
