"""Keys, classes, tenants, deadlines, full rooms: what the door decides, and what it answers."""

from __future__ import annotations

import hashlib
import logging
from typing import Any

import httpx
import pytest
import trio
from gateways import ANY, House, open_house, settings_for, wait_until

from embedkit.engine import open_engine
from embedkit.errors import SettingsError, UsageError
from embedkit.gateway.serving import open_gateway
from embedkit.settings import (
    EmbeddingSettings,
    GatewayKeySettings,
    GatewaySettings,
    Place,
    ProviderSettings,
    Settings,
)
from embedkit.testing import open_scripted_engine
from embedkit.testing.engine_rules import Rule, always, busy, containing, hold, noted_in, nth, status
from embedkit.testing.engine_wire import EngineRequest

KEYS = (
    GatewayKeySettings(name="people", env="PEOPLE_KEY"),
    GatewayKeySettings(name="crawler", env="CRAWLER_KEY", tenant="web", priority="batch", max_queued=2),
    GatewayKeySettings(name="router", sha256=hashlib.sha256(b"router-secret").hexdigest(), trust=True),
)
ENVIRON = {"PEOPLE_KEY": "people-secret", "CRAWLER_KEY": "crawler-secret"}
WITH_KEYS = GatewaySettings(listen=ANY, keys=KEYS)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def row_of_last(house: House) -> Any:
    return list(house.engine.ledger.settled_rows())[-1]


async def test_a_key_is_asked_for_and_never_passed_on(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[EngineRequest] = []
    caplog.set_level(logging.DEBUG)
    async with open_house(gateway=WITH_KEYS, environ=ENVIRON, rules=[noted_in(seen)]) as house:
        for headers in ({}, bearer("wrong"), {"Authorization": "people-secret"}, {"X-Api-Key": "x"}):
            reply = await house.embed("a", headers=headers)
            assert reply.status_code == 401
            assert reply.json()["error"]["code"] == "invalid_api_key"
            assert reply.headers["www-authenticate"] == "Bearer"
        for headers in (bearer("people-secret"), {"X-Api-Key": "people-secret"}):
            assert (await house.embed("a", headers=headers)).status_code == 200
        assert (await house.client.get("/v1/models")).status_code == 401
        assert (await house.client.get("/healthz")).status_code == 200
        assert not any("secret" in str(request.headers) for request in seen)
        assert "secret" not in caplog.text
        assert "secret" not in repr(house.gateway.shared.keyring.__dict__)


async def test_the_engines_own_key_is_put_in_and_comes_to_no_client() -> None:
    async with open_house(
        provider={"api_key_env": "BOX"}, environ={"BOX": "engine-secret"}, api_key="engine-secret"
    ) as house:
        reply = await house.embed("a", headers=bearer("whatever"))
        assert reply.status_code == 200
        assert "engine-secret" not in str(reply.headers) + reply.text


async def test_a_keys_class_is_the_highest_it_gets() -> None:
    async with open_house(gateway=WITH_KEYS, environ=ENVIRON) as house:
        for key, asked, given in (
            ("people-secret", None, "interactive"),
            ("people-secret", "batch", "batch"),
            ("crawler-secret", None, "batch"),
            ("crawler-secret", "interactive", "batch"),
        ):
            headers = bearer(key) | ({} if asked is None else {"X-Embedkit-Priority": asked})
            assert (await house.embed("a", headers=headers)).status_code == 200
            assert row_of_last(house).priority == given


async def test_a_tenant_is_the_keys_and_trusted_keys_may_name_one() -> None:
    async with open_house(gateway=WITH_KEYS, environ=ENVIRON) as house:
        for key, named, tenant in (
            ("people-secret", None, "people"),
            ("crawler-secret", None, "web"),
            ("crawler-secret", "web", "web"),
            ("router-secret", "acme", "acme"),
        ):
            headers = bearer(key) | ({} if named is None else {"X-Embedkit-Tenant": named})
            assert (await house.embed("a", headers=headers)).status_code == 200
            assert row_of_last(house).tenant == tenant
        reply = await house.embed("a", headers=bearer("people-secret") | {"X-Embedkit-Tenant": "web"})
        assert (reply.status_code, reply.json()["error"]["code"]) == (403, "tenant_not_trusted")
    async with open_house() as house:
        await house.embed("a", headers={"X-Embedkit-Tenant": "acme"})
        assert row_of_last(house).tenant == "acme"  # nobody is to be trusted where there are no keys


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("X-Embedkit-Priority", "urgent"),
        ("X-Embedkit-Priority", ""),
        ("X-Embedkit-Deadline", "soon"),
        ("X-Embedkit-Deadline", "0"),
        ("X-Embedkit-Deadline", "-1"),
        ("X-Embedkit-Deadline", "nan"),
        ("X-Embedkit-Deadline", "1e400"),
        ("X-Embedkit-Run", "x" * 201),
        ("X-Embedkit-Tenant", ""),
    ],
)
async def test_a_header_that_makes_no_sense_is_named(header: str, value: str) -> None:
    async with open_house() as house:
        reply = await house.embed("a", headers={header: value})
        assert reply.status_code == 400
        assert header.lower() in reply.json()["error"]["message"]
        assert house.totals.offered == 0


