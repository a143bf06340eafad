"""MCP over standard input and output: a real client and a real process, and the wire itself over pipes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from command_line import COMMAND, environment
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_world import (
    all_gone,
    cancelled_mid_call,
    document,
    engine_in,
    environ_of,
    hanging,
    is_running,
    write_world,
)

from embedkit.surfaces.mcp.server import make_server
from embedkit.surfaces.mcp.stdio import LONGEST_LINE, Lines, serve_stdio


def environ(folder: Path) -> dict[str, str]:
    return environment(**environ_of(folder))


# A process of its own takes seconds to start, most of them for the library.
@pytest.mark.parametrize("era", ["legacy", pytest.param("2026-07-28", marks=pytest.mark.soak)])
async def test_a_client_calls_cancels_and_leaves(era: str, tmp_path: Path) -> None:
    write_world(tmp_path)
    parameters = StdioServerParameters(
        command=COMMAND[0], args=[*COMMAND[1:], "mcp"], env=environ(tmp_path), cwd=tmp_path
    )
    async with Client(stdio_client(parameters), mode=era) as client:
        one = document(await client.call_tool("ask_one", {"question": "Is it well?", "who": "one"}))
        assert (one["ok"], one["text"]) == (True, "All is well.\n\nVERDICT: APPROVE")
        await cancelled_mid_call(lambda: client.call_tool("ask_one", {"question": "hang", "who": "one"}), tmp_path)
        await all_gone(tmp_path)
        assert len((await client.list_tools()).tools) == 7


@pytest.mark.soak
async def test_the_end_of_the_input_ends_programs_and_the_process(tmp_path: Path) -> None:
    write_world(tmp_path)
    process = _started(tmp_path)
    assert process.stdin is not None
    process.stdin.write(_lines(*INITIALIZE, call("ask_one", question="hang stubbornly", who="one")))
    process.stdin.flush()
    await hanging(tmp_path)
    process.stdin.close()
    assert await trio.to_thread.run_sync(process.wait) == 0
    await all_gone(tmp_path)
    _read_off(process)


async def test_sigterm_ends_programs_and_the_server(tmp_path: Path) -> None:
    write_world(tmp_path)
    process = _started(tmp_path)
    assert process.stdin is not None
    process.stdin.write(_lines(*INITIALIZE, call("ask_one", question="hang stubbornly", who="one")))
    process.stdin.flush()
    await hanging(tmp_path)
    began_at = trio.current_time()
    process.send_signal(signal.SIGTERM)
    assert await trio.to_thread.run_sync(process.wait) == 130
    assert trio.current_time() - began_at < 5  # two, and what a busy machine adds
    await all_gone(tmp_path)
    process.stdin.close()
    _read_off(process)


@pytest.mark.soak
async def test_asked_twice_it_ends_programs_without_their_grace(tmp_path: Path) -> None:
    write_world(tmp_path)
    process = _started(tmp_path)
    assert process.stdin is not None
    process.stdin.write(_lines(*INITIALIZE, call("ask_one", question="hang stubbornly", who="one")))
    process.stdin.flush()
    await hanging(tmp_path)
    for _ in range(2):
        process.send_signal(signal.SIGTERM)
        await trio.sleep(0.1)  # two signals at once are one
    assert await trio.to_thread.run_sync(process.wait) == 130
    await all_gone(tmp_path)
    process.stdin.close()
    _read_off(process)


def _started(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, "mcp"], cwd=folder, env=environ(folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def _read_off(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    for line in process.stdout.read().splitlines():
        json.loads(line)  # nothing but the protocol
    process.stdout.close()


def call(tool: str, number: int = 7, **arguments: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


def cancel(number: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}


INITIALIZE: tuple[dict[str, Any], ...] = (
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "0"},
        },
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
)


def _lines(*messages: object) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


class Wire:
    """The client's end of two pipes."""

    def __init__(self, told: int, given: int) -> None:
        self._told = told
        self._given = trio.lowlevel.FdStream(given)
        self._rest = b""

    async def say(self, *messages: object) -> None:
        await trio.to_thread.run_sync(os.write, self._told, _lines(*messages))

    async def say_bytes(self, data: bytes) -> None:
        stream = trio.lowlevel.FdStream(os.dup(self._told))
        await stream.send_all(data)
        await stream.aclose()

    async def hear(self) -> dict[str, Any]:
        while b"\n" not in self._rest:
            data = await self._given.receive_some(1 << 16)
            assert data, "the server has ended"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        heard: dict[str, Any] = json.loads(line)
        return heard

    async def hang_up(self) -> None:
        os.close(self._told)


