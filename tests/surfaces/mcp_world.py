"""Settings, programs and clients for the MCP server's tests."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from fakes import until

from embedkit.engine import Engine, open_engine
from embedkit.settings import Settings, load_settings
from embedkit.surfaces.mcp.http import serve_http
from embedkit.surfaces.mcp.server import make_server

# Answers at once, unless it is asked to hang, with a child; "hang stubbornly" ignores SIGTERM too.
_CODEX = """#!{python}
import json, os, signal, sys
def note(name):
    with open(os.path.join({here!r}, name + ".part"), "w") as file:
        file.write(str(os.getpid()))
    os.rename(os.path.join({here!r}, name + ".part"), os.path.join({here!r}, name))
question = sys.stdin.read()
if "hang" in question:
    if "stubbornly" in question:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        note("grandchild")
    else:
        note("child")
    while True:
        signal.pause()
text = "All is well.\\n\\nVERDICT: APPROVE"
print(json.dumps({{"type": "item.completed", "item": {{"type": "agent_message", "text": text}}}}))
"""

SETTINGS = """
version = 1
[providers.cx]
kind = "codex"
[providers.grok]
kind = "grok"
model = "g"
[consensus]
arbiter = "cx"
[[ask.panel]]
provider = "cx"
alias = "one"
[[ask.panel]]
provider = "cx"
alias = "two"
[[ask.panel]]
provider = "grok"
"""


def write_world(folder: Path, more: str = "") -> Path:
    """A settings file in ``folder``, and ``codex`` in ``folder / "bin"``."""
    (folder / "bin").mkdir()
    codex = folder / "bin" / "codex"
    codex.write_text(_CODEX.format(python=sys.executable, here=str(folder)))
    codex.chmod(0o755)
    file = folder / "embedkit.toml"
    file.write_text(SETTINGS + more)
    return file


def environ_of(folder: Path) -> dict[str, str]:
    return {"PATH": f"{folder / 'bin'}:/usr/bin:/bin", "HOME": str(folder)}


@asynccontextmanager
async def engine_in(folder: Path, more: str = "") -> AsyncGenerator[Engine]:
    settings: Settings = load_settings(write_world(folder, more))
    async with open_engine(settings, environ=environ_of(folder)) as engine:
        yield engine


@asynccontextmanager
async def served_over_http(engine: Engine) -> AsyncGenerator[str]:
    """The address of a server."""
    addresses: list[str] = []
    listening = trio.Event()

    def started(address: str) -> None:
        addresses.append(address)
        listening.set()

    async with trio.open_nursery() as nursery:

        async def serve() -> None:
            await serve_http(make_server(engine), "127.0.0.1", 0, started=started)

        nursery.start_soon(serve)
        await listening.wait()
        yield addresses[0]
        nursery.cancel_scope.cancel()


async def hanging(folder: Path) -> None:
    """Until the program that was asked to hang does, with its child."""
    await until(lambda: (folder / "child").exists() and (folder / "grandchild").exists())


async def cancelled_mid_call(ask: Callable[[], Awaitable[Any]], folder: Path) -> None:
    """Call, and leave once the program hangs."""
    async with trio.open_nursery() as nursery:

        async def call() -> None:
            await ask()

        nursery.start_soon(call)
        await hanging(folder)
        nursery.cancel_scope.cancel()


def is_running(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


async def all_gone(folder: Path) -> None:
    pids = [int((folder / name).read_text()) for name in ("child", "grandchild")]
    await until(lambda: not any(is_running(pid) for pid in pids))


def document(result: Any) -> Any:
    """What a call came to; its text says the same."""
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content