async def test_a_full_room_says_when_to_come_again() -> None:
    async with open_house(provider={"max_queued": 1}, rules=[Rule(nth(1), hold(trio.Event()))]) as house:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(house.embed, "first")
            await house.scripted.wait_for_requests(1)
            nursery.start_soon(house.embed, "second")
            await wait_until(lambda: house.totals.queued == 1)
            reply = await house.embed("third")
            assert reply.status_code == 429
            assert reply.json()["error"]["code"] == "lane_full"
            assert 1 <= int(reply.headers["retry-after"]) <= 60
            assert house.totals.offered == 2  # who is refused was not offered
            nursery.cancel_scope.cancel()
        await house.settled()


async def test_a_keys_own_bound_on_who_waits() -> None:
    async with open_house(gateway=WITH_KEYS, environ=ENVIRON, rules=[Rule(nth(1), hold(trio.Event()))]) as house:
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(lambda: house.embed("a", headers=bearer("crawler-secret")))
                await wait_until(lambda number=number: house.totals.offered == number + 1)
            reply = await house.embed("a", headers=bearer("crawler-secret"))
            assert reply.status_code == 429
            assert "crawler" in reply.json()["error"]["message"]
            nursery.start_soon(lambda: house.embed("a", headers=bearer("people-secret")))
            await wait_until(lambda: house.totals.queued == 3)
            nursery.cancel_scope.cancel()
        await house.settled()


async def test_a_deadline_that_passes_in_the_queue() -> None:
    async with open_house(rules=[Rule(nth(1), hold(trio.Event()))]) as house:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(house.embed, "first")
            await house.scripted.wait_for_requests(1)
            reply = await house.embed("second", headers={"X-Embedkit-Deadline": "0.1"})
            assert reply.status_code == 503
            error = reply.json()["error"]
            assert (error["code"], error["attribution"]) == ("queue_wait_exceeded", "queue")
            assert float(reply.headers["x-embedkit-queue-wait"]) >= 0.1
            assert reply.headers["x-embedkit-attempts"] == "0"
            assert "retry-after" in reply.headers
            nursery.cancel_scope.cancel()
        assert house.scripted.log.requests == 1


async def test_the_gateways_own_bound_on_the_wait_is_for_the_wait_alone() -> None:
    released = trio.Event()
    bound = GatewaySettings(listen=ANY, queue_deadline=0.15)
    async with open_house(gateway=bound, rules=[Rule(nth(1), hold(released))]) as house:
        replies: list[httpx.Response] = []

        async def ask(text: str) -> None:
            replies.append(await house.embed(text))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "first")
            await house.scripted.wait_for_requests(1)
            await ask("second")
            assert replies[0].json()["error"]["code"] == "queue_wait_exceeded"
            await trio.sleep(0.1)
            released.set()  # far beyond the bound, in the engine
        assert replies[1].status_code == 200


