"""Programs that stand for codex and gemini, and do as a script says."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

_HEAD = """#!{python}
import json, os, signal, subprocess, sys, time
here = {here!r}
def ready(name="ready"):
    with open(os.path.join(here, name + ".part"), "w") as file:
        file.write(str(os.getpid()))
    os.rename(os.path.join(here, name + ".part"), os.path.join(here, name))
def forever():
    while True:
        signal.pause()
def codex(text):
    print(json.dumps({{"type": "thread.started", "thread_id": "t-1"}}))
    print(json.dumps({{"type": "item.completed", "item": {{"type": "agent_message", "text": text}}}}))
    print(json.dumps({{"type": "turn.completed", "usage": {{"input_tokens": 3, "output_tokens": 4}}}}), flush=True)
"""


def write_program(folder: Path, name: str, body: str) -> Path:
    """A program in ``folder / "bin"`` whose body is Python; ``ready()`` leaves its process id in ``folder``."""
    (folder / "bin").mkdir(exist_ok=True)
    path = folder / "bin" / name
    path.write_text(_HEAD.format(python=sys.executable, here=str(folder)) + body)
    path.chmod(0o755)
    return path


def environ_of(folder: Path, **more: str) -> dict[str, str]:
    return {"PATH": str(folder / "bin"), "HOME": str(folder), **more}


def pid_in(folder: Path, name: str = "ready") -> int:
    return int((folder / name).read_text())


def is_running(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def gemini_document(text: str) -> str:
    return json.dumps({"session_id": "s-1", "response": text, "stats": {}})
