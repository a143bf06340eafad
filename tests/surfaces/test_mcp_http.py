"""A real MCP client over HTTP, in both eras of the protocol; the server is in the same process, on loopback."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from mcp import Client, MCPError
from mcp_world import all_gone, cancelled_mid_call, document, engine_in, hanging, served_over_http

from embedkit.errors import EmbedkitError, UsageError
from embedkit.surfaces.mcp.http import serve_http
from embedkit.surfaces.mcp.server import make_server

# The client leaves generators of its own to the garbage collector, which trio remarks on; ours it leaves alone.
pytestmark = pytest.mark.filterwarnings(
    r"ignore:Async generator 'httpx2\.:ResourceWarning", r"ignore:Async generator 'httpcore2\.:ResourceWarning"
)

both_eras = pytest.mark.parametrize("era", ["legacy", "2026-07-28"])


@both_eras
async def test_a_client_calls_tools(era: str, tmp_path: Path) -> None:
    async with engine_in(tmp_path) as engine, served_over_http(engine) as url, Client(url, mode=era) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        assert tools == [
            "ask_one", "ask_all", "consensus", "panel", "search", "sync_status", "inspect_deployment",
        ]  # fmt: skip
        one = document(await client.call_tool("ask_one", {"question": "Is it well?", "who": "one"}))
        assert (one["ok"], one["alias"], one["attempts"]) == (True, "one", 1)
        every = document(await client.call_tool("ask_all", {"question": "Is it well?"}))
        assert [result["alias"] for result in every["results"]] == ["one", "two", "grok"]
        assert [result["ok"] for result in every["results"]] == [True, True, False]
        assert "XAI_API_KEY" in every["unavailable"]["grok"]


@both_eras
async def test_a_cancelled_call_stops_its_work(era: str, tmp_path: Path) -> None:
    async with engine_in(tmp_path) as engine, served_over_http(engine) as url, Client(url, mode=era) as client:
        await cancelled_mid_call(lambda: client.call_tool("ask_all", {"question": "hang", "to": ["one"]}), tmp_path)
        await all_gone(tmp_path)
        assert document(await client.call_tool("panel", {}))["asked"][0]["alias"] == "one"


async def test_the_end_of_the_server_ends_programs(tmp_path: Path) -> None:
    async with engine_in(tmp_path) as engine, trio.open_nursery() as nursery:
        async with served_over_http(engine) as url:

            async def call() -> None:
                async with Client(url, mode="legacy") as client:
                    with pytest.raises(MCPError):
                        await client.call_tool("ask_one", {"question": "hang", "who": "one"})

            nursery.start_soon(call)
            await hanging(tmp_path)
        await all_gone(tmp_path)
        nursery.cancel_scope.cancel()


async def test_only_loopback_is_listened_on(tmp_path: Path) -> None:
    async with engine_in(tmp_path) as engine:
        server = make_server(engine)
        for host in ("0.0.0.0", "192.0.2.1", "example.org"):
            with pytest.raises(UsageError):
                await serve_http(server, host, 0, started=print)


async def test_a_port_that_is_taken(tmp_path: Path) -> None:
    async with engine_in(tmp_path) as engine, served_over_http(engine) as url:
        port = int(url.rpartition(":")[2].partition("/")[0])
        with pytest.raises(EmbedkitError, match="cannot be listened on"):
            await serve_http(make_server(engine), "127.0.0.1", port, started=print)


async def test_another_sites_page_is_refused(tmp_path: Path) -> None:
    import json

    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
    async with engine_in(tmp_path) as engine, served_over_http(engine) as url:
        host, port = url.split("/")[2].split(":")
        stream = await trio.open_tcp_stream(host, int(port))
        head = "POST /mcp HTTP/1.1\r\nHost: evil.example\r\nContent-Type: application/json\r\n"
        await stream.send_all(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert (await stream.receive_some(100)).startswith(b"HTTP/1.1 421")
        await stream.aclose()
