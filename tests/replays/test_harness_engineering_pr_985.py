"""Intense-Visions/harness-engineering PR 985: a child is killed at its limit, and its own child holds standard output.

Right: the call returns at the limit, as a timeout, and nothing is left running.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import trio
from fakes import until
from trio.testing import MockClock, wait_all_tasks_blocked

from embedkit.ask import Failure, ask_one
from embedkit.engine import open_engine
from embedkit.settings import AskSettings, ProviderSettings, Settings

CODEX = """#!{python}
import os, signal
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open({here!r} + "/part", "w").write(str(os.getpid()))
    os.rename({here!r} + "/part", {here!r} + "/grandchild")
while True:
    signal.pause()
"""


async def test_the_call_returns_at_its_limit_and_nothing_runs_on(tmp_path: Path, mock_clock: MockClock) -> None:
    program = tmp_path / "codex"
    program.write_text(CODEX.format(python=sys.executable, here=str(tmp_path)))
    program.chmod(0o755)
    settings = Settings(
        providers={"codex": ProviderSettings(kind="codex", timeout=60.0)}, ask=AskSettings(recovery_grace=0.0)
    )

    async def pass_a_minute() -> None:
        await until((tmp_path / "grandchild").exists)
        await wait_all_tasks_blocked(0.05)
        mock_clock.jump(60.0)

    async with open_engine(settings, environ={"PATH": str(tmp_path)}) as engine, trio.open_nursery() as nursery:
        nursery.start_soon(pass_a_minute)
        result = await ask_one(engine, "q", "codex")
    assert isinstance(result, Failure)
    assert (result.kind, result.elapsed) == ("timeout", 60.0)
    grandchild = int((tmp_path / "grandchild").read_text())
    await until(lambda: not _runs(grandchild))


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False
