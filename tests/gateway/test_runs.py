"""Law 3 through the door: the first timeout of a run sheds what is queued of it, whoever asked."""

from __future__ import annotations

from functools import partial

import httpx
import trio
from gateways import House, open_house, wait_until

from embedkit.gateway.runs import FORGOTTEN_AFTER, Runs
from embedkit.testing.engine_rules import Rule, hold, nth


async def test_a_timeout_sheds_the_run_and_nobody_else() -> None:
    replies: dict[str, httpx.Response] = {}

    async def ask(house: House, text: str, **headers: str) -> None:
        named = {f"X-Embedkit-{name}": value for name, value in headers.items()}
        replies[text] = await house.embed(text, headers=named)

    async with open_house(provider={"timeout": 0.2}, rules=[Rule(nth(1), hold(trio.Event()))]) as house:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: ask(house, "first", Run="sweep"))
            await house.scripted.wait_for_requests(1)
            for text in ("second", "third"):
                nursery.start_soon(partial(ask, house, text, Run="sweep"))
            nursery.start_soon(lambda: ask(house, "other", Run="another"))
            nursery.start_soon(lambda: ask(house, "tenant", Run="sweep", Tenant="acme"))
            nursery.start_soon(lambda: ask(house, "alone"))
            await wait_until(lambda: house.totals.queued == 5)
        assert replies["first"].status_code == 504
        for text in ("second", "third"):
            error = replies[text].json()["error"]
            assert (replies[text].status_code, error["code"]) == (503, "provider_circuit_open")
            assert error["cause"] == "KB_VECTOR_EMBED_PROVIDER_TIMEOUT"
            assert replies[text].headers["x-embedkit-attempts"] == "0"
        assert {replies[text].status_code for text in ("other", "tenant", "alone")} == {200}
        assert house.scripted.log.requests == 4
        assert house.totals.shed == 2
        # Later ones too, until the run is forgotten.
        await ask(house, "later", Run="sweep")
        assert replies["later"].status_code == 503
        reply = await house.client.delete("/embedkit/runs/sweep")
        assert reply.json() == {"run": "sweep", "forgotten": True}
        await ask(house, "again", Run="sweep")
        assert replies["again"].status_code == 200
        assert (await house.client.delete("/embedkit/runs/nobody")).status_code == 404
        house.check_balanced()


def test_a_run_is_forgotten_ten_minutes_after_its_last_request() -> None:
    runs = Runs()
    first = runs.enter(None, "r", 0.0)
    runs.leave(None, "r", first, 100.0)
    assert runs.enter(None, "r", 100.0 + FORGOTTEN_AFTER - 1) is first
    runs.leave(None, "r", first, 700.0)
    other = runs.enter(None, "other", 700.0 + FORGOTTEN_AFTER + 1)
    assert len(runs) == 1
    assert runs.enter(None, "r", 700.0 + FORGOTTEN_AFTER + 1) is not first
    # One that has a request here is not forgotten, however long that takes.
    assert runs.enter(None, "other", 10_000.0) is other


def test_runs_of_tenants_are_their_own() -> None:
    runs = Runs()
    assert runs.enter("a", "r", 0.0) is not runs.enter("b", "r", 0.0)
    assert runs.forget("a", "r")
    assert not runs.forget("a", "r")
    assert len(runs) == 1


def test_a_run_that_was_deleted_stays_deleted_when_its_last_request_ends() -> None:
    runs = Runs()
    run = runs.enter(None, "r", 0.0)
    runs.forget(None, "r")
    runs.leave(None, "r", run, 1.0)
    assert len(runs) == 0
