"""The tools behind the protocol: arguments checked, limits kept, and every ending answered."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import trio
from jsonschema import Draft202012Validator
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
)
from mcp_types import Tool as ToolOnTheWire

from embedkit.engine import Engine
from embedkit.errors import EmbedkitError, UsageError
from embedkit.settings import Limit
from embedkit.surfaces.exits import describe
from embedkit.surfaces.mcp.limits import Limits
from embedkit.surfaces.mcp.tools import TOOLS, Call, Document, Tool

_log = logging.getLogger(__name__)
_LONGEST_FAULT = 300
_CHECKS = {name: Draft202012Validator(tool.schema) for name, tool in TOOLS.items()}


def make_server(engine: Engine) -> Server[dict[str, Any]]:
    """A server of the tools, for one transport.

    A call that is cancelled by its client, or by the end of its connection, is a cancelled scope: questions that are
    out are aborted, and programs ended, before it is answered.
    """

    async def list_tools(
        context: ServerRequestContext[dict[str, Any]], given: PaginatedRequestParams | None
    ) -> ListToolsResult:
        await trio.lowlevel.checkpoint()
        return ListToolsResult(
            tools=[
                ToolOnTheWire(name=tool.name, description=tool.description, input_schema=tool.schema)
                for tool in TOOLS.values()
            ]
        )

    async def call_tool(context: ServerRequestContext[dict[str, Any]], given: CallToolRequestParams) -> CallToolResult:
        tool = TOOLS.get(given.name)
        if tool is None:
            raise MCPError(INVALID_PARAMS, f"there is no tool {given.name!r}; there is {', '.join(TOOLS)}")
        document, failed = await _answered(engine, tool, given.arguments or {}, context)
        text = json.dumps(document, ensure_ascii=False)
        return CallToolResult(content=[TextContent(text=text)], structured_content=document, is_error=failed)

    return Server(
        "embedkit",
        version=version("trio-embedkit"),
        instructions="Ask several models one question, have them judge a proposal, and search the knowledge base.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def _answered(
    engine: Engine, tool: Tool, given: Mapping[str, Any], context: ServerRequestContext[dict[str, Any]]
) -> tuple[Document, bool]:
    """What a call comes to, and whether that is a failure of the call itself."""
    outermost = Limit(engine.settings.mcp.timeout, "mcp.timeout")
    try:
        _check(tool, given)
        with trio.move_on_after(outermost.seconds):
            return await _run(engine, tool, given, Limits(outermost), context), False
    except EmbedkitError as error:
        return {"error": describe(error)}, True
    except Exception as error:
        # The class alone: its words may quote a question.
        _log.warning("tool %s failed (%s)", tool.name, type(error).__name__)
        return _failed(f"{tool.name}: it failed ({type(error).__name__})"), True
    return _failed(f"{tool.name}: no end within {outermost.seconds:g} s ({outermost.rung})", kind="timeout"), True


def _failed(message: str, kind: str = "failed") -> Document:
    return {"error": {"kind": kind, "message": message, "file": None, "line": None, "key": None}}


def _check(tool: Tool, given: Mapping[str, Any]) -> None:
    for fault in _CHECKS[tool.name].iter_errors(dict(given)):
        place = ".".join(str(part) for part in fault.absolute_path)
        raise UsageError(f"{tool.name}: {place + ': ' if place else ''}{fault.message[:_LONGEST_FAULT]}")


async def _run(
    engine: Engine,
    tool: Tool,
    given: Mapping[str, Any],
    limits: Limits,
    context: ServerRequestContext[dict[str, Any]],
) -> Document:
    """Run the tool, and pass its steps on to a client that asked for them."""
    steps, told = trio.open_memory_channel[tuple[float, float | None, str]](math.inf)
    document: Document | None = None
    failed: Exception | None = None

    def tell(*step: Any) -> None:
        steps.send_nowait(step)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(_pass_on, told, context)
        try:
            document = await tool.run(Call(engine, limits, tell), given)
        except Exception as error:
            failed = error  # kept aside, so that the nursery does not wrap it in a group
        steps.close()
    if failed is not None:
        raise failed
    assert document is not None
    return document


async def _pass_on(
    told: trio.MemoryReceiveChannel[tuple[float, float | None, str]], context: ServerRequestContext[dict[str, Any]]
) -> None:
    async for done, total, line in told:
        await context.session.report_progress(done, total, line)
