"""What the tools do and say, asked by a client in the same process; waits pass in virtual time."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from command_line import HashModel
from fakes import write_tree
from mcp import Client, MCPError
from mcp_world import document
from trio.testing import MockClock

from embedkit import Document
from embedkit.engine import Engine, open_engine
from embedkit.providers import local
from embedkit.settings import Limit, PanelMember, ProviderSettings, Settings, StoreSettings
from embedkit.settings.tables import (
    AskSettings,
    ConsensusSettings,
    EmbeddingSettings,
    McpSettings,
    RepositorySettings,
    TenantSettings,
)
from embedkit.surfaces.mcp.limits import Limits
from embedkit.surfaces.mcp.server import make_server
from embedkit.surfaces.mcp.tools import TOOLS, Call, Tool
from embedkit.sweep.sweep import open_sweep
from embedkit.testing import Rule, open_scripted_engine
from embedkit.testing.engine_rules import Behaviour, always, nth, stall_after_headers


@pytest.fixture
def autojump_clock() -> MockClock:
    # Real sockets: a moment's grace before the clock jumps.
    return MockClock(autojump_threshold=0.02)


@pytest.fixture
def patient_clock() -> MockClock:
    # Threads too, which a busy machine lets wait.
    return MockClock(autojump_threshold=0.5)


@asynccontextmanager
async def client_of(engine: Engine) -> AsyncGenerator[Client]:
    async with Client(make_server(engine), mode="legacy") as client:
        yield client


@asynccontextmanager
async def asking(folder: Path, *rules: Rule, **more: Any) -> AsyncGenerator[tuple[Client, Engine]]:
    """A client whose server's panel are two aliases of one scripted engine."""
    async with open_scripted_engine(slots=4, rules=rules) as served:
        settings = Settings(
            providers={
                "box": ProviderSettings(
                    kind="openai-compatible", base_url=served.openai_url, model="scripted", capacity=4, timeout=500.0
                )
            },
            ask=AskSettings(panel=tuple(PanelMember(provider="box", alias=alias) for alias in ("a", "b"))),
            consensus=ConsensusSettings(arbiter="a"),
            store=StoreSettings(path=folder / "kb.sqlite3"),
            mcp=McpSettings(**more),
        )
        async with open_engine(settings, environ={}) as engine, client_of(engine) as client:
            yield client, engine


