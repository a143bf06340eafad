"""``embedkit mcp``: the tools for an MCP client, over standard input and output or over HTTP."""

from __future__ import annotations

import argparse
import sys

from embedkit.engine import open_engine
from embedkit.errors import UsageError
from embedkit.settings import Settings
from embedkit.surfaces.engine_words import words_shown
from embedkit.surfaces.exits import DONE, INTERRUPTED
from embedkit.surfaces.interrupts import interruptible


async def run(given: argparse.Namespace, settings: Settings) -> int:
    """Serve, until the client's output ends or a signal comes.

    Cancellation:
        Every request was cancelled, and every program ended.
    """
    try:
        from embedkit.surfaces.mcp.http import serve_http
        from embedkit.surfaces.mcp.server import make_server
        from embedkit.surfaces.mcp.stdio import serve_stdio
    except ImportError as error:
        raise UsageError(f'embedkit mcp needs {error.name}: pip install "trio-embedkit[mcp]"') from error
    async with interruptible() as interrupt, open_engine(settings, show_words=words_shown(given)) as engine:
        server = make_server(engine)
        if given.http:
            await serve_http(server, given.host, given.port, started=_say)
        else:
            await serve_stdio(server)
    return INTERRUPTED if interrupt.came else DONE


def _say(address: str) -> None:
    # On standard error: over stdio nothing but the protocol may be on standard output, and both ways should be alike.
    sys.stderr.write(f"embedkit: MCP at {address}\n")
    sys.stderr.flush()
