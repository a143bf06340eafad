"""What is shown: status, events, metrics, the page, and ``embedkit top``; never a text, a vector or a key."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest
import trio
from gateways import House, open_house, wait_until
from prometheus_client.parser import text_string_to_metric_families
from test_door import ENVIRON, WITH_KEYS, bearer

from embedkit.gateway.following import Follower
from embedkit.gateway.metrics import OTHER, Tenants
from embedkit.surfaces.top_text import top_lines
from embedkit.testing.engine_rules import Rule, containing, hold, nth, status

SECRET_TEXT = "a text that nobody may see"


async def events(house: House, count: int) -> list[dict[str, Any]]:
    follower = Follower(house.gateway.url)
    found = [await follower.next() for _ in range(count)]
    await follower.aclose()
    return [one for one in found if one is not None]


async def busy(house: House, nursery: trio.Nursery) -> None:
    """One call out, two waiting."""
    nursery.start_soon(partial(house.embed, SECRET_TEXT, headers={"X-Embedkit-Tenant": "acme", "X-Embedkit-Run": "r"}))
    await house.scripted.wait_for_requests(1)
    for _ in range(2):
        nursery.start_soon(partial(house.embed, SECRET_TEXT, headers={"X-Embedkit-Priority": "batch"}))
    await wait_until(lambda: house.totals.queued == 2)


async def test_status_says_who_is_where() -> None:
    async with open_house(rules=[Rule(containing("bad"), status(400, "no"))]) as house:
        await house.embed("bad", headers={"X-Embedkit-Tenant": "acme"})
        await house.embed(SECRET_TEXT)
        reply = await house.client.get("/embedkit/status")
        assert SECRET_TEXT not in reply.text
        document = reply.json()
        (lane,) = document["lanes"]
        assert (lane["provider"], lane["kind"], lane["model"]) == ("box", "openai-compatible", "scripted")
        assert (lane["totals"]["succeeded"], lane["totals"]["failed"]) == (1, 1)
        newest, oldest = document["last"]
        assert (newest["outcome"], newest["status"], newest["code"], newest["tenant"]) == ("succeeded", 200, None, None)
        assert (oldest["outcome"], oldest["status"], oldest["tenant"]) == ("failed", 400, "acme")
        assert newest["provider_time"] > 0


async def test_events_tell_of_each_change_and_hold_nobody_up() -> None:
    async with open_house(rules=[Rule(nth(1), hold(trio.Event()))]) as house, trio.open_nursery() as nursery:
        found: list[dict[str, Any]] = []

        async def follow() -> None:
            found.extend(await events(house, 2))

        async with trio.open_nursery() as readers:
            readers.start_soon(follow)
            await wait_until(lambda: house.gateway._busy == 1)
            await busy(house, nursery)
        first, second = (one["lanes"][0] for one in found)
        assert first["slots"] == first["waiting"] == []
        assert [(one["tenant"], one["run"], one["class"]) for one in second["slots"]] == [("acme", "r", "interactive")]
        assert [one["class"] for one in second["waiting"]] == ["batch", "batch"]
        assert second["queued"] == {"batch": 2}
        assert found[1]["at"] - found[0]["at"] >= 0.5
        nursery.cancel_scope.cancel()


async def test_a_reader_of_events_does_not_hold_up_the_end() -> None:
    with trio.fail_after(5):
        async with open_house() as house:
            stream = await trio.open_tcp_stream("127.0.0.1", house.gateway.port)
            await stream.send_all(b"GET /embedkit/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert b"snapshot" in await stream.receive_some(65536)
            house.gateway.close()
            while data := await stream.receive_some(65536):
                last = data
            assert last.endswith(b"0\r\n\r\n")
            await stream.aclose()


async def test_metrics_are_what_prometheus_reads() -> None:
    async with open_house(rules=[Rule(nth(2), hold(trio.Event()))]) as house, trio.open_nursery() as nursery:
        await house.embed("a")
        nursery.start_soon(partial(house.embed, SECRET_TEXT, headers={"X-Embedkit-Tenant": "acme"}))
        await house.scripted.wait_for_requests(2)
        nursery.start_soon(partial(house.embed, SECRET_TEXT, headers={"X-Embedkit-Priority": "batch"}))
        await wait_until(lambda: house.totals.queued == 1)
        text = (await house.client.get("/metrics")).text
        assert SECRET_TEXT not in text
        samples = {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        lane = ("lane", "box")
        assert samples["embedkit_tickets_total", lane, ("outcome", "offered")] == 3
        assert samples["embedkit_tickets_total", lane, ("outcome", "succeeded")] == 1
        assert samples["embedkit_in_flight", lane] == 1
        assert samples["embedkit_capacity", lane] == 1
        assert samples["embedkit_waiting", ("class", "batch"), lane] == 1
        assert samples["embedkit_queue_wait_seconds_count", ("class", "interactive"), lane] == 1
        assert samples["embedkit_provider_time_seconds_sum", ("class", "interactive"), lane] > 0
        assert samples["embedkit_tenant_requests", ("tenant", "")] == 1
        assert samples["embedkit_circuit_trips_total", lane] == 0
        nursery.cancel_scope.cancel()


def test_tenants_beyond_the_fifty_busiest_are_one() -> None:
    tenants = Tenants()
    for number in range(5_000):
        tenants.add(f"t{number}", float(number))
    shown = dict(tenants.busiest())
    assert len(shown) == 51
    assert "t4999" in shown
    assert sum(had.requests for had in shown.values()) == 5_000
    assert sum(had.seconds for had in shown.values()) == sum(range(5_000))
    assert shown[OTHER].requests == 5_000 - 50


async def test_who_looks_needs_a_key_where_there_are_keys() -> None:
    async with open_house(gateway=WITH_KEYS, environ=ENVIRON) as house:
        for path in ("/embedkit/status", "/embedkit/events", "/metrics"):
            assert (await house.client.get(path)).status_code == 401
        for path in ("/", "/healthz", "/readyz"):
            assert (await house.client.get(path)).status_code == 200
        assert (await house.client.get("/embedkit/status", headers=bearer("people-secret"))).status_code == 200


async def test_the_page_names_nothing_outside() -> None:
    async with open_house() as house:
        reply = await house.client.get("/")
        assert reply.headers["content-type"] == "text/html; charset=utf-8"
        policy = reply.headers["content-security-policy"]
        (nonce,) = set(re.findall(r"'nonce-([^']+)'", policy))
        assert policy.startswith("default-src 'none'")
        assert "connect-src 'self'" in policy
        assert reply.text.count(f'nonce="{nonce}"') == 2
        assert "NONCE" not in reply.text
        assert set(re.findall(r"https?://[^\"' ]+", reply.text)) == {"http://www.w3.org/2000/svg"}
        assert "innerHTML" not in reply.text  # a tenant's name is text
        assert (await house.client.get("/")).headers["content-security-policy"] != policy


@pytest.mark.parametrize("kind", ["openai-compatible", "ollama"])
async def test_health_is_read_and_never_asked(kind: str) -> None:
    async with open_house(kind) as house:
        for _ in range(3):
            assert (await house.client.get("/healthz")).json() == {"status": "ok"}
            assert (await house.client.get("/readyz")).json() == {"status": "ok", "engines": {"box": "unknown"}}
        await house.embed("a")
        assert (await house.client.get("/readyz")).json()["engines"] == {"box": "healthy"}
        assert house.scripted.log.requests == 1
        assert house.scripted.log.listings == 0


async def test_top_shows_it_in_text() -> None:
    async with open_house(rules=[Rule(nth(1), hold(trio.Event()))]) as house, trio.open_nursery() as nursery:
        await busy(house, nursery)
        (snapshot,) = await events(house, 1)
        text = "\n".join(top_lines(snapshot))
        assert "box: scripted at 127.0.0.1:" in text
        assert "1 of 1 in flight; waiting: 2 batch" in text
        assert re.search(r"in a slot  \S+ +interactive +acme +1 inputs", text)
        assert SECRET_TEXT not in text
        nursery.cancel_scope.cancel()