async def test_every_limit_ends_before_the_outermost_and_says_its_name(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with asking(tmp_path, Rule(always, stall_after_headers()), timeout=100.0) as (client, _):
        began_at = trio.current_time()
        found = document(await client.call_tool("ask_all", {"question": "q"}))
        assert trio.current_time() - began_at == pytest.approx(95.0)
        assert [result["kind"] for result in found["results"]] == ["timeout", "timeout"]
        assert all("(mcp.timeout, less its margin: 95 s)" in result["message"] for result in found["results"])

        found = document(await client.call_tool("ask_one", {"question": "q", "who": "a", "deadline": 20}))
        assert "(the request's deadline: 20 s)" in found["message"]
        found = document(await client.call_tool("ask_one", {"question": "q", "who": "a", "timeout": 7}))
        assert "within 7 s (the request's timeout)" in found["message"]
        found = document(await client.call_tool("consensus", {"proposal": "p", "max_wall": 30}))
        assert found["status"] == "max-wall"
        assert "(the request's max_wall: 30 s)" in found["rounds"][0]["replies"][0]["message"]
        found = document(await client.call_tool("consensus", {"proposal": "p"}))
        assert "(mcp.timeout, less its margin: 95 s)" in found["rounds"][0]["replies"][0]["message"]


async def test_what_keeps_to_no_limit_is_ended_by_the_outermost(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def for_ever(call: Call, given: object) -> dict[str, Any]:
        await trio.sleep_forever()
        raise AssertionError

    monkeypatch.setitem(TOOLS, "panel", Tool("panel", "", TOOLS["panel"].properties, (), for_ever))
    async with asking(tmp_path, timeout=100.0) as (client, _):
        result = await client.call_tool("panel", {})
        assert result.is_error
        assert document(result)["error"]["kind"] == "timeout"
        assert document(result)["error"]["message"] == "panel: no end within 100 s (mcp.timeout)"


@pytest.mark.parametrize(
    ("whole", "asked", "seconds", "rung"),
    [
        (1500.0, None, 1495.0, "mcp.timeout, less its margin"),
        (1500.0, 20.0, 20.0, "the request's deadline"),
        (1500.0, 1496.0, 1495.0, "mcp.timeout, less its margin"),
        (10.0, Limit(1200.0, "consensus.max_wall"), 9.0, "mcp.timeout, less its margin"),
        (1500.0, Limit(1200.0, "consensus.max_wall"), 1200.0, "consensus.max_wall"),
    ],
)
def test_the_least_limit_counts(whole: float, asked: float | Limit | None, seconds: float, rung: str) -> None:
    assert Limits(Limit(whole, "mcp.timeout")).within(asked) == Limit(seconds, rung)


async def test_arguments_are_checked_and_nothing_is_asked(tmp_path: Path) -> None:
    async with asking(tmp_path) as (client, engine):
        for tool, given, part in (
            ("ask_one", {"question": "q"}, "who"),
            ("ask_one", {"question": "", "who": "a"}, "question"),
            ("ask_all", {"question": "q", "odd": 1}, "odd"),
            ("ask_all", {"question": "q", "timeout": -1}, "timeout"),
            ("consensus", {"proposal": "p", "max_rounds": 1.5}, "max_rounds"),
            ("ask_one", {"question": "q", "who": "nobody"}, "there is nobody called 'nobody'"),
            ("ask_one", {"question": "q", "who": "a", "files": ["/etc/passwd"]}, "not below"),
            ("ask_one", {"question": "q", "who": "a", "files": ["../x"]}, "not below"),
            ("search", {}, "search for what?"),
            ("search", {"query": "x"}, "kb.sqlite3"),
            ("sync_status", {}, "kb.sqlite3"),
        ):
            result = await client.call_tool(tool, given)
            assert result.is_error, (tool, given)
            assert part in document(result)["error"]["message"]
            assert document(result)["error"]["kind"] in ("usage", "settings", "store"), document(result)
        with pytest.raises(MCPError, match="there is no tool 'odd'"):
            await client.call_tool("odd", {})
        assert not engine.ledger.report()


async def test_a_client_that_asks_for_it_is_told_of_each_step(tmp_path: Path) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    approves = Behaviour(body=b'{"choices": [{"message": {"content": "VERDICT: APPROVE"}}]}')
    async with asking(tmp_path, Rule(always, approves)) as (client, _):
        await client.call_tool("ask_all", {"question": "q"}, progress_callback=note)
        assert [done for done, *_ in heard] == [1.0, 2.0]
        assert {line for *_, line in heard} == {"a: answer", "b: answer"}
        heard.clear()
        found = document(await client.call_tool("consensus", {"proposal": "p"}, progress_callback=note))
        assert (found["status"], found["confidence"]) == ("converged", "high")
        assert heard == [(1.0, 5.0, "round 1: arbiter APPROVE")]


async def test_what_is_stored_is_found_and_its_status_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_load", HashModel)
    write_tree(tmp_path / "docs", {"a.md": "lanes are fair\n", "b.md": "circuits trip\n"})
    repository = RepositorySettings(name="docs", path=tmp_path / "docs")
    settings = Settings(
        tenants=(TenantSettings(name="acme", repositories=(repository,)),),
        store=StoreSettings(path=tmp_path / "kb.sqlite3"),
    )
    async with open_engine(settings, environ={}) as engine:
        async with open_sweep(engine, settings.tenants) as sweep:
            await sweep.run()
        async with client_of(engine) as client:
            found = document(await client.call_tool("search", {"query": "circuits", "k": 1}))
            assert [hit["path"] for hit in found["hits"]] == ["b.md"]
            found = document(await client.call_tool("search", {"like": {"path": "a.md", "line": 1}, "k": 5}))
            assert "b.md" in [hit["path"] for hit in found["hits"]]
            status = document(await client.call_tool("sync_status", {}))
            assert status["access"] == {"ready": 1, "degraded": 0}
            assert status["repositories"][0]["last"]["outcome"] == "complete"


async def test_a_search_has_its_limit_too(tmp_path: Path, patient_clock: MockClock) -> None:
    async with open_scripted_engine(rules=[Rule(nth(2), stall_after_headers())]) as served:
        settings = Settings(
            providers={"box": ProviderSettings(kind="ollama", base_url=served.base_url, model="scripted")},
            embedding=EmbeddingSettings(provider="box"),
            store=StoreSettings(path=tmp_path / "kb.sqlite3"),
            mcp=McpSettings(timeout=100.0),
        )
        async with open_engine(settings, environ={}) as engine:
            await engine.index("acme", "docs", [Document("a.md", "lanes are fair")])
            async with client_of(engine) as client:
                began_at = trio.current_time()
                result = await client.call_tool("search", {"query": "fair"})
                assert result.is_error
                assert "(mcp.timeout, less its margin: 95 s)" in document(result)["error"]["message"]
                assert trio.current_time() - began_at == pytest.approx(95.0, abs=1.0)


async def test_a_deployment_is_described_without_its_keys(tmp_path: Path) -> None:
    settings = Settings(
        providers={
            "grok": ProviderSettings(kind="grok", model="g"),
            "box": ProviderSettings(kind="ollama", model="m"),
        },
        store=StoreSettings(path=tmp_path / "kb.sqlite3"),
    )
    async with open_engine(settings, environ={"XAI_API_KEY": "xai-secret", "PATH": ""}) as engine:
        engine.lane("box")
        async with client_of(engine) as client:
            result = await client.call_tool("inspect_deployment", {})
    found = document(result)
    assert not result.is_error
    assert [one["name"] for one in found["providers"]] == ["grok", "box"]
    assert found["providers"][0]["timeout"] == 180.0
    assert found["lanes"][0]["provider"] == "box"
    assert found["lanes"][0]["capacity"] == 1
    assert found["panel"]["asked"] == ["grok", "box"]
    assert {"key", "program", "store", "extra"} <= {finding["check"] for finding in found["doctor"]["findings"]}
    assert "secret" not in str(result)
    assert not (tmp_path / "kb.sqlite3").exists()


async def test_what_raises_is_named_by_its_class_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def raises(call: Call, given: object) -> dict[str, Any]:
        raise ZeroDivisionError("secret")

    monkeypatch.setitem(TOOLS, "panel", Tool("panel", "", TOOLS["panel"].properties, (), raises))
    async with asking(tmp_path) as (client, _):
        result = await client.call_tool("panel", {})
    assert result.is_error
    assert document(result)["error"]["message"] == "panel: it failed (ZeroDivisionError)"
    assert "secret" not in str(result) + caplog.text
