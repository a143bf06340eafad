"""G-5: a run with workers in three processes. Its first timeout leaves all of them with no further provider call."""

from __future__ import annotations

import json
import subprocess
import sys

import trio
from gateways import open_house

from embedkit.testing.engine_rules import Rule, hold, nth

WORKER = """
import http.client, json, sys
port, name = int(sys.argv[1]), sys.argv[2]
connection = http.client.HTTPConnection("127.0.0.1", port)
for number in range(3):
    body = json.dumps({"model": "scripted", "input": f"{name} {number}"})
    headers = {"X-Embedkit-Run": "sweep", "X-Embedkit-Priority": "batch"}
    connection.request("POST", "/v1/embeddings", body, headers)
    reply = connection.getresponse()
    print(json.dumps([reply.status, json.loads(reply.read())["error"]["code"]]), flush=True)
connection.close()
"""


async def test_three_processes_share_a_circuit() -> None:
    said: list[list[object]] = []

    async def worker(port: int, name: str) -> None:
        command = [sys.executable, "-c", WORKER, str(port), name]
        ended = await trio.run_process(command, capture_stdout=True, stdin=subprocess.DEVNULL)
        said.extend(json.loads(line) for line in ended.stdout.splitlines())

    async with open_house(provider={"timeout": 1.0}, rules=[Rule(nth(1), hold(trio.Event()))]) as house:
        async with trio.open_nursery() as nursery:
            for name in ("one", "two", "three"):
                nursery.start_soon(worker, house.gateway.port, name)
        assert house.scripted.log.requests == 1
        assert sorted(said) == [*[[503, "provider_circuit_open"]] * 8, [504, "provider_timeout"]]
        assert house.gateway.shared.trips == {"box": 1}
        # Another run is not concerned.
        assert (await house.embed("other", headers={"X-Embedkit-Run": "another"})).status_code == 200
        await house.settled()