@asynccontextmanager
async def wired(folder: Path, more: str = "") -> AsyncGenerator[Wire]:
    """A server that has been greeted; the block is to hang up."""
    given, told = os.pipe()
    heard, said = os.pipe()
    async with engine_in(folder, more) as engine, trio.open_nursery() as nursery:
        wire = Wire(told, heard)

        async def serve() -> None:
            await serve_stdio(make_server(engine), given, said)
            os.close(said)
            os.close(given)

        nursery.start_soon(serve)
        await wire.say(*INITIALIZE)
        assert (await wire.hear())["result"]["serverInfo"]["name"] == "embedkit"
        yield wire
    await wire._given.aclose()


async def test_a_cancelled_request_is_answered_once_its_work_has_stopped(tmp_path: Path) -> None:
    async with wired(tmp_path) as wire:
        await wire.say(call("ask_one", question="hang", who="one"))
        await hanging(tmp_path)
        await wire.say(cancel(7))
        heard = await wire.hear()
        assert (heard["id"], heard["error"]["code"]) == (7, -32800)
        assert not is_running(int((tmp_path / "child").read_text()))
        await wire.say(call("panel", 8))
        assert (await wire.hear())["id"] == 8
        await wire.hang_up()


async def test_the_newer_era_forbids_that_answer(tmp_path: Path) -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
    }
    given, told = os.pipe()
    heard, said = os.pipe()
    async with engine_in(tmp_path) as engine, trio.open_nursery() as nursery:
        wire = Wire(told, heard)
        nursery.start_soon(serve_stdio, make_server(engine), given, said)
        for number, tool, arguments in ((7, "ask_one", {"question": "hang", "who": "one"}), (8, "panel", {})):
            request = call(tool, number, **arguments)
            request["params"]["_meta"] = meta
            await wire.say(request)
            if number == 7:
                await hanging(tmp_path)
                await wire.say(cancel(7))
                await all_gone(tmp_path)
        assert (await wire.hear())["id"] == 8
        await wire.hang_up()
    for descriptor in (given, said):
        os.close(descriptor)
    await wire._given.aclose()


async def test_what_is_no_message_costs_nothing_but_itself(tmp_path: Path) -> None:
    async with wired(tmp_path) as wire:
        await wire.say_bytes(b"no json\n\xff\xfe\n\n[]\n")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wire.say_bytes, b"x" * (LONGEST_LINE + 10) + b"\n")
        await wire.say(call("panel", 9))
        assert (await wire.hear())["id"] == 9
        await wire.hang_up()


async def test_a_broken_output_ends_the_server_and_its_programs(tmp_path: Path) -> None:
    given, told = os.pipe()
    heard, said = os.pipe()
    async with engine_in(tmp_path) as engine:
        wire = Wire(told, heard)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_stdio, make_server(engine), given, said)
            await wire.say(*INITIALIZE)
            await wire.hear()
            await wire.say(call("ask_one", question="hang", who="one"))
            await hanging(tmp_path)
            await wire._given.aclose()
            await wire.say(call("panel", 8))
        await all_gone(tmp_path)
    await wire.hang_up()
    for descriptor in (given, said):
        os.close(descriptor)


async def test_the_end_of_the_input_ends_the_server_and_its_programs(tmp_path: Path) -> None:
    async with wired(tmp_path) as wire:
        await wire.say(call("ask_one", question="hang", who="one"))
        await hanging(tmp_path)
        await wire.hang_up()
    await all_gone(tmp_path)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_lines_are_the_same_however_they_come(size: int) -> None:
    text = b'{"a": 1}\n\n  \n{"b": "\xc3\xbc"}\r\nrest'
    lines = Lines()
    found = [line for at in range(0, len(text), size) for line in lines.of(text[at : at + size])]
    assert found == [b'{"a": 1}', b'{"b": "\xc3\xbc"}\r']


def test_a_line_that_is_too_long_is_held_by_nobody() -> None:
    lines = Lines()
    assert list(lines.of(b"x" * LONGEST_LINE)) == []
    assert list(lines.of(b"x")) == []
    assert len(lines._begun) == 0
    assert list(lines.of(b"\ny\n")) == [None, b"y"]


@pytest.mark.soak
def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['mcp'] = None; from embedkit.surfaces.cli import main; sys.exit(main(['mcp']))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert 'pip install "trio-embedkit[mcp]"' in done.stderr
    assert done.stderr.count("\n") == 1