async def test_a_deadline_that_passes_while_the_call_is_out() -> None:
    async with open_house(rules=[Rule(nth(1), hold(trio.Event()))]) as house:
        reply = await house.embed("first", headers={"X-Embedkit-Deadline": "0.1"})
        assert (reply.status_code, reply.json()["error"]["code"]) == (504, "deadline_exceeded")
        await house.settled()


async def test_a_providers_timeout() -> None:
    async with open_house(provider={"timeout": 0.1}, rules=[Rule(nth(1), hold(trio.Event()))]) as house:
        reply = await house.embed("first")
        error = reply.json()["error"]
        assert (reply.status_code, error["code"], error["attribution"]) == (504, "provider_timeout", "provider")
        assert reply.headers["x-embedkit-attempts"] == "1"
        assert 0.1 <= float(reply.headers["x-embedkit-provider-time"]) < 2
        house.check_balanced()


async def test_an_engine_that_is_not_there() -> None:
    async with open_house() as house:
        await house.scripted.kill()
        reply = await house.embed("a")
        assert (reply.status_code, reply.json()["error"]["code"]) == (502, "connection_refused")
        assert reply.headers["x-embedkit-attempts"] == "2"  # the provider's table
        assert float(reply.headers["x-embedkit-retry-wait"]) >= 1
        house.check_balanced()


async def test_what_the_engine_answers_goes_through_as_it_is() -> None:
    rules = [
        Rule(containing("long"), status(400, "maximum context length is 512 tokens")),
        Rule(containing("large"), status(413, "too large")),
        Rule(containing("busy"), busy(retry_after="7")),
    ]
    async with open_house(rules=rules) as house:
        for text, code in (("long", 400), ("large", 413), ("busy", 429)):
            reply = await house.embed(text, headers={"X-Embedkit-Deadline": "5"})
            assert reply.status_code == code
            assert reply.json()["error"]["type"] == "error"  # the engine's own words
            assert "x-embedkit-ticket" in reply.headers
        assert reply.headers["retry-after"] == "7"
        house.check_balanced()


async def test_a_batch_requests_busy_engine_is_waited_for() -> None:
    async with open_house(rules=[Rule(always, busy(retry_after="0"), times=2)]) as house:
        reply = await house.embed("a", headers={"X-Embedkit-Priority": "batch"})
        assert reply.status_code == 200
        assert reply.headers["x-embedkit-attempts"] == "3"
        assert house.totals.succeeded == 1


async def test_a_weight_is_the_number_of_inputs_on_a_lane_that_counts_them() -> None:
    async with open_house(provider={"capacity": 4}) as house:
        await house.embed("a", "b", "c")
        assert (row_of_last(house).weight, row_of_last(house).inputs) == (3, 3)
        await house.client.post("/v1/embeddings", json={"model": "scripted", "input": [1, 2, 3]})
        assert row_of_last(house).weight == 1
    async with open_house("ollama") as house:
        await house.embed("a", "b", "c")
        assert (row_of_last(house).weight, row_of_last(house).inputs) == (1, 3)


async def test_a_trace_is_passed_on_and_nothing_that_is_ours() -> None:
    seen: list[EngineRequest] = []
    async with open_house(rules=[noted_in(seen)]) as house:
        trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        await house.embed("a", headers={"traceparent": trace, "X-Embedkit-Run": "r", "Cookie": "c=1"})
        assert seen[0].headers["traceparent"] == trace
        assert not {"x-embedkit-run", "cookie"} & set(seen[0].headers)


async def test_what_changes_an_engine_is_not_passed_on() -> None:
    async with open_house("ollama") as house:
        for path in ("pull", "push", "create", "copy", "delete"):
            reply = await house.client.post(f"/api/{path}", json={"model": "scripted"})
            assert (reply.status_code, reply.json()["code"]) == (403, "administration")
        assert house.scripted.log.requests == house.scripted.log.listings == 0


async def test_what_changes_an_engine_is_passed_on_where_the_settings_say_so() -> None:
    asked: list[bytes] = []

    async def engine(stream: trio.SocketStream) -> None:
        async with stream:
            asked.append(bytes(await stream.receive_some(65536)))
            body = b'{"status": "pulling"}\n{"status": "success"}\n'
            await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, engine, listeners)
        box = ProviderSettings(kind="ollama", base_url=f"http://127.0.0.1:{port}", model="m")
        settings = Settings(
            providers={"box": box},
            embedding=EmbeddingSettings(provider="box"),
            gateway=GatewaySettings(listen=ANY, administration=True),
        )
        async with (
            open_engine(settings) as library,
            open_gateway(library) as opened,
            httpx.AsyncClient(base_url=opened.url, trust_env=False) as client,
        ):
            for method, path in (("POST", "/api/pull"), ("DELETE", "/api/delete")):
                reply = await client.request(method, path, json={"model": "m"})
                assert reply.text.splitlines() == ['{"status": "pulling"}', '{"status": "success"}']
                assert asked[-1].startswith(f"{method} {path} HTTP/1.1\r\n".encode())
                assert asked[-1].endswith(b'{"model":"m"}')
            assert (await client.put("/api/copy")).status_code == 405
        nursery.cancel_scope.cancel()


async def test_methods_and_paths_that_are_not_there() -> None:
    async with open_house() as house:
        reply = await house.client.get("/v1/embeddings")
        assert (reply.status_code, reply.headers["allow"]) == (405, "POST")
        reply = await house.client.delete("/v1/models")
        assert (reply.status_code, reply.headers["allow"]) == (405, "GET")
        assert (await house.client.head("/healthz")).content == b""
        for path in ("/v1/files", "/api/blobs/sha256:1", "/v1/../admin", "/metricsx"):
            assert (await house.client.get(path)).status_code == 404
        assert house.scripted.log.requests == 0


async def test_a_foreign_page_may_not_ask() -> None:
    async with open_house(gateway=GatewaySettings(listen=ANY, hosts=("gateway.example.org",))) as house:
        port = house.gateway.port
        for headers, expected in (
            ({}, 404),
            ({"Host": f"localhost:{port}"}, 404),
            ({"Host": "gateway.example.org"}, 404),
            ({"Host": "evil.example.org"}, 403),
            ({"Origin": f"http://127.0.0.1:{port}"}, 404),
            ({"Origin": "https://evil.example.org"}, 403),
            ({"Origin": "null"}, 403),
            ({"Sec-Fetch-Site": "cross-site"}, 403),
        ):
            reply = await house.client.delete("/embedkit/runs/r", headers=headers)
            assert reply.status_code == expected, headers


async def test_no_key_no_network() -> None:
    async with open_scripted_engine() as scripted:
        for host in ("0.0.0.0", "example.org", "10.1.2.3", "::"):
            settings = settings_for(scripted, gateway=GatewaySettings(listen=(Place(host, 0),)))
            async with open_engine(settings) as engine:
                with pytest.raises(UsageError, match="there are no keys"):
                    async with open_gateway(engine):
                        pass


async def test_a_key_that_is_not_set_and_one_that_is_there_twice() -> None:
    async with open_scripted_engine() as scripted:
        settings = settings_for(scripted, gateway=WITH_KEYS)
        for environ, message in (
            ({}, r"gateway.keys\[0\].env.*PEOPLE_KEY"),
            (dict.fromkeys(ENVIRON, "the same"), "give each its own"),
        ):
            async with open_engine(settings, environ=environ) as engine:
                with pytest.raises(SettingsError, match=message):
                    async with open_gateway(engine):
                        pass


async def test_a_unix_socket(tmp_path: Any) -> None:
    path = tmp_path / "gateway.sock"
    listen = GatewaySettings(listen=(Place(path=path), *ANY))
    async with open_house(gateway=listen) as house:
        transport = httpx.AsyncHTTPTransport(uds=str(path))
        async with httpx.AsyncClient(transport=transport, base_url="http://anything") as client:
            assert (await client.post("/v1/embeddings", json=house.body("a"))).status_code == 200
        assert path.stat().st_mode & 0o777 == 0o600
    assert not path.exists()
